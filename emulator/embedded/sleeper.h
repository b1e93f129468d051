// A thread of the program that waits while the embedded hosts run: what it waits for, and how it is
// woken.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::embedded {

// What a thread waits for. Everything but Sleep and Wake is called under ProcessHost's lock.
struct WaitsFor {
  // Of the caller; `revents` is written.
  std::span<pollfd> fds = {};
  // Signals that are blocked during the sleep; nullptr: as the thread has them.
  const sigset_t* mask = nullptr;
  // Virtual time must not pass this moment before the wait has ended.
  std::optional<Time> virtual_limit = std::nullopt;
  // A condition variable, semaphore or futex of the program, which another thread signals.
  const void* lock = nullptr;
  // The thread sleeps inside the C library, on `lock`; hosts can wake it only where `condition` is
  // the same, and then by a broadcast.
  bool is_in_libc = false;
  pthread_cond_t* condition = nullptr;
  // The mutex that the caller of a condition wait has until it sleeps.
  const pthread_mutex_t* mutex = nullptr;
  // Something other than the hosts and this process's threads may end the wait.
  bool is_foreign = false;
  // Takes what the thread waits for, besides `fds`. True: taken, the wait ends.
  const std::function<bool()>* take = nullptr;
  // What the thread does, for the report of a stall: "rdma_get_cm_event".
  const char* what = "a wait";
};

class Sleeper {
 public:
  // The calling thread's, also in the destructors of its thread-specific data. Freed with the
  // thread.
  static Sleeper& OfThread();
  ~Sleeper();

  void Begin(const WaitsFor& what) {
    what_ = what;
    is_roused_ = is_signalled_ = has_expired_ = false;
  }
  // Before each Sleep; `forks` counts the forks between the first process and this one, because a
  // parent's descriptor wakes the parent. False: EMFILE.
  bool Prepare(uint32_t forks);
  // Outside the lock; a cancellation point. Until `wake_fd` is readable, too, where it is not -1. 0
  // or EINTR.
  int Sleep(const std::optional<Duration>& limit, int wake_fd = -1);
  // By another thread. Until its next Prepare the thread counts as running. Nothing for a thread
  // that sleeps inside the C library: it looks at nothing of the hosts.
  void Wake();
  // The hosts' time, which is the program's, has reached virtual_limit: a wait inside the C library
  // ends.
  void Expire();
  bool has_expired() const { return has_expired_; }
  bool is_signalled() const { return is_roused_ || is_signalled_; }
  // The lock that the thread waits on was signalled. For `all` waiters: the thread runs; for one of
  // them: it counts as running until one has.
  void Signal(bool all) { (all ? is_roused_ : is_signalled_) = true; }
  void ForgetSignal() { is_signalled_ = false; }

  pid_t thread() const { return thread_; }
  // How often in a row the thread has looked and found nothing.
  uint32_t looks = 0;
  // Since when it does nothing but reading clocks.
  std::optional<Time> spins_since;

  const WaitsFor& what() const { return what_; }
  // Nothing that it waits for has happened. Looks at its descriptors.
  bool IsIdle() const;

 private:
  WaitsFor what_;
  bool is_roused_ = false, is_signalled_ = false, has_expired_ = false;
  pid_t thread_ = gettid();
  runtime::UniqueFd wake_;
  uint32_t forks_ = 0;
  std::vector<pollfd> sleeping_on_;
};

}  // namespace rdmaemu::embedded
