// Finds in /proc the owner of UDP port 4791 of an address, for an error message with advice.
#pragma once

#include <string>

#include "emulator/base/net_address.h"
#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// A host that starts or ends holds its lock and accepts no connection, at most for this long.
inline constexpr Duration kHostChangePatience = std::chrono::seconds(10);
// The kernel closes the descriptors of an exiting process one after the other. /proc no longer
// shows them, and the port becomes free within this time.
inline constexpr Duration kExitPatience = std::chrono::seconds(1);

struct PortOwner {
  // "by the rdmaemu host b (pid 12); stop it with: rdmaemu stop b", "by process 12 (socat)", "by a
  // process of another user (uid 0), ...". Never empty.
  std::string description;
  // How long to retry the port, because its owner will probably close it. Zero: the owner keeps the
  // port open.
  Duration patience = Duration::zero();
};
// Returns the owner of UDP port 4791 of the address, if /proc shows the owner to this user.
PortOwner FindPortOwner(const Registry& registry, const NetAddress& address);

}  // namespace rdmaemu::runtime
