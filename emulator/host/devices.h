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
#include "emulator/host/faults/changing_devices.h"
#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostDevices final : public ChangingDevices {
 public:
  // Names of devices that a host remembers, those of removed ones among them.
  static constexpr size_t kMaxNames = 64;
  // Addresses of one host that more can be added to: each on the wire is a socket, and the index
  // of a GID has 8 bits in an address vector.
  static constexpr size_t kMaxAddresses = 254;

  using Entry = HostDevice;

  HostDevices(Verbs& verbs, Network& network, AddressTable& addresses)
      : verbs_(verbs), network_(network), addresses_(addresses) {}

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
  const std::vector<Entry*>& entries() const { return addresses_.all_devices(); }
  std::vector<std::string> PresentNames() const override;
  std::optional<std::pair<std::string, HostAddress>> OwnerOf(
      const NetAddress& address) const override;

 private:
  // nullptr when the name is unknown, or its device was removed.
  Entry* Find(const std::string& name);
  Entry* FindPresent(const std::string& name);
  Entry& NewEntry(const DeviceConfig& config);
  void Attach(Entry& entry);
  // Removes the address from the device's lists; it stays in addresses_.
  void TakeFrom(Entry& from, const NetAddress& address);
  Status GiveTo(Entry& entry, const HostAddress& address);

  Verbs& verbs_;
  Network& network_;
  AddressTable& addresses_;
  cm::Cm* cm_ = nullptr;
  std::map<std::string, Entry> by_name_;  // its objects stay where they are
};

}  // namespace rdmaemu
