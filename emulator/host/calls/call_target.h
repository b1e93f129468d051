// The object that a call acts on, by which a fault rule can select calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

struct CallTarget {
  const Device* device = nullptr;  // null: the call is of none, or its object is not there
  const QueuePair* qp = nullptr;   // null: it is about something else
};

// Of a call that is about a handle or a device (call_table.h). Calls of connection management have
// no target: an id's device can change with each of them. `message`
// is the whole call, header included.
CallTarget TargetOf(Verbs& verbs, GroupId group, uint32_t op, std::span<const std::byte> message);

}  // namespace rdmaemu
