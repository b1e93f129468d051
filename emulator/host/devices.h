// The host's devices while it runs, and their changes: devices are removed and return, ports go
// down and up, addresses are added, removed and moved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cm/cm.h"
#include "emulator/host/address_table.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/changing_devices.h"
#include "emulator/host/faults/cm.h"
#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostDevices final : public cm::CmEnvironment, public ChangingDevices {
 public:
  // Names of devices that a host remembers, those of removed ones among them.
  static constexpr size_t kMaxNames = 64;
  // Addresses of one host that more can be added to: each on the wire is a socket, and the index
  // of a GID has 8 bits in an address vector.
  static constexpr size_t kMaxAddresses = 254;

  using Entry = HostDevice;

  HostDevices(Verbs& verbs, Fabric& fabric, Network& network, CmFaults& faults)
      : verbs_(verbs), fabric_(fabric), network_(network), faults_(faults) {}

  void SetSilentNets(const std::vector<NetPrefix>& nets) { addresses_.SetSilentNets(nets); }
  void SetGateways(const std::vector<NetAddress>& gateways) { addresses_.SetGateways(gateways); }
  // Set before anything is removed; not owned.
  void SetCm(cm::Cm* cm) { cm_ = cm; }

  // ---- changes. ENODEV: no device of that name is there.

  // A device of the host's configuration; the network serves its addresses already.
  void Start(const DeviceConfig& config);
  // Its ids hear of it, then it is gone; its addresses stay the host's, without a device.
  Status Remove(Time now, const std::string& name,
                std::optional<RemovalHabits> habits = {}) override;
  // Brings back a removed device, with another profile where one is given, or makes a new one,
  // which has no address yet. EEXIST: it is there; EINVAL: a new one without a profile; ENOSPC:
  // the host has kMaxDevices.
  Status Add(const std::string& name, const Profile* profile);
  Status Return(const std::string& name) override { return Add(name, nullptr); }
  Status SetPort(Time now, const std::string& name, bool up) override;
  std::optional<uint16_t> PkeyOf(const std::string& name, uint32_t index) override;
  Status SetPkey(const std::string& name, uint32_t index, uint16_t pkey) override;
  Status AddAddress(const std::string& name, const HostAddress& address) override;
  Status RemoveAddress(const NetAddress& address) override;
  Status MoveAddress(Time now, const NetAddress& address, const std::string& to) override;

  // ---- what there is

  // In the order they were first named.
  const std::vector<Entry*>& entries() const { return order_; }
  std::vector<std::string> PresentNames() const override;
  std::optional<std::pair<std::string, HostAddress>> OwnerOf(
      const NetAddress& address) const override;

  // A link-local address is its device's by the IPv4 address in it.
  const cm::CmDevice* DeviceOf(const NetAddress& local) override;
  std::vector<const cm::CmDevice*> Devices() override;
  uint8_t GidIndexOf(const NetAddress& local) override;
  cm::Reach FindRoute(const NetAddress& destination,
                      const std::optional<NetAddress>& from) override {
    return addresses_.FindRoute(destination, from);
  }
  std::optional<NetAddress> SourceInSubnet(const NetAddress& gid) override {
    return addresses_.SourceInSubnet(gid);
  }
  bool LivesOnLoopback(bool ipv4) override { return addresses_.HasLoopback(ipv4); }
  uint16_t FirstPkeyOf(const cm::CmDevice& device) override;
  std::optional<uint16_t> FindPkey(const NetAddress& local, uint16_t pkey) override;
  // QP 1 of the address's device takes packets of every partition in its table.
  bool TakesGsiPkey(const NetAddress& local, uint16_t pkey) const;
  bool IsOwnAddress(const NetAddress& address) override {
    return addresses_.Find(address) != nullptr;
  }
  // By way of the fault rules.
  Status Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) override;
  void SendMessage(Time now, const cm::CmRoute& route, const wire::CmMessage& message);
  Status JoinGroup(uint32_t device_index, const NetAddress& local,
                   const NetAddress& group) override;
  void LeaveGroup(uint32_t device_index, const NetAddress& group) override;
  Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) override;
  Status ConnectQp(Time now, GroupId group, uint32_t qpn, const QpConnection& connection) override;
  void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) override;

 private:
  // A device has one link, that of the address by which it joined first.
  struct JoinedGroup {
    NetAddress local;
    bool on_wire;
    uint32_t joins;
  };
  // nullptr when the name is unknown, or its device was removed.
  Entry* Find(const std::string& name);
  Entry* FindPresent(const std::string& name);
  Entry& NewEntry(const DeviceConfig& config);
  void Attach(Entry& entry);
  // The device of an own address; nullptr: there is none.
  const Device* DeviceAt(const NetAddress& local) const;
  // The P_Key that its CM messages leave with.
  uint16_t GsiPkey(const NetAddress& local) const;
  // Some device has joined the group on the link of this address. After the address has moved, it
  // may be two.
  bool IsJoinedOn(const NetAddress& local, const NetAddress& group) const;
  // Removes the address from the device's lists; it stays in addresses_.
  void TakeFrom(Entry& from, const NetAddress& address);
  Status GiveTo(Entry& entry, const HostAddress& address);

  Verbs& verbs_;
  Fabric& fabric_;
  Network& network_;
  CmFaults& faults_;
  cm::Cm* cm_ = nullptr;
  std::map<std::string, Entry> by_name_;  // its objects stay where they are
  std::vector<Entry*> order_;
  AddressTable addresses_;
  std::map<std::pair<uint32_t, NetAddress>, JoinedGroup> groups_;  // by device and group
};

}  // namespace rdmaemu
