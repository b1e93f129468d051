// The embedded hosts of a process, and how threads share them: one lock; who has to wait for
// another thread sleeps outside it and is woken by every call that may have changed something.
// Each thread is on one of the hosts, as in a network namespace: what it makes anew is there.
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
#include "emulator/embedded/program_clock.h"
#include "emulator/embedded/program_timers.h"
#include "emulator/embedded/sleeper.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::embedded {

// Time-outs of rdmaemu.h are cut to this: a day.
inline constexpr uint64_t kMaxWait_ms = 86'400'000;

// A mutex whose owner's waits are the library's own, not the program's.
class HostsMutex {
 public:
  void lock();
  void unlock();
  // In a forked child, where its owner may be a thread that does not exist.
  void Reset();
  // The calling thread has it.
  static bool IsMine();
  // Another thread wants it.
  bool IsAwaited() const { return waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

class ProcessHost {
 public:
  // Never destroyed: threads may be in it when the program ends.
  static ProcessHost& Get();

  // Makes it the host of this process's libibverbs; the message says why not, with an errno.
  struct Refusal {
    int error;
    std::string message;
  };
  tl::expected<void, Refusal> Open(const EmbeddedOptions& options);
  bool Close();  // all hosts; false: there is none
  // ENOENT: there is no first host.
  tl::expected<void, Refusal> Add(const EmbeddedOptions& options);

  bool IsOpen() {
    const std::lock_guard lock(mutex_);
    return hosts_ != nullptr;
  }
  // Calls `use` with the hosts under the lock and wakes who waits; ENOENT when there are none.
  template <class Use>
  int With(Use&& use) {
    const HeldSignals held(ProgramClock::IsOfHosts());
    const std::lock_guard lock(mutex_);
    if (hosts_ == nullptr) return ENOENT;
    EndSpin();
    const int error = use(*hosts_);
    WakeWaiters();
    return error;
  }

  // Drives the hosts until `holds` answers true, under the lock. 0, ETIMEDOUT after so much time of
  // the machine, EDEADLK where nothing can happen any more, EIO when the hosts were closed.
  int WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds, Duration machine_limit);

  // Drives the hosts until they have done something. 0, ENOENT without hosts, otherwise as
  // WaitUntil.
  int WaitForWork(Duration machine_limit);

  // False: no wait of this process has hosts to drive.
  static bool HasHosts() { return has_hosts_.load(std::memory_order_relaxed); }
  enum class WaitEnd { kReady, kTimedOut, kInterrupted, kDeadlock, kNoHosts, kNoDescriptor };
  // Drives the hosts until one of `fds` is ready (poll(2)), `limit` of the machine's time has
  // passed or a signal came. Where the clock is virtual, its time passes no further than `limit`,
  // and that far when the wait times out. kDeadlock: nothing can happen any more, and the wait is
  // not foreign. A cancellation point.
  WaitEnd DriveWait(const WaitsFor& what, std::optional<Duration> limit);
  // Does what is ready. `found_nothing`: the program has looked before, and found nothing.
  // False: there are no hosts.
  bool Look(bool found_nothing);

  // The calling thread is going to wait on a lock of the C library, which hosts cannot wake: they
  // are driven first, as long as no other thread has something to do. EndLockWait follows.
  struct LockWait {
    std::optional<Duration> machine;  // after which the hosts must be driven once more
    bool has_expired;                 // the hosts' time, which is the program's, is at the limit
  };
  // `goes_on`: between two pieces of one wait, which needs no EndLockWait between them.
  LockWait BeginLockWait(const WaitsFor& what, std::optional<Duration> limit, bool goes_on = false);
  // Whether the lock of the thread's wait was signalled since the wait's first BeginLockWait.
  bool IsLockSignalled();
  // True: the wait ended because the program's time reached its limit.
  bool EndLockWait(bool has_timed_out);
  // One thread that waits on that lock, or all of them, have something to do.
  void RouseWaitersOf(const void* lock, bool all);
  // It can be taken now, by a thread that takes it (WaitsFor::take).
  void WakeTakersOf(const void* lock);

  // Under the lock and with signals held: a timer that is set may expire at once. -1 and ENOSYS: no
  // hosts whose time is the program's.
  int WithTimers(const std::function<int(ProgramTimers&, Time now)>& use);
  // The calling thread reads clocks again and again and does nothing else: it waits for the
  // program's time, which then moves in steps.
  void SpinOnClock();

  // Makes the time of this process's host processes the program's: before main, where the
  // environment says so (DomainTime::kVariable).
  void JoinTimeOfHosts();
  void LeaveTimeOfHosts();
  // A thread of the program runs, and reads a clock of a time that others may have moved.
  void Resume();

  // The host that the calling thread is on, by its number: the first one until it has entered
  // another. Under the lock, in With.
  uint32_t entered() const;
  void Enter(uint32_t number) const;

 private:
  friend class Sleeper;
  class Registration;
  class WaitLimit;
  // How long a thread that waits inside the C library, where a wake-up may be lost, sleeps until it
  // looks at the hosts again.
  // How far a loop that reads a clock moves a time that is shared.
  static constexpr Duration kSpinStep = std::chrono::milliseconds(1);
  static constexpr Duration kLockLookAgain = std::chrono::milliseconds(1);

  static int Call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                  uint32_t* out_filled, int* descriptors, uint32_t descriptor_count);
  static void Ring();
  static int Wait(int counter_fd);
  static void Idle();
  static const rdmaemu_embedded_host kFunctions;

  int DoCall(CallBuffers& call);
  // In a forked child: what the parent's threads were in the midst of is nobody's here, and what
  // the hosts have (segments, counters, files) is the parent's.
  static void AfterForkInChild();
  // Around a fork in the time of host processes: it returns in the parent when the child is a
  // member.
  static void BeforeFork();
  static void AfterForkInParent();
  // Waits until fault rules let the answer go. EDEADLK where nobody can any more.
  int AwaitReply(std::unique_lock<HostsMutex>& lock, uint32_t number, CallBuffers& call,
                 const sigset_t* mask);
  int WaitFor(int counter_fd);
  void WakeWaiters();
  void Forget(Sleeper& sleeper);
  void ForgetSignals(const Sleeper& woken);
  // Time has moved, or a timer was set.
  void AfterMove();
  // Every other thread of the process is in a wait, and what it waits for has not happened.
  bool IsAlone();
  // The same where the hosts' time is the program's: any sleep in the kernel is a wait.
  bool DoOthersWait();
  bool IsInProgramTime() const { return driven_ != nullptr && driven_->is_program_time(); }
  // A look that found nothing, in program time.
  void Spin();
  // The calling thread does something else than to look.
  void EndSpin();
  // In program time: how long a thread that is not alone sleeps until it looks at the others.
  static Duration LookAgain(int looks);
  // Time stands, for so long already, because a thread runs.
  void ReportBusyThread(Duration stands);
  // When the first of the waits times out.
  std::optional<Time> FirstLimit() const;
  // No wait has a time-out, and none can be ended from outside the process.
  bool IsStalled() const;
  std::optional<Time> VirtualLimit(const std::optional<Duration>& limit) const;
  void ReportStall();
  // A thread that drives the hosts for waits that this library does not see.
  void StartDriver();
  // The opening that `opening` counted is still there.
  bool IsStill(uint64_t opening) const { return driven_ != nullptr && opening == openings_; }

  HostsMutex mutex_;
  std::unique_ptr<EmbeddedHosts> hosts_;
  std::unique_ptr<DomainTime> domain_time_;  // in a program of `rdmaemu run --program-time`
  DrivenTime* driven_ = nullptr;             // one of the two
  Sleeper* driver_ = nullptr;                // the thread that hears of other members of the time
  uint64_t openings_ = 0;
  static std::atomic<bool> has_hosts_;
  std::vector<Sleeper*> sleepers_;  // the threads that wait
  std::vector<Sleeper*> spinning_;  // those that look again and again
  ProgramTimers timers_;
  bool has_signalled_ = false;  // a timer has, and the thread may not have begun to run
  bool has_reported_stall_ = false, has_reported_busy_ = false;  // of this opening
  // What a forked child has of its parent. It is in no state to be destroyed here, and a leak
  // checker is to find it.
  struct OfParent {
    EmbeddedHosts* hosts;
    DomainTime* domain_time;
    std::vector<Sleeper*> sleepers;
    OfParent* of_its_parent;
  };
  OfParent* of_parent_ = nullptr;
  uint32_t forks_ = 0;  // between the first process and this one
};

// The calling thread is on that host as long as the object lives; nothing else is locked.
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
