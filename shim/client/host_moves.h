// Moves a host that waits for a processor to the processor of a thread that polls in vain
// (emulator/abi/host_move.h).
#pragma once

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "emulator/abi/ring.h"
#include "shim/client/machine_clock.h"

namespace rdmaemu::client {

// Counts the vain yields of one thread while its host waits for another processor. Not thread-safe:
// one for each thread.
class VainYields {
 public:
  // These yields take longer than a program that shares the host's processor usually needs for its
  // next poll.
  static constexpr uint32_t kBeforeMove = 12;

  // Call this before each yield, on `processor`. Returns true if the host should be moved.
  bool Count(DoorbellPage& page, uint32_t processor) {
    if (!IsHostWaiting(page, processor)) {
      yields_ = 0;
      return false;
    }
    if (++yields_ < kBeforeMove) return false;
    yields_ = 0;
    return true;
  }

 private:
  static bool IsHostWaiting(DoorbellPage& page, uint32_t processor) {
    return HasWaitingDoorbells(page) && !IsTurnHere(page.turn, processor) && !IsHostAsleep(page) &&
           MayMoveHost(page.move);
  }

  uint32_t yields_ = 0;
};

// The affinity of the process `host`.
class HostAffinity {
 public:
  explicit HostAffinity(pid_t host) : host_(host) {}

  // Returns false if the process does not exist, or is inaccessible.
  bool Get(cpu_set_t& set) const {
    CPU_ZERO(&set);  // the kernel may write less
    return MachineSyscall()(SYS_sched_getaffinity, host_, sizeof set, &set) > 0;
  }
  bool Set(const cpu_set_t& set) const {
    return MachineSyscall()(SYS_sched_setaffinity, host_, sizeof set, &set) == 0;
  }

 private:
  pid_t host_;
};

// Moves a host to `processor`. Does nothing if another thread moves it, or unless the host may run
// on this processor and one other. Returns false if this process cannot change the affinity.
template <class Affinity>
bool MoveHost(HostMove& move, uint32_t processor, const Affinity& affinity) {
  if (!BeginHostMove(move, processor)) return true;
  cpu_set_t before, here, now;
  CPU_ZERO(&here);
  CPU_SET(processor, &here);
  bool is_possible = affinity.Get(before);
  if (is_possible && CPU_COUNT(&before) == 2 && CPU_ISSET(processor, &before)) {
    is_possible = affinity.Set(here);
    if (is_possible) HasMovedHost(move, processor);
    // Another process may have changed the affinity meanwhile (taskset(1)).
    if (is_possible && affinity.Get(now) && CPU_EQUAL(&now, &here)) affinity.Set(before);
  }
  EndHostMove(move, processor);
  return is_possible;
}

// As MoveHost, for the process `host`. Returns false in a sandbox, too. May change errno.
inline bool MoveHostTo(HostMove& move, uint32_t processor, pid_t host) {
  if (host <= 0 || processor >= CPU_SETSIZE) return false;
  // A filter may end the process at a system call that it does not know.
  if (MachineSyscall()(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) != 0) return false;
  return MoveHost(move, processor, HostAffinity(host));
}

}  // namespace rdmaemu::client
