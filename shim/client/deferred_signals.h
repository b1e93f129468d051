// Signals of the calling thread during a wait that yields before it sleeps.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace rdmaemu::client {

// Defers the signals of the calling thread, so that they can end a blocking call that does not
// sleep yet. Signals that an instruction of the thread raises are not deferred. While a thread
// defers a signal of the process, another thread may run its handler.
class DeferredSignals {
 public:
  DeferredSignals() {
    sigset_t deferred;
    sigfillset(&deferred);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
      sigdelset(&deferred, fault);
    }
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
