// A thread of the program that waits while the embedded hosts run: its wait, and how to wake it.
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
#include "emulator/runtime/guest_fd.h"

namespace rdmaemu::embedded {

// The reason of a thread's wait. All functions except Sleep and Wake run under ProcessHost's lock.
struct WaitsFor {
  // The caller's descriptors; `revents` is written.
  std::span<pollfd> fds = {};
  // Signals blocked during the sleep. nullptr: those of the thread.
  const sigset_t* mask = nullptr;
  // Virtual time must not pass this moment before the wait has ended.
  std::optional<Time> virtual_limit = std::nullopt;
  // A condition variable, semaphore or futex of the program that another thread signals.
  const void* lock = nullptr;
  // The thread sleeps on `lock` inside the C library. Hosts can wake it only if `condition` is the
  // same object, by a broadcast.
  bool is_in_libc = false;
  pthread_cond_t* condition = nullptr;
  // The mutex that the caller of a condition wait holds until it sleeps, and takes back afterwards.
  const pthread_mutex_t* mutex = nullptr;
  // The wait ends by itself after some time, the machine's or the hosts'.
  bool has_limit = false;
  // Something other than the hosts and this process's threads may end the wait.
  bool is_foreign = false;
  // The thread is one of this library that ends no wait of the program.
  bool is_helper = false;
  // Tries to take what the thread waits for besides `fds`. Returns true if that ends the wait.
  const std::function<bool()>* take = nullptr;
  // The name of the wait in the report of a stall, such as "rdma_get_cm_event".
  const char* what = "a wait";
};

class Sleeper {
 public:
  // A program that closes all descriptors closes those that wake its threads, too.
  static constexpr Duration kLongestSleep = std::chrono::seconds(1);
  // A thread for which there is no descriptor looks so often whether it was woken.
  static constexpr Duration kLongestSleepUnwoken = std::chrono::milliseconds(1);

  // Returns the calling thread's object, even in destructors of its thread-specific data. It is
  // freed with the thread.
  static Sleeper& OfThread();
  ~Sleeper();

  void Begin(const WaitsFor& what) {
    what_ = what;
    is_roused_ = is_signalled_ = has_expired_ = false;
  }
  // Call this before each Sleep. `forks` counts the forks between the first process and this one,
  // because a descriptor of the parent would wake the parent.
  void Prepare(uint32_t forks);
  // Sleeps without the lock, also until `wake_fd` is readable unless it is -1. Returns 0 or EINTR,
  // after kLongestSleep at the latest, and without a descriptor after kLongestSleepUnwoken. A
  // cancellation point.
  int Sleep(const std::optional<Duration>& limit, int wake_fd = -1);
  // Wakes the thread from another thread. It counts as running until its next Prepare. Does nothing
  // for a thread that sleeps inside the C library, which checks no hosts.
  void Wake();
  // Ends a wait inside the C library, because program time has reached virtual_limit. Does nothing
  // if a signal came before.
  void Expire();
  bool has_expired() const { return has_expired_; }
  // Returns true if the wait was ended but may not have returned.
  bool is_signalled() const { return is_roused_ || is_signalled_; }
  // Records a signal of the lock that the thread waits on. With `all`, the thread runs. Otherwise
  // it counts as running until one of the waiters runs.
  void Signal(bool all) { (all ? is_roused_ : is_signalled_) = true; }
  void ForgetSignal() { is_signalled_ = false; }

  pid_t thread() const { return thread_; }
  // The thread has seen the hosts as they were after `changes` changes. NotePoll: it has polled
  // since then and found nothing.
  void NoteSeen(uint64_t changes) {
    seen_ = changes;
    before_poll_.reset();
  }
  void NotePoll(uint64_t changes) {
    before_poll_ = seen_;
    seen_ = changes;
  }
  // Returns the number of changes that the thread's last poll or call has certainly seen.
  std::optional<uint64_t> seen() const { return before_poll_ ? before_poll_ : seen_; }
  // The number of polls in a row that found nothing.
  uint32_t looks = 0;
  // Since when the thread only reads clocks.
  std::optional<Time> spins_since;

  const WaitsFor& what() const { return what_; }
  // Returns true if nothing that the thread waits for has happened. Polls its descriptors.
  bool IsIdle() const;
  // Returns true if another thread holds the mutex that a condition wait must take back to end.
  bool IsHeldUp() const;

 private:
  WaitsFor what_;
  bool is_roused_ = false, is_signalled_ = false, has_expired_ = false;
  pid_t thread_ = gettid();
  std::optional<uint64_t> seen_, before_poll_;
  runtime::GuestFd wake_;
  uint32_t forks_ = 0;
  std::vector<pollfd> sleeping_on_;
};

}  // namespace rdmaemu::embedded
