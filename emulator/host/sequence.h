// Executes sequences of calls (emulator/abi/sequence.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "emulator/abi/calls.h"
#include "emulator/cm/cma_id.h"
#include "emulator/host/calls/reply.h"

namespace rdmaemu {

struct SequenceCalls {
  // Returns false when the host must not execute another call at once.
  std::function<bool()> may_call;
  // Executes one call. The message includes its header.
  std::function<Reply(CallOp, std::span<const std::byte> message)> call;
  // Returns nullptr when the channel has no such id.
  std::function<const cm::CmaId*(uint32_t channel, uint32_t id)> find_id;
};

// Returns true if the sequence in `body` (hostile) fetches an event, and then only makes queries.
bool FetchesEvent(std::span<const std::byte> body);

// Executes the sequence in `body` (hostile) up to the first call that fails. EINVAL for a malformed
// sequence, of which no call was executed.
Reply RunSequence(std::span<const std::byte> body, const SequenceCalls& calls);

}  // namespace rdmaemu
