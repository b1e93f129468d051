// Completions that rules delay or hold, between the library and the program. Completions of one
// queue pair and one kind (send or receive) keep their order. Thread-safe. A forked child does not
// inherit its parent's completions.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "shim/layer/faults/ask.h"

namespace rdmaemu::layer::faults {

// The most completions that a process keeps. A further completion is delivered at once, with a note
// on stderr.
inline constexpr size_t kMaxKept = 1024;

// Keeps a completion until the wait of `asked` has ended. With nullptr, keeps it behind an earlier
// completion of its line. Returns false when there is no room.
bool Keep(const ibv_cq* cq, const ibv_wc& completion, Asked* asked);
// Returns whether an earlier completion of the same queue pair and kind is kept.
bool IsBehindKept(const ibv_cq* cq, const ibv_wc& completion);
// Takes completions whose waits have ended, in their order. Returns their number, at most `count`.
int TakeKept(const ibv_cq* cq, int count, ibv_wc* out);
bool HasKept(const ibv_cq* cq);

// A program that has armed the queue waits for an event. The library has already sent this event
// when a completion is kept. AwaitKept therefore waits until the first kept completion is due, but
// only briefly, because other completions may enter the queue. Returns false without waiting when
// none is kept, or the queue is not armed.
void SetArmed(const ibv_cq* cq, bool is_armed);
bool AwaitKept(const ibv_cq* cq);

// Drops the completions of a destroyed completion queue.
void ForgetKept(const ibv_cq* cq);
// Drops the completions of a destroyed queue pair.
void ForgetKept(const ibv_context* context, uint32_t qp_num);

// Lets one thread at a time poll a queue whose completions are watched. Otherwise completions that
// another thread has polled, but not yet kept, would be overtaken. A signal handler that interrupts
// its own thread's turn shares the turn. A forked child ignores the turns of its parent's threads.
// After kMostTurn_ms another thread takes over the turn, because its owner may have left it by
// longjmp(3).
class PollTurn {
 public:
  explicit PollTurn(const ibv_cq* cq);
  ~PollTurn();
  PollTurn(const PollTurn&) = delete;
  PollTurn& operator=(const PollTurn&) = delete;

 private:
  // How long a thread waits for another thread's turn. The requests of a turn take less time.
  static constexpr int64_t kMostTurn_ms = 1000;
  std::atomic<uint64_t>* owner_ = nullptr;
};

}  // namespace rdmaemu::layer::faults
