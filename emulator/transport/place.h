// Moves a train's payload to where it belongs, and tells which side's memory was missing when that
// fails: the two ends answer differently.
#pragma once

#include <span>

#include "emulator/base/memory.h"
#include "emulator/transport/core.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

enum class Placement : uint8_t {
  kPlaced,
  kSourceGone,
  kDestinationGone,
  // Its process has ended, and the host will hear of it in a moment (Memory says ESRCH): what came
  // is not answered, as a queue pair that has gone with its process does not answer.
  kDestinationEnded,
};

Placement Place(Core& core, Train& train, const Pieces& into);

// The payload of a SEND goes to its receive, with `before` (a GRH, or nothing) ahead of it; `into`
// is as long as both. A small message may be left beside its completion, which must be the next
// one that the QP's receive queue gets.
Placement PlaceReceived(Core& core, QpContext& context, Train& train,
                        std::span<const std::byte> before, const Pieces& into);

// What has been received is in its place before somebody else looks at the same bytes.
void SettleBefore(Core& core, QpContext& context, const MemoryRange& range);

}  // namespace rdmaemu::transport
