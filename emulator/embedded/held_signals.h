// The program's signals wait while the calling thread runs the hosts: a handler must not find the
// hosts in the midst of something. Faults of the thread's own (SIGSEGV and the like) do not wait.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace rdmaemu::embedded {

class HeldSignals {
 public:
  // `is_needed` false: does nothing.
  explicit HeldSignals(bool is_needed) : is_held_(is_needed) {
    if (!is_held_) return;
    sigset_t held;
    sigfillset(&held);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&held, fault);
    }
    pthread_sigmask(SIG_SETMASK, &held, &before_);
  }
  ~HeldSignals() {
    if (is_held_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // What the thread blocks by itself; nullptr: nothing is held.
  const sigset_t* before() const { return is_held_ ? &before_ : nullptr; }
  // One is pending that `mask` lets through.
  static bool IsAnyPending(const sigset_t& mask) {
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigisemptyset(&pending)) return false;
    for (int signal = 1; signal < NSIG; signal++) {
      if (sigismember(&pending, signal) == 1 && sigismember(&mask, signal) == 0) return true;
    }
    return false;
  }

 private:
  const bool is_held_;
  sigset_t before_;
};

}  // namespace rdmaemu::embedded
