// The embedded hosts of a process, which its threads share under one lock. A thread that waits for
// another thread sleeps without the lock. Every call that may change anything wakes up such
// threads. Each thread is on one host, as in a network namespace, and creates new objects there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/embedded/domain_time.h"
#include "emulator/embedded/embedded_hosts.h"
#include "emulator/embedded/held_signals.h"
#include "emulator/embedded/processes.h"
#include "emulator/embedded/program_clock.h"
#include "emulator/embedded/program_timers.h"
#include "emulator/embedded/sleeper.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::embedded {

// The limit of rdmaemu.h's time-outs: one day.
inline constexpr uint64_t kMaxWait_ms = 86'400'000;

// A mutex. A thread that blocks on it waits as this library and not as the program.
class HostsMutex {
 public:
  void lock();
  void unlock();
  // Unlocks the mutex in a forked child. The mutex's owner may be a thread of the parent.
  void Reset();
  // Returns true if the calling thread has the mutex.
  static bool IsMine();
  // Returns true if another thread waits for the mutex.
  bool IsAwaited() const { return waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

class ProcessHost {
 public:
  // Returns the one instance. The instance is never destroyed, because threads may use it when the
  // program ends.
  static ProcessHost& Get();

  // Makes the first host the host of this process's libibverbs. A Refusal holds an errno and a
  // message.
  struct Refusal {
    int error;
    std::string message;
  };
  tl::expected<void, Refusal> Open(const EmbeddedOptions& options);
  bool Close();  // closes all hosts; false: no host is open
  // Adds a host. Fails with ENOENT if there is no first host.
  tl::expected<void, Refusal> Add(const EmbeddedOptions& options);

  bool IsOpen() {
    const std::lock_guard lock(mutex_);
    return hosts_ != nullptr;
  }
  // Calls `use` with the hosts under the lock, then wakes up waiting threads. Returns ENOENT
  // without hosts.
  template <class Use>
  int With(Use&& use) {
    const HeldSignals held(ProgramClock::IsOfHosts());
    const std::lock_guard lock(mutex_);
    if (hosts_ == nullptr) return ENOENT;
    EndSpin();
    const int error = use(*hosts_);
    WakeWaiters();
    Sleeper::OfThread().NoteSeen(changes_);
    return error;
  }

  // Runs the hosts until `holds` returns true. Calls `holds` under the lock. Returns 0 when `holds`
  // returned true, and ETIMEDOUT after `machine_limit` of the machine's time. Returns EDEADLK if
  // nothing more can happen, and EIO without hosts.
  int WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds, Duration machine_limit);

  // Runs the hosts until they have done something since the thread's last call or poll. Returns
  // ENOENT without hosts, else as WaitUntil.
  int WaitForWork(Duration machine_limit);

  // Returns false if there are no hosts that a wait must run.
  static bool HasHosts() { return has_hosts_.load(std::memory_order_relaxed); }
  enum class WaitEnd { kReady, kTimedOut, kInterrupted, kDeadlock, kNoHosts };
  // Runs the hosts until one of `fds` is ready (poll(2)), `limit` has passed or a signal arrives.
  // `limit` is in the machine's time. Virtual time does not advance beyond `limit`, and advances
  // exactly to it when the wait times out. kDeadlock: nothing more can happen, and the wait is not
  // foreign. A cancellation point.
  WaitEnd DriveWait(const WaitsFor& what, std::optional<Duration> limit);
  // Does the work that is ready. `found_nothing`: the program polled before this call and found no
  // completion. Returns false if there are no hosts.
  bool Look(bool found_nothing);

  // Prepares a wait of the calling thread on a lock of the C library, from which hosts cannot wake
  // it up. First runs the hosts while no other thread has work. The caller must call EndLockWait
  // afterwards.
  struct LockWait {
    std::optional<Duration> machine;  // time after which the caller must run the hosts again
    bool has_expired;  // the hosts' time, which is also the program's, is at the limit
  };
  // `goes_on`: this is the next piece of the same wait. Do not call EndLockWait between two pieces.
  LockWait BeginLockWait(const WaitsFor& what, std::optional<Duration> limit, bool goes_on = false);
  // Returns true if the lock was signalled since the wait's first BeginLockWait.
  bool IsLockSignalled();
  // Returns true if the wait ended because the program's time reached its limit.
  bool EndLockWait(bool has_timed_out);
  // Marks one thread that waits on `lock`, or with `all` each of them, as having work.
  void RouseWaitersOf(const void* lock, bool all);
  // Wakes up the threads that take `lock` themselves (WaitsFor::take), because `lock` is free now.
  void WakeTakersOf(const void* lock);

  // Calls `use` under the lock, with signals blocked, because a timer may expire when it is set.
  // Returns -1 and ENOSYS unless the hosts' time is the program's time.
  int WithTimers(const std::function<int(ProgramTimers&, Time now)>& use);
  // Handles a thread that only reads clocks. Such a thread waits for the program's time, so this
  // advances time by a step.
  void SpinOnClock();

  // Makes the time of this process's host processes the program's time, if the environment requests
  // this (DomainTime::kVariable). Runs before main.
  void JoinTimeOfHosts();
  void LeaveTimeOfHosts();
  // Records that a thread of the program runs. The thread reads a clock that other processes may
  // have advanced.
  void Resume();
  // Shows the current time to the program, whose process may have been stopped meanwhile.
  void LookAtTimeAgain();

  // Returns the number of the host that the calling thread is on. This is the first host until the
  // thread enters another. Call this under the lock, in With.
  uint32_t entered() const;
  void Enter(uint32_t number) const;

 private:
  friend class Sleeper;
  class Registration;
  class WaitLimit;
  // A loop that reads a clock advances a shared time by this much in one step.
  static constexpr Duration kSpinStep = std::chrono::milliseconds(1);
  // A thread that waits inside the C library may miss a wake-up. Such a thread therefore checks the
  // hosts at this interval.
  static constexpr Duration kLockLookAgain = std::chrono::milliseconds(1);
  // A wait that nothing can end is reported after this much of the machine's time.
  static constexpr Duration kReportStuckAfter = std::chrono::seconds(1);
  // The interval at which a waiting thread checks whether the other threads still exist.
  static constexpr Duration kThreadsLookAgain = std::chrono::milliseconds(100);
  // A child process that has run within this time may end a wait that this library does not see.
  static constexpr Duration kChildRuns = std::chrono::seconds(1);
  // The interval at which a thread checks for waits that this library does not see, while a timer
  // is armed.
  static constexpr Duration kUnseenLookAgain = std::chrono::milliseconds(2);
  // The number of waits inside the C library that check at the rate of kLockLookAgain. More waits
  // check less often.
  static constexpr size_t kLockLooksAtOnce = 8;

  static int Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                  uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  static void Ring();
  static int Wait(int counter_fd);
  static void Idle();
  static const rdmaemu_embedded_host kFunctions;

  int DoCall(CallBuffers& call);
  // Resets this object in a forked child. The child has none of the parent's threads, so nobody
  // continues their waits. The resources of the hosts (segments, counters, files) remain the
  // parent's.
  static void AfterForkInChild();
  // Handlers around a fork in the time of host processes. In the parent, fork(2) returns after the
  // child has become a member.
  static void BeforeFork();
  static void AfterForkInParent();
  // Waits until fault rules release the reply. Returns EDEADLK if nothing can release the reply.
  int AwaitReply(std::unique_lock<HostsMutex>& lock, uint32_t number, CallBuffers& call,
                 const sigset_t* mask);
  int WaitFor(int counter_fd);
  void WakeWaiters();
  void Forget(Sleeper& sleeper);
  void ForgetSignals(const Sleeper& woken);
  // Wakes up threads after time has advanced or a timer was set.
  void AfterMove();
  // Returns true if every other thread of the process waits for an event that has not happened.
  bool IsAlone();
  // Does the same in program time, in which any sleep in the kernel is a wait.
  bool DoOthersWait();
  bool IsInProgramTime() const { return driven_ != nullptr && driven_->is_program_time(); }
  // Handles a poll that found no completion, in program time.
  void Spin();
  // Ends the calling thread's series of empty polls or clock reads.
  void EndSpin();
  // In program time: returns how long a thread sleeps before it checks the other threads again.
  static Duration LookAgain(int looks);
  // In program time, one waiting thread at a time checks whether the other threads wait. This is
  // the thread that began to wait last, or one that takes over. Returns true if the calling thread
  // is the one. With `begins`, the calling thread's wait begins. Otherwise the calling thread takes
  // over if no thread has checked for a while.
  bool TakesLook(bool begins);
  // Makes another thread take over the checks of `sleeper`, whose wait ends.
  void PassOnLook(const Sleeper& sleeper);
  // The body of the thread that StartTimerDriver starts, for the opening with this number.
  void DriveUnseenWaits(uint64_t opening);
  // Starts a thread that advances program time to the program's timers. The thread acts while no
  // thread is in a wait that this library sees, for example while all are in pause(2). Each opening
  // starts one such thread.
  void StartTimerDriver();
  // Reports that time has not advanced for the duration `stands` because a thread runs.
  void ReportBusyThread(Duration stands);
  // Returns the first time-out of all waits.
  std::optional<Time> FirstLimit() const;
  // Returns true if a thread waits for the hosts and nothing can end any wait. No wait has a
  // time-out, and none can be ended from outside the process.
  bool IsStalled() const;
  // Returns true if every thread waits without a time-out for locks and descriptors that only this
  // process makes ready. Such a wait must not fail, because a signal handler may end it. Call this
  // when no work is due on any host.
  bool IsStuck();
  std::optional<Time> VirtualLimit(const std::optional<Duration>& limit) const;
  void ReportStall();
  // Starts a thread that runs the hosts for waits that this library does not see.
  void StartDriver();
  // Returns true if the hosts of the opening with this number are still open.
  bool IsStill(uint64_t opening) const { return driven_ != nullptr && opening == openings_; }

  HostsMutex mutex_;
  std::unique_ptr<EmbeddedHosts> hosts_;
  std::unique_ptr<DomainTime> domain_time_;  // in a program of `rdmaemu run --program-time`
  DrivenTime* driven_ = nullptr;             // hosts_ or domain_time_
  Sleeper* driver_ = nullptr;  // the thread that also waits for other members of the time
  uint64_t openings_ = 0;
  uint64_t changes_ = 0;  // counts events that may end a wait
  static std::atomic<bool> has_hosts_;
  std::vector<Sleeper*> sleepers_;   // the threads that wait
  std::vector<Sleeper*> spinning_;   // threads that poll or read clocks in a loop
  const Sleeper* looker_ = nullptr;  // see TakesLook
  Time looked_at_{};                 // when it last checked, in the machine's time
  bool has_timer_driver_ = false;    // in this opening
  ProgramTimers timers_;
  bool has_signalled_ = false;  // a timer sent a signal whose thread may not run yet
  bool has_reported_stall_ = false, has_reported_busy_ = false;  // of this opening
  // The state that a forked child inherits from its parent. The child cannot destroy this state, so
  // it keeps the state reachable for a leak checker.
  struct OfParent {
    EmbeddedHosts* hosts;
    DomainTime* domain_time;
    std::vector<Sleeper*> sleepers;
    OfParent* of_its_parent;
  };
  OfParent* of_parent_ = nullptr;
  uint32_t forks_ = 0;  // number of forks between the first process and this one
};

// Puts the calling thread on the host with this number while the object exists. Takes no lock.
class ThreadOnHost {
 public:
  explicit ThreadOnHost(uint32_t number);
  ~ThreadOnHost();
  ThreadOnHost(const ThreadOnHost&) = delete;
  ThreadOnHost& operator=(const ThreadOnHost&) = delete;

 private:
  uint32_t before_ = 0;
};

}  // namespace rdmaemu::embedded
