// The object of a call, by which a fault rule can select calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

struct CallTarget {
  const Device* device = nullptr;  // null: the call has no device, or its object does not exist
  const QueuePair* qp = nullptr;   // null: the call has another object
};

// Returns the target of a call on a handle or a device (call_table.h). Calls of connection
// management have no target, because an id's device can change with each call. `message` is the
// whole call, including the header.
CallTarget TargetOf(Verbs& verbs, GroupId group, uint32_t op, std::span<const std::byte> message);

}  // namespace rdmaemu
