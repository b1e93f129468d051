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

// Executes `count` requests from slot `index` of the send ring on, at its producer index, if a
// permit covers them. The requests are complete afterwards, with their completions if they have
// some, and must not be posted. Returns false if the host must execute all of them. The caller
// holds the send lock and has called qp.memory.Begin.
bool ExecutePosted(QueuePair& qp, uint32_t index, uint32_t count);

}  // namespace rdmaemu::shim
