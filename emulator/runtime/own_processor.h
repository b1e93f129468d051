// The processors on which the calling thread may run.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "emulator/runtime/starvation_guard.h"

namespace rdmaemu::runtime {

// Keeps a thread on one processor by its affinity (sched(7)). All functions act on the calling
// thread, which is always the same. If another process changes the affinity meanwhile (taskset(1)),
// that change remains. If the thread gets no time on the processor, or nobody can look after it, it
// is free for kFreeFor (starvation_guard.h).
class OwnProcessor {
 public:
  // Returns the number of processors on which the thread may run without Stay. Returns 0 if it is
  // unknown.
  uint32_t allowed();
  // Returns the other processor, counted from 1, if the thread may run on this one and one other
  // without Stay. Returns 0 otherwise.
  uint32_t Other(uint32_t processor);
  // Keeps the thread on a processor, counted from 1, until the next call. 0: the thread may run
  // wherever it could before. Does nothing if the thread may not run there.
  void Stay(uint32_t processor);
  static constexpr std::chrono::seconds kFreeFor{10};

 private:
  // Returns the affinity without Stay. Forgets `kept_` if another process has changed the affinity.
  std::optional<cpu_set_t> Allowed();

  struct Kept {
    uint32_t processor;
    cpu_set_t before, now;  // the affinity without Stay, and by Stay
  };
  std::optional<Kept> kept_;
  StarvationGuard guard_;
  std::optional<Time> free_until_;
};

}  // namespace rdmaemu::runtime
