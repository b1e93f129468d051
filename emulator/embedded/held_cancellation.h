// Holds off cancellation of the calling thread (pthread_cancel(3)) while the thread runs the hosts.
// The hosts call functions that are cancellation points. A cancellation there would leave the hosts
// in an inconsistent state. The thread therefore accepts cancellation only while it sleeps.
#pragma once

#include <pthread.h>

namespace rdmaemu::embedded {

class HeldCancellation {
 public:
  HeldCancellation() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    if (depth_++ == 0) of_program_ = before_;
  }
  ~HeldCancellation() {
    depth_--;
    pthread_setcancelstate(before_, nullptr);
  }
  HeldCancellation(const HeldCancellation&) = delete;
  HeldCancellation& operator=(const HeldCancellation&) = delete;

  // Restores the program's own cancellation state for a sleep.
  class Released {
   public:
    Released() {
      if (depth_ > 0) pthread_setcancelstate(of_program_, nullptr);
    }
    ~Released() {
      if (depth_ > 0) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
  };

 private:
  static inline thread_local int depth_ = 0, of_program_ = PTHREAD_CANCEL_ENABLE;
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rdmaemu::embedded
