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

// The reason of a thread's wait. Sleep and Wake run without ProcessHost's lock. All other functions
// run under it.
struct WaitsFor {
  // The caller's descriptors. Sleep writes their `revents`.
  std::span<pollfd> fds = {};
  // Signals that are blocked during the sleep. nullptr: the thread's own mask.
  const sigset_t* mask = nullptr;
  // Virtual time must not advance beyond this time before the wait has ended.
  std::optional<Time> virtual_limit = std::nullopt;
  // A condition variable, semaphore or futex of the program that another thread signals.
  const void* lock = nullptr;
  // The thread sleeps on `lock` inside the C library. Hosts can wake it only if `condition` is the
  // same object, by a broadcast.
  bool is_in_libc = false;
  pthread_cond_t* condition = nullptr;
  // The mutex of a condition wait. The caller holds it until the caller sleeps, and takes it again
  // afterwards.
  const pthread_mutex_t* mutex = nullptr;
  // The wait ends by itself after some time of the machine or of the hosts.
  bool has_limit = false;
  // Something other than the hosts and this process's threads may end the wait.
  bool is_foreign = false;
  // The thread belongs to this library and ends no wait of the program.
  bool is_helper = false;
  // Tries to take the thread's object other than `fds`. Returns true if that ends the wait.
  const std::function<bool()>* take = nullptr;
  // The name of the wait in the report of a stall, such as "rdma_get_cm_event".
  const char* what = "a wait";
};

class Sleeper {
 public:
  // Limit of one sleep. A program that closes all descriptors also closes those that wake up its
  // threads.
  static constexpr Duration kLongestSleep = std::chrono::seconds(1);
  // The interval at which a thread without a descriptor checks whether it was woken up.
  static constexpr Duration kLongestSleepUnwoken = std::chrono::milliseconds(1);

  // Returns the calling thread's object. Works also in destructors of the thread's thread-specific
  // data. The object is freed with the thread.
  static Sleeper& OfThread();
  ~Sleeper();

  void Begin(const WaitsFor& what) {
    what_ = what;
    is_roused_ = is_signalled_ = has_expired_ = false;
  }
  // Call this before each Sleep. `forks` counts the forks between the first process and this one. A
  // descriptor from before the last fork would wake up the parent.
  void Prepare(uint32_t forks);
  // Sleeps without the lock. If `wake_fd` is not -1, also sleeps at most until `wake_fd` is
  // readable. Returns 0 or EINTR after kLongestSleep at the latest, and without a descriptor after
  // kLongestSleepUnwoken. A cancellation point.
  int Sleep(const std::optional<Duration>& limit, int wake_fd = -1);
  // Wakes up the thread from another thread. The thread counts as running until its next Prepare.
  // Does nothing for a thread that sleeps inside the C library, because such a thread checks no
  // hosts.
  void Wake();
  // Ends a wait inside the C library, because program time has reached virtual_limit. Does nothing
  // if the wait was signalled before.
  void Expire();
  bool has_expired() const { return has_expired_; }
  // Returns true if the wait was ended but may not have returned.
  bool is_signalled() const { return is_roused_ || is_signalled_; }
  // Records that the lock on which the thread waits was signalled. With `all`, the thread runs.
  // Otherwise it counts as running until one of the waiting threads runs.
  void Signal(bool all) { (all ? is_roused_ : is_signalled_) = true; }
  void ForgetSignal() { is_signalled_ = false; }

  pid_t thread() const { return thread_; }
  // NoteSeen records that the thread has seen the hosts as they were after `changes` changes.
  // NotePoll also records that it has polled since then and found no completion.
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
  // The number of consecutive polls that found no completion.
  uint32_t looks = 0;
  // The time since which the thread only reads clocks.
  std::optional<Time> spins_since;

  const WaitsFor& what() const { return what_; }
  // Returns true if nothing that the thread waits for has happened. Polls its descriptors.
  bool IsIdle() const;
  // Returns true if another thread holds the mutex that a condition wait must take again to end.
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
