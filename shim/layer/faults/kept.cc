#include "shim/layer/faults/kept.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/layer/originals.h"

namespace rdmaemu::layer::faults {
namespace {

struct Kept {
  const ibv_cq* cq;  // nullptr: the entry is free
  ibv_wc completion;
  int wait;  // becomes readable at the end of the wait; -1: it only waits behind another completion
  uint64_t order;  // of keeping
  char rule[sizeof AnswerOut::rule];
};

// One lock for all queues. A thread holds it for a few memory accesses only.
class Lock {
 public:
  Lock() {
    while (g_taken.exchange(true, std::memory_order_acquire)) sched_yield();
    const pid_t process = getpid();
    if (g_process == process) return;
    // In a forked child, the waits belong to the parent.
    if (g_process != 0) {
      for (Kept& each : g_kept) Free(each);
    }
    g_process = process;
  }
  ~Lock() { g_taken.store(false, std::memory_order_release); }

  static void Free(Kept& kept) {
    if (kept.cq == nullptr) return;
    if (kept.wait >= 0) close(kept.wait);
    kept.cq = nullptr;
    g_count--;
  }

  static inline Kept g_kept[kMaxKept];
  static inline std::atomic<size_t> g_count;
  static inline uint64_t g_order;

 private:
  static inline std::atomic<bool> g_taken;
  static inline pid_t g_process;
};

struct Armed {
  std::atomic<bool> is_armed;
  std::atomic<uint64_t> poller;  // process and thread (PollTurn); 0: none
};
using ArmedQueues = Originals<Armed, Armed>;

// A failed completion has no valid opcode, so it counts as both kinds.
bool IsSameLine(const ibv_wc& one, const ibv_wc& other) {
  if (one.qp_num != other.qp_num) return false;
  if (one.status != IBV_WC_SUCCESS || other.status != IBV_WC_SUCCESS) return true;
  return ((one.opcode ^ other.opcode) & IBV_WC_RECV) == 0;
}

bool IsOver(const Kept& kept) {
  if (kept.wait < 0) return true;
  pollfd reply{kept.wait, POLLIN, 0};
  const int error = errno;
  const bool is_over = poll(&reply, 1, 0) > 0;
  errno = error;
  return is_over;
}

// Returns the oldest kept completion of the queue that is due: its own wait and those before it in
// its line are over. nullptr: none is due.
Kept* FindDue(const ibv_cq* cq) {
  Kept* due = nullptr;
  for (Kept& each : Lock::g_kept) {
    if (each.cq != cq || (due != nullptr && due->order < each.order) || !IsOver(each)) continue;
    bool is_behind = false;
    for (const Kept& other : Lock::g_kept) {
      is_behind |= other.cq == cq && other.order < each.order &&
                   IsSameLine(other.completion, each.completion);
    }
    if (!is_behind) due = &each;
  }
  return due;
}

// How long a poll waits for kept completions before it checks the queue for new ones.
constexpr int kNextPoll_ms = 1;

void SayFull() {
  static std::atomic<bool> is_said;
  if (is_said.exchange(true)) return;
  dprintf(STDERR_FILENO,
          "rdmaemu: more than %zu completions are delayed or held; further ones are delivered at"
          " once\n",
          kMaxKept);
}

}  // namespace

bool Keep(const ibv_cq* cq, const ibv_wc& completion, Asked* asked) {
  const Lock lock;
  for (Kept& each : Lock::g_kept) {
    if (each.cq != nullptr) continue;
    each = {cq, completion, -1, ++Lock::g_order, {}};
    if (asked != nullptr) {
      each.wait = asked->TakeWait();
      memcpy(each.rule, asked->answer().rule, sizeof each.rule);
    }
    Lock::g_count++;
    return true;
  }
  SayFull();
  return false;
}

bool IsBehindKept(const ibv_cq* cq, const ibv_wc& completion) {
  if (Lock::g_count == 0) return false;
  const Lock lock;
  for (const Kept& each : Lock::g_kept) {
    if (each.cq == cq && IsSameLine(each.completion, completion)) return true;
  }
  return false;
}

int TakeKept(const ibv_cq* cq, int count, ibv_wc* out) {
  if (Lock::g_count == 0) return 0;
  const Lock lock;
  int taken = 0;
  for (Kept* due; taken < count && (due = FindDue(cq)) != nullptr; taken++) {
    out[taken] = due->completion;
    if (due->rule[0] != '\0') {
      rdmaemu_layer_mark_injected(due->rule, Injected::kLine, static_cast<uint32_t>(taken));
    }
    Lock::Free(*due);
  }
  return taken;
}

bool HasKept(const ibv_cq* cq) {
  if (Lock::g_count == 0) return false;
  const Lock lock;
  for (const Kept& each : Lock::g_kept) {
    if (each.cq == cq) return true;
  }
  return false;
}

void SetArmed(const ibv_cq* cq, bool is_armed) {
  Armed* const state = is_armed ? ArmedQueues::FindOrMake(cq) : ArmedQueues::Find(cq);
  if (state != nullptr) state->is_armed = is_armed;
}

bool AwaitKept(const ibv_cq* cq) {
  const Armed* const state = ArmedQueues::Find(cq);
  if (state == nullptr || !state->is_armed || Lock::g_count == 0) return false;
  pollfd waits[kMaxKept];
  nfds_t count = 0;
  {
    const Lock lock;
    if (FindDue(cq) != nullptr) return true;
    for (const Kept& each : Lock::g_kept) {
      if (each.cq == cq && each.wait >= 0) waits[count++] = {each.wait, POLLIN, 0};
    }
  }
  if (count == 0) return false;
  const int error = errno;
  (void)poll(waits, count, kNextPoll_ms);
  errno = error;
  return true;
}

void ForgetKept(const ibv_cq* cq) {
  SetArmed(cq, false);
  if (Lock::g_count == 0) return;
  const Lock lock;
  for (Kept& each : Lock::g_kept) {
    if (each.cq == cq) Lock::Free(each);
  }
}

void ForgetKept(const ibv_context* context, uint32_t qp_num) {
  if (Lock::g_count == 0) return;
  const Lock lock;
  for (Kept& each : Lock::g_kept) {
    if (each.cq == nullptr || each.cq->context != context) continue;
    if (each.completion.qp_num == qp_num) Lock::Free(each);
  }
}

PollTurn::PollTurn(const ibv_cq* cq) {
  Armed* const state = ArmedQueues::FindOrMake(cq);
  if (state == nullptr) return;
  const uint64_t process = uint64_t{static_cast<uint32_t>(getpid())} << 32;
  const uint64_t self = process | static_cast<uint32_t>(gettid());
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (;;) {
    uint64_t owner = state->poller;
    if (owner == self) return;  // this call interrupts the call that has the turn
    const bool is_free = owner == 0 || (owner >> 32 << 32) != process;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t waited_ms =
        (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1'000'000;
    if ((is_free || waited_ms > kMostTurn_ms) &&
        state->poller.compare_exchange_strong(owner, self)) {
      owner_ = &state->poller;
      return;
    }
    sched_yield();
  }
}

PollTurn::~PollTurn() {
  if (owner_ != nullptr) *owner_ = 0;
}

}  // namespace rdmaemu::layer::faults
