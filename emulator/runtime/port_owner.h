// Who has UDP port 4791 of an address, from /proc, for a message that a person can act on.
#pragma once

#include <string>

#include "emulator/base/net_address.h"
#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// A host that starts or ends holds its lock and cannot be connected to. It may take so long.
inline constexpr Duration kHostChangePatience = std::chrono::seconds(10);
// A process that the kernel is ending closes its descriptors one after the other. They cannot be
// read any more, and the port is free a moment later.
inline constexpr Duration kExitPatience = std::chrono::seconds(1);

struct PortOwner {
  // "by the rdmaemu host b (pid 12); stop it with: rdmaemu stop b", "by process 12 (socat)", "by a
  // process of another user (uid 0), ...". Never empty.
  std::string description;
  // How long to go on asking for the port, because this owner is likely to close it. Zero: it
  // stays.
  Duration patience = Duration::zero();
};
PortOwner FindPortOwner(const Registry& registry, const NetAddress& address);

}  // namespace rdmaemu::runtime
