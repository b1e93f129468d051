// Signals of the calling thread in sections that a handler must not interrupt.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace rdmaemu::client {

// Signals that end a program whose host does not answer.
inline constexpr std::initializer_list<int> kEndingSignals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

// Defers the signals of the calling thread until its end. Does not defer those that an instruction
// of the thread raises, and those in `passing`. While a thread defers a signal of the process,
// another thread may run its handler.
class DeferredSignals {
 public:
  explicit DeferredSignals(std::initializer_list<int> passing = {}) {
    sigset_t deferred;
    sigfillset(&deferred);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      sigdelset(&deferred, fault);
    }
    for (const int number : passing) sigdelset(&deferred, number);
    pthread_sigmask(SIG_BLOCK, &deferred, &before_);
  }
  ~DeferredSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

  // Returns true if a signal has arrived whose handler makes read(2) fail with EINTR: the handler
  // was installed without SA_RESTART. The destructor runs it.
  bool HasInterrupt() const {
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigisemptyset(&pending)) return false;
    for (int number = 1; number < NSIG; number++) {
      if (sigismember(&pending, number) == 1 && sigismember(&before_, number) == 0 &&
          Interrupts(number)) {
        return true;
      }
    }
    return false;
  }

 private:
  static bool Interrupts(int number) {
    struct sigaction action;
    return sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
           action.sa_handler != SIG_IGN && (action.sa_flags & SA_RESTART) == 0;
  }

  sigset_t before_;
};

}  // namespace rdmaemu::client
