// Requests that a program executes itself, by a permit of its host (emulator/abi/permit.h).
#pragma once

#include <cstdint>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

// How long a program uses a permit without a request that the host executes. The host ends a
// permit when the other process has ended. A host that is stopped cannot do that, and the system
// may give the pid to another process.
inline constexpr uint64_t kPermitFor_ns = 200'000'000;
// A program that posts the next unsignaled request within this time after one sends a stream. The
// host executes the requests of a stream in batches, which costs less.
inline constexpr uint64_t kStreamGap_ns = 300;

// Executes the request in slot `index` of the send ring, at its producer index, if a permit covers
// it. The request is complete afterwards, with its completion if it has one, and must not be
// posted. Returns false if the host must execute it. The caller holds the send lock and has called
// qp.memory.Begin.
bool ExecutePosted(QueuePair& qp, uint32_t index);

}  // namespace rdmaemu::shim
