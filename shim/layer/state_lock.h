// Guards the state of one user of the layer against other threads, signal handlers and forks.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace rdmaemu::layer {

// A thread owns the state while a StateLock exists. In two cases the lock is false, and the caller
// must not touch the state:
// - A signal handler interrupted a StateLock of its own thread.
// - _Fork(3) or clone(2) created the process, and may have copied the state during a change.
//
// A StateLock must not exist during a call of the library behind. `User` is any type of the user.
template <class User>
class StateLock {
 public:
  // Call it once, in a constructor. Returns false when there is no memory.
  static bool Open() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const word =
        mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED) return false;
    // The kernel clears the word in each child. The handler of fork() sets it again.
    madvise(word, page, MADV_WIPEONFORK);
    is_whole_ = new (word) std::atomic<uint32_t>(1);
    return pthread_atfork(BeforeFork, AfterFork, InChild) == 0;
  }

  StateLock() {
    if (is_inside_ || is_whole_->load(std::memory_order_relaxed) != 1) return;
    is_entered_ = is_inside_ = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    Lock();
  }
  ~StateLock() {
    if (!is_entered_) return;
    Unlock();
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    is_inside_ = false;
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  explicit operator bool() const { return is_entered_; }

 private:
  static void Lock() {
    for (int spins = 0; is_locked_.exchange(true, std::memory_order_acquire);) {
      if (++spins % 64 == 0) sched_yield();
    }
  }
  static void Unlock() { is_locked_.store(false, std::memory_order_release); }
  static void BeforeFork() {
    is_inside_ = true;
    Lock();
  }
  static void AfterFork() {
    Unlock();
    is_inside_ = false;
  }
  static void InChild() {
    is_whole_->store(1);
    AfterFork();
  }

  static inline std::atomic<bool> is_locked_;
  static inline std::atomic<uint32_t>* is_whole_;
  static inline thread_local bool is_inside_;

  bool is_entered_ = false;
};

}  // namespace rdmaemu::layer
