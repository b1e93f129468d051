// What a call is about, as far as a fault rule can ask for it, and what it ends.
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

// Of a verbs call, whose struct begins with the handle that it is about, or of kOpenDevice. Calls
// of connection management have no target: an id's device can change with each of them. `message`
// is the whole call, header included.
CallTarget TargetOf(Verbs& verbs, GroupId group, uint32_t op, std::span<const std::byte> message);

// Calls that count completions: the device must have completed all that it can.
bool CountsCompletions(uint32_t op);

// Calls after which what was posted may lack something that it needs: its queue pair, or the state
// to send in, an address handle, memory, the device.
bool EndsWhatPostsNeed(uint32_t op);

// Calls after which queue pairs, contexts or what has asynchronous events may be no more.
bool EndsObjects(uint32_t op);

}  // namespace rdmaemu
