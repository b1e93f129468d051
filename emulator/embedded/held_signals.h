// Blocks the program's signals while the calling thread runs the hosts. A signal handler would find
// the hosts in an inconsistent state. Signals for faults of the thread (SIGSEGV and the like) are
// not blocked.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

#include "emulator/embedded/held_cancellation.h"

namespace rdmaemu::embedded {

class HeldSignals {
 public:
  // If `is_needed` is false, does nothing.
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

  // Returns the thread's own signal mask, or nullptr if nothing is blocked.
  const sigset_t* before() const { return is_held_ ? &before_ : nullptr; }
  // Returns true if a signal is pending that `mask` does not block.
  static bool IsAnyPending(const sigset_t& mask) {
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigisemptyset(&pending)) return false;
    for (int signal = 1; signal < NSIG; signal++) {
      if (sigismember(&pending, signal) == 1 && sigismember(&mask, signal) == 0) return true;
    }
    return false;
  }

 private:
  const HeldCancellation cancellation_;
  const bool is_held_;
  sigset_t before_;
};

}  // namespace rdmaemu::embedded
