// Moves a train's payload to where it belongs, and tells which side's memory was missing when that
// fails: the two ends answer differently.
#pragma once

#include "emulator/base/memory.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

enum class Placement : uint8_t { kPlaced, kSourceGone, kDestinationGone };

inline Placement Place(Memory& memory, Train& train, const Pieces& into) {
  if (train.is_bytes) {
    return into.Write(memory, train.bytes) ? Placement::kPlaced : Placement::kDestinationGone;
  }
  if (train.pieces.CopyTo(memory, into)) return Placement::kPlaced;
  if (!into.Reachable(memory, /*write=*/true)) return Placement::kDestinationGone;
  train.source_failed = true;
  return Placement::kSourceGone;
}

}  // namespace rdmaemu::transport
