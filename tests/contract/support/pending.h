// Queued events, for a test that acts between the arrival of an event and its fetch.
#pragma once

#include <poll.h>

#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {

inline bool IsReadableStep(State& state, const int& limit_ms) {
  pollfd waiting{state.channel->fd, POLLIN, 0};
  return poll(&waiting, 1, limit_ms) == 1;
}

// Waits until the side has an event, and does not fetch the event. Returns false when none arrived.
inline bool HasEvent(Side& side, int limit_ms = kPatience_ms) {
  return side.worker().Call(&IsReadableStep, limit_ms);
}

}  // namespace rdma_contract
