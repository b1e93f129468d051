// Moves the payloads of messages on the program's side. Small payloads are transferred through
// shared memory (emulator/abi/slab.h). The library takes them from program memory when work is
// posted. The library moves them into program memory when a completion is polled. No other file of
// the library does so.
#pragma once

#include <mutex>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

// Copies the payload of the send request at ring index `index` behind its SGEs. Does nothing if
// the payload is too large, or if program memory may not yet hold the bytes to send. Call this
// after the request and its SGEs are complete, before the producer index is published. The caller
// must hold the QP's send lock and have called qp.memory.Begin().
void TakePayload(QueuePair& qp, uint32_t index);

// Places the payload of the completion at ring index `index` in program memory, unless the host has
// done so. Waits while the host places it. Call this before the consumer index moves past the
// completion. The caller must hold the CQ's lock and have called cq.memory.Begin().
void FetchPayload(CompletionQueue& cq, uint32_t index);

// Makes fork() place the payloads of all published completions of a queue in program memory. The
// child may be the process that polls, and gets a copy of that memory. This holds from
// PlaceBeforeFork until ForgetBeforeFork. Call ForgetBeforeFork before the host may free or move
// the queue's memory. A call for an unknown queue, or a second call for a queue, does nothing.
void PlaceBeforeFork(CompletionQueue& cq);
// Places the payloads of all published completions of these queues, or of the queues of one
// context, as the fork handler does. Thread-safe. Needs no lock of a queue.
void PlacePublishedPayloads(const ibv_context* only = nullptr);
void ForgetBeforeFork(CompletionQueue& cq);
// Holds the mutex of these functions, while a list changes that they read (lanes.h).
class LaneListGuard {
 public:
  LaneListGuard();
  // Does not wait. Is false if another thread holds the mutex.
  explicit LaneListGuard(std::try_to_lock_t);
  ~LaneListGuard();
  explicit operator bool() const { return holds_; }
  LaneListGuard(const LaneListGuard&) = delete;
  LaneListGuard& operator=(const LaneListGuard&) = delete;

 private:
  bool holds_;
};
// Calls ForgetBeforeFork for all queues of a context that is being closed.
void ForgetBeforeFork(const ibv_context* context);

}  // namespace rdmaemu::shim
