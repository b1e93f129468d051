// The embedded hosts of a process, which its threads share under one lock. A thread that waits for
// another thread sleeps without the lock, and every call that may change something wakes it. Each
// thread is on one host, as in a network namespace: it creates new objects there.
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

// rdmaemu.h limits its time-outs to this: a day.
inline constexpr uint64_t kMaxWait_ms = 86'400'000;

// A mutex for which a thread waits as this library, not as the program.
class HostsMutex {
 public:
  void lock();
  void unlock();
  // Unlocks the mutex in a forked child, where the owner may be a thread that does not exist.
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
  // Returns the one instance. It is never destroyed, because threads may use it when the program
  // ends.
  static ProcessHost& Get();

  // Makes the first host the host of this process's libibverbs. A refusal has an errno and a
  // message.
  struct Refusal {
    int error;
    std::string message;
  };
  tl::expected<void, Refusal> Open(const EmbeddedOptions& options);
  bool Close();  // closes all hosts; false: there are none
  // Adds a host. Fails with ENOENT if there is no first host.
  tl::expected<void, Refusal> Add(const EmbeddedOptions& options);

  bool IsOpen() {
    const std::lock_guard lock(mutex_);
    return hosts_ != nullptr;
  }
  // Calls `use` with the hosts under the lock, then wakes waiting threads. Returns ENOENT without
  // hosts.
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

  // Drives the hosts until `holds`, which runs under the lock, returns true. Returns 0 then. Fails
  // with ETIMEDOUT after `machine_limit` of the machine's time, and with EDEADLK if nothing can
  // happen any more. Fails with EIO without hosts.
  int WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds, Duration machine_limit);

  // Drives the hosts until they have done something since the thread's last call or poll. Returns
  // ENOENT without hosts, else as WaitUntil.
  int WaitForWork(Duration machine_limit);

  // Returns false if there are no hosts that a wait must drive.
  static bool HasHosts() { return has_hosts_.load(std::memory_order_relaxed); }
  enum class WaitEnd { kReady, kTimedOut, kInterrupted, kDeadlock, kNoHosts };
  // Drives the hosts until one of `fds` is ready (poll(2)), `limit` has passed or a signal arrives.
  // `limit` is of the machine's time. Virtual time passes no further than `limit`, and exactly that
  // far when the wait times out. kDeadlock: nothing can happen any more, and the wait is not
  // foreign. A cancellation point.
  WaitEnd DriveWait(const WaitsFor& what, std::optional<Duration> limit);
  // Does the work that is ready. `found_nothing`: the program has polled before, and found nothing.
  // Returns false if there are no hosts.
  bool Look(bool found_nothing);

  // Prepares a wait of the calling thread on a lock of the C library, which hosts cannot wake.
  // Drives the hosts first while no other thread has work. EndLockWait must follow.
  struct LockWait {
    std::optional<Duration> machine;  // time after which the hosts must be driven again
    bool has_expired;                 // the hosts' time, which the program shares, is at the limit
  };
  // `goes_on`: this is the next piece of one wait. There is no EndLockWait between its pieces.
  LockWait BeginLockWait(const WaitsFor& what, std::optional<Duration> limit, bool goes_on = false);
  // Returns true if the lock was signalled since the wait's first BeginLockWait.
  bool IsLockSignalled();
  // Returns true if the wait ended because the program's time reached its limit.
  bool EndLockWait(bool has_timed_out);
  // Marks one thread that waits on `lock`, or all of them, as having work.
  void RouseWaitersOf(const void* lock, bool all);
  // Wakes the threads that take `lock` themselves (WaitsFor::take), because it is free now.
  void WakeTakersOf(const void* lock);

  // Calls `use` under the lock with signals held, because a timer may expire when it is set.
  // Returns -1 and ENOSYS if there are no hosts whose time is the program's.
  int WithTimers(const std::function<int(ProgramTimers&, Time now)>& use);
  // Handles a thread that only reads clocks. It waits for the program's time, so time moves in
  // steps.
  void SpinOnClock();

  // Makes the time of this process's host processes the program's time. Runs before main if the
  // environment says so (DomainTime::kVariable).
  void JoinTimeOfHosts();
  void LeaveTimeOfHosts();
  // A thread of the program runs and reads a clock that other processes may have moved.
  void Resume();

  // Returns the number of the host that the calling thread is on: the first host until it enters
  // another. Call this under the lock, in With.
  uint32_t entered() const;
  void Enter(uint32_t number) const;

 private:
  friend class Sleeper;
  class Registration;
  class WaitLimit;
  // How far a loop that reads a clock moves a shared time in one step.
  static constexpr Duration kSpinStep = std::chrono::milliseconds(1);
  // A thread that waits inside the C library may miss a wake-up, so it checks the hosts this often.
  static constexpr Duration kLockLookAgain = std::chrono::milliseconds(1);
  // After so much of the machine's time a wait that nothing can end is reported.
  static constexpr Duration kReportStuckAfter = std::chrono::seconds(1);
  // How often a thread that waits checks whether the other threads still exist.
  static constexpr Duration kThreadsLookAgain = std::chrono::milliseconds(100);
  // A child process that has run in this time may end a wait that this library does not see.
  static constexpr Duration kChildRuns = std::chrono::seconds(1);
  // How often a thread checks for waits that this library does not see, while a timer is armed.
  static constexpr Duration kUnseenLookAgain = std::chrono::milliseconds(2);
  // So many waits inside the C library share the rate of kLockLookAgain.
  static constexpr size_t kLockLooksAtOnce = 8;

  static int Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                  uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  static void Ring();
  static int Wait(int counter_fd);
  static void Idle();
  static const rdmaemu_embedded_host kFunctions;

  int DoCall(CallBuffers& call);
  // In a forked child, nobody continues the waits of the parent's threads. The resources of the
  // hosts (segments, counters, files) remain the parent's.
  static void AfterForkInChild();
  // Handlers around a fork in the time of host processes. The fork returns in the parent when the
  // child is a member.
  static void BeforeFork();
  static void AfterForkInParent();
  // Waits until fault rules release the answer. Returns EDEADLK if nothing can release it.
  int AwaitReply(std::unique_lock<HostsMutex>& lock, uint32_t number, CallBuffers& call,
                 const sigset_t* mask);
  int WaitFor(int counter_fd);
  void WakeWaiters();
  void Forget(Sleeper& sleeper);
  void ForgetSignals(const Sleeper& woken);
  // Wakes threads after time has moved or a timer was set.
  void AfterMove();
  // Returns true if every other thread of the process waits and its event has not happened.
  bool IsAlone();
  // Does the same in program time, in which any sleep in the kernel is a wait.
  bool DoOthersWait();
  bool IsInProgramTime() const { return driven_ != nullptr && driven_->is_program_time(); }
  // Handles a poll that found nothing, in program time.
  void Spin();
  // Ends the calling thread's series of polls or clock reads.
  void EndSpin();
  // In program time: how long a thread sleeps before it checks the other threads again.
  static Duration LookAgain(int looks);
  // In program time, one waiting thread at a time checks whether the other threads wait: the one
  // that began to wait last, or one that takes over. Returns true if this is the calling thread.
  // `begins`: its wait begins. Otherwise it takes over if no thread has checked for a while.
  bool TakesLook(bool begins);
  // Lets another thread take over from `sleeper`, whose wait ends.
  void PassOnLook(const Sleeper& sleeper);
  // The thread of StartTimerDriver, for the opening of that number.
  void DriveUnseenWaits(uint64_t opening);
  // Starts a thread that moves program time to the program's timers while no thread is in a wait
  // that this library sees, for example in pause(2). Starts one thread for each opening.
  void StartTimerDriver();
  // Reports that time has not moved for this long because a thread runs.
  void ReportBusyThread(Duration stands);
  // Returns the first time-out of all waits.
  std::optional<Time> FirstLimit() const;
  // Returns true if no wait has a time-out or can be ended from outside the process.
  bool IsStalled() const;
  // Returns true if every thread waits without a time-out, for locks and descriptors that only this
  // process makes ready. Such a wait must not fail, because a signal handler may end it. Call this
  // when nothing is due on any host.
  bool IsStuck();
  std::optional<Time> VirtualLimit(const std::optional<Duration>& limit) const;
  void ReportStall();
  // Starts a thread that drives the hosts for waits that this library does not see.
  void StartDriver();
  // Returns true if the hosts of the opening that `opening` counted are still open.
  bool IsStill(uint64_t opening) const { return driven_ != nullptr && opening == openings_; }

  HostsMutex mutex_;
  std::unique_ptr<EmbeddedHosts> hosts_;
  std::unique_ptr<DomainTime> domain_time_;  // in a program of `rdmaemu run --program-time`
  DrivenTime* driven_ = nullptr;             // hosts_ or domain_time_
  Sleeper* driver_ = nullptr;                // the thread that waits for other members of the time
  uint64_t openings_ = 0;
  uint64_t changes_ = 0;  // how often something happened that may end a wait
  static std::atomic<bool> has_hosts_;
  std::vector<Sleeper*> sleepers_;   // the threads that wait
  std::vector<Sleeper*> spinning_;   // threads that poll or read clocks in a loop
  const Sleeper* looker_ = nullptr;  // see TakesLook
  Time looked_at_{};                 // the machine's time of its last look
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
  uint32_t forks_ = 0;  // generation: forks between the first process and this one
};

// Puts the calling thread on that host while the object exists. Takes no lock in between.
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
