// The processors on which the calling thread may run.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>

namespace rdmaemu::runtime {

// Keeps a thread on one processor by its affinity (sched(7)). All functions act on the calling
// thread. If another process changes the affinity meanwhile (taskset(1)), that change remains.
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

 private:
  // Returns the affinity without Stay. Forgets `kept_` if another process has changed the affinity.
  std::optional<cpu_set_t> Allowed();

  struct Kept {
    uint32_t processor;
    cpu_set_t before, now;  // the affinity without Stay, and by Stay
  };
  std::optional<Kept> kept_;
};

}  // namespace rdmaemu::runtime
