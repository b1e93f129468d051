// The multicast memberships of a host's devices, and their links.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "emulator/cm/environment.h"
#include "emulator/host/address_table.h"
#include "emulator/host/fabric.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostGroups final : public cm::CmGroups {
 public:
  HostGroups(const AddressTable& addresses, Fabric& fabric, Verbs& verbs)
      : addresses_(addresses), fabric_(fabric), verbs_(verbs) {}

  Status JoinGroup(uint32_t device_index, const NetAddress& local,
                   const NetAddress& group) override;
  void LeaveGroup(uint32_t device_index, const NetAddress& group) override;

 private:
  // A membership of a device has one link: the link of the address with which the device joined
  // first.
  struct Membership {
    NetAddress local;
    bool on_wire;
    uint32_t joins;
  };
  // Returns true when a device has joined the group on the link of this address. After the address
  // was moved, this may be true for two devices.
  bool IsJoinedOn(const NetAddress& local, const NetAddress& group) const;

  const AddressTable& addresses_;
  Fabric& fabric_;
  Verbs& verbs_;
  std::map<std::pair<uint32_t, NetAddress>, Membership> memberships_;  // by device and group
};

}  // namespace rdmaemu
