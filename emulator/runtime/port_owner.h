// Who has UDP port 4791 of an address, from /proc, for a message that a person can act on.
#pragma once

#include <string>

#include "emulator/base/net_address.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// "by the rdmaemu host b (pid 12); stop it with `rdmaemu stop b`", "by process 12 (socat)", "by a
// process of another user (uid 0), ...". Never empty.
std::string DescribePortOwner(const Registry& registry, const NetAddress& address);

}  // namespace rdmaemu::runtime
