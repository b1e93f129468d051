// Completions that rules delay or hold, between the library and the program. Completions of one
// queue pair and one kind (send or receive) keep their order. Thread-safe. A forked child has none
// of its parent's.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "shim/layer/faults/ask.h"

namespace rdmaemu::layer::faults {

// Completions that a process keeps at most. A further one is delivered at once, which is said on
// stderr.
inline constexpr size_t kMaxKept = 1024;

// Keeps a completion until the wait of `asked` has ended, or behind an earlier one (nullptr).
// Returns false when there is no room.
bool Keep(const ibv_cq* cq, const ibv_wc& completion, Asked* asked);
// Returns whether an earlier completion of the same queue pair and kind is kept.
bool IsBehindKept(const ibv_cq* cq, const ibv_wc& completion);
// Takes completions whose waits have ended, in their order. Returns their number, at most `count`.
int TakeKept(const ibv_cq* cq, int count, ibv_wc* out);
bool HasKept(const ibv_cq* cq);

// A program that has armed the queue waits for an event, which the library has already sent when
// a completion is kept. AwaitKept waits until the first of them is due, but not long, because
// others may come into the queue. Returns false without waiting when none is kept, or the queue is
// not armed.
void SetArmed(const ibv_cq* cq, bool is_armed);
bool AwaitKept(const ibv_cq* cq);

// The queue was destroyed.
void ForgetKept(const ibv_cq* cq);
// The queue pair was destroyed.
void ForgetKept(const ibv_context* context, uint32_t qp_num);

// One thread at a time polls a queue whose completions are watched, because completions that
// another thread has taken and not yet kept would be overtaken. A signal handler that interrupts
// its own thread's turn has it too. A thread that left its turn by longjmp(3), and the threads of a
// forked child's parent, lose it.
class PollTurn {
 public:
  explicit PollTurn(const ibv_cq* cq);
  ~PollTurn();
  PollTurn(const PollTurn&) = delete;
  PollTurn& operator=(const PollTurn&) = delete;

 private:
  // Another thread's turn ends after this time, in ms: its questions to the server take less.
  static constexpr int64_t kMostTurn_ms = 1000;
  std::atomic<uint64_t>* owner_ = nullptr;
};

}  // namespace rdmaemu::layer::faults
