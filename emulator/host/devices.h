// The host's devices as connection management sees them: addresses, GID indices, and which own
// address reaches a destination.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cm/cm.h"
#include "emulator/host/fabric.h"
#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostDevices final : public cm::CmEnvironment {
 public:
  HostDevices(Verbs& verbs, Fabric& fabric) : verbs_(verbs), fabric_(fabric) {}

  void Add(const DeviceConfig& config);
  void SetSilentNets(const std::vector<NetPrefix>& nets) { silent_nets_ = nets; }

  const cm::CmDevice* DeviceOf(const NetAddress& local) override;
  std::vector<const cm::CmDevice*> Devices() override;
  uint8_t GidIndexOf(const NetAddress& local) override;
  // The destination itself when it is ours. Else the first wire address of its family; loopback
  // addresses reach loopback only, others anything else: a default host, which is on the wire at
  // loopback alone, has no route to the network.
  std::optional<NetAddress> SourceFor(const NetAddress& destination) override;
  bool IsSilent(const NetAddress& destination) override;
  bool IsOwnAddress(const NetAddress& address) override;
  void Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) override;
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
  struct OwnAddress {
    const cm::CmDevice* device;
    uint8_t gid_index;
    bool on_wire;
  };
  Verbs& verbs_;
  Fabric& fabric_;
  std::deque<Profile> profiles_;  // deques: their elements stay where they are
  std::deque<cm::CmDevice> devices_;
  std::map<NetAddress, OwnAddress> addresses_;
  std::vector<NetPrefix> silent_nets_;
  std::vector<NetAddress> order_;                                  // as configured
  std::map<std::pair<uint32_t, NetAddress>, JoinedGroup> groups_;  // by device and group
};

}  // namespace rdmaemu
