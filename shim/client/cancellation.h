// Cancellation of the calling thread (pthread_cancel(3)).
#pragma once

#include <pthread.h>

namespace rdmaemu::client {

// Holds off cancellation of the calling thread. Functions that open, close, read or write files are
// cancellation points. A thread that was cancelled in such a function would keep its locks, and
// lose the event that it has fetched. May be nested.
class CancellationHeld {
 public:
  CancellationHeld() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationHeld() { pthread_setcancelstate(before_, nullptr); }
  CancellationHeld(const CancellationHeld&) = delete;
  CancellationHeld& operator=(const CancellationHeld&) = delete;

  // The state that the destructor restores.
  int before() const { return before_; }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rdmaemu::client
