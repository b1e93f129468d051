// Waits of ProcessHost: how threads wait, and which thread runs the hosts meanwhile.
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "emulator/embedded/inner_fds.h"
#include "emulator/embedded/libc_waits.h"
#include "emulator/embedded/process_host.h"
#include "emulator/embedded/program_clock.h"
#include "emulator/embedded/registration.h"
#include "emulator/embedded/threads.h"

namespace rdmaemu::embedded {

void ProcessHost::WakeWaiters() {
  changes_++;
  for (Sleeper* sleeper : sleepers_) {
    const std::optional<Time>& limit = sleeper->what().virtual_limit;
    if (sleeper->what().is_in_libc && limit && IsInProgramTime() && *limit <= driven_->Now()) {
      sleeper->Expire();
    }
    sleeper->Wake();
  }
}

void ProcessHost::Forget(Sleeper& sleeper) {
  const std::lock_guard lock(mutex_);
  std::erase(sleepers_, &sleeper);
  std::erase(spinning_, &sleeper);
  if (looker_ == &sleeper) looker_ = nullptr;
}

// A signal wakes up one thread. When that thread runs, the signal no longer counts for the others.
void ProcessHost::ForgetSignals(const Sleeper& woken) {
  if (woken.what().lock == nullptr) return;
  for (Sleeper* each : sleepers_) {
    if (each->what().lock == woken.what().lock) each->ForgetSignal();
  }
}

bool ProcessHost::DoOthersWait() {
  if (driven_->AwaitsProcess()) return false;
  const int threads = CountThreads();
  if (threads == 1) return true;
  const Sleeper* const own = &Sleeper::OfThread();
  // A thread counts as waiting when only this library or a timer's signal can wake it up. The
  // kernel reports the state of the other threads.
  std::vector<pid_t> waiting;
  for (const Sleeper* each : sleepers_) {
    if (each == own) continue;
    if (!each->IsIdle() && !each->IsHeldUp()) return false;
    if (!each->what().is_in_libc && !has_signalled_) waiting.push_back(each->thread());
  }
  // A thread that reads clocks in a loop advances time by its own steps, so it counts as running.
  for (const Sleeper* each : spinning_) {
    if (!each->spins_since) waiting.push_back(each->thread());
  }
  if (static_cast<int>(waiting.size()) + 1 >= threads) return true;
  const bool sleep = OthersSleep(
      [&](pid_t thread) { return std::ranges::find(waiting, thread) == waiting.end(); });
  // Check the mutex last. A thread that sleeps because it wants the mutex is counted there before
  // it sleeps.
  if (!sleep || mutex_.IsAwaited()) return false;
  has_signalled_ = false;
  return true;
}

bool ProcessHost::IsAlone() {
  if (IsInProgramTime()) return DoOthersWait();
  // A timer or peer of the program may end such a wait, so the program can act.
  if (std::ranges::any_of(sleepers_, [](const Sleeper* each) {
        return each->what().is_foreign && !each->what().fds.empty();
      })) {
    return false;
  }
  const int threads = CountThreads();
  if (threads == 1) return true;
  const Sleeper* const own = &Sleeper::OfThread();
  const auto idle = std::ranges::count_if(
      sleepers_, [&](const Sleeper* each) { return each != own && each->IsIdle(); });
  return idle + 1 >= threads;
}

std::optional<Time> ProcessHost::FirstLimit() const {
  std::optional<Time> first;
  for (const Sleeper* each : sleepers_) {
    // A wait that was ended returns when the thread gets its mutex, not at the wait's limit.
    if (each->what().is_in_libc && each->is_signalled()) continue;
    const std::optional<Time>& limit = each->what().virtual_limit;
    if (limit && (!first || *limit < *first)) first = limit;
  }
  return first;
}

bool ProcessHost::IsStalled() const {
  const auto waits_for_hosts = [](const Sleeper* each) {
    return !each->what().is_foreign && each->what().lock == nullptr;
  };
  return std::ranges::any_of(sleepers_, waits_for_hosts) &&
         std::ranges::none_of(sleepers_, [](const Sleeper* each) {
           return (each->what().is_foreign && !each->what().is_helper) ||
                  each->what().virtual_limit;
         });
}

bool ProcessHost::IsStuck() {
  const Sleeper* const own = &Sleeper::OfThread();
  int waiting = 0;
  for (const Sleeper* each : sleepers_) {
    const WaitsFor& what = each->what();
    if (what.has_limit || what.virtual_limit || (each != own && !each->IsIdle())) return false;
    waiting += what.is_helper ? 0 : 1;
    if (!std::ranges::all_of(what.fds, [](const pollfd& one) { return IsInnerFd(one.fd); })) {
      return false;
    }
  }
  const bool has_helper = static_cast<size_t>(waiting) < sleepers_.size();
  return waiting + (has_helper ? 1 : 0) >= CountThreads();
}

bool ProcessHost::TakesLook(bool begins) {
  const Sleeper* const own = &Sleeper::OfThread();
  const Time now = runtime::RealNow();
  if (begins || looker_ == nullptr || now - looked_at_ >= kThreadsLookAgain) looker_ = own;
  if (looker_ != own) return false;
  looked_at_ = now;
  return true;
}

void ProcessHost::PassOnLook(const Sleeper& sleeper) {
  if (looker_ != &sleeper) return;
  looker_ = nullptr;
  // Threads that wait inside the C library, and this library's own threads, check by themselves.
  const auto next = std::ranges::find_if(sleepers_, [&](const Sleeper* each) {
    return each != &sleeper && !each->what().is_in_libc && !each->what().is_helper;
  });
  if (next != sleepers_.end()) (*next)->Wake();
}

std::optional<Time> ProcessHost::VirtualLimit(const std::optional<Duration>& limit) const {
  if (!limit || !driven_->limits_waits()) return std::nullopt;
  return driven_->Now() + *limit;
}

int ProcessHost::WaitUntil(const std::function<bool(EmbeddedHosts&)>& holds,
                           Duration machine_limit) {
  const HeldCancellation held;
  const Time until = runtime::RealNow() + machine_limit;
  std::unique_lock lock(mutex_);
  const uint64_t opening = openings_;
  if (hosts_ == nullptr) return EIO;
  Registration registration(*this, lock, {.what = "rdmaemu's wait for a rule or an event"});
  while (IsStill(opening)) {
    if (holds(*hosts_)) return 0;
    const Duration left = until - runtime::RealNow();
    if (left <= Duration::zero()) return ETIMEDOUT;
    const DrivenTime::Pause pause = driven_->GoOn(IsAlone(), FirstLimit());
    if (pause.moved) {
      AfterMove();
      continue;
    }
    if (pause.endless) return EDEADLK;
    registration.Sleep(std::min(left, pause.machine.value_or(left)));
  }
  return EIO;
}

int ProcessHost::WaitForWork(Duration machine_limit) {
  const HeldCancellation held;
  const Time until = runtime::RealNow() + machine_limit;
  std::unique_lock lock(mutex_);
  const uint64_t opening = openings_;
  if (hosts_ == nullptr) return ENOENT;
  const uint64_t seen = Sleeper::OfThread().seen().value_or(changes_);
  Registration registration(*this, lock, {.what = "rdmaemu_wait"});
  for (int looks = 0; IsStill(opening);) {
    if (changes_ != seen) return 0;
    const bool alone = IsAlone();
    const DrivenTime::Pause pause = driven_->GoOn(alone, FirstLimit());
    if (pause.moved) {
      AfterMove();
      continue;
    }
    if (pause.endless) return EDEADLK;
    Duration sleep = until - runtime::RealNow();
    if (sleep <= Duration::zero()) return ETIMEDOUT;
    if (pause.machine) sleep = std::min(sleep, *pause.machine);
    // In program time, threads that begin to wait do not wake up this one.
    if (IsInProgramTime() && !alone) sleep = std::min(sleep, LookAgain(looks++));
    registration.Sleep(sleep);
  }
  return EIO;
}

// The time-out of a program's wait, in the machine's time or in the hosts'.
class ProcessHost::WaitLimit {
 public:
  WaitLimit(DrivenTime& time, const std::optional<Duration>& limit,
            const std::optional<Time>& virtual_limit)
      : time_(time),
        limit_(limit),
        virtual_limit_(time.is_program_time() ? virtual_limit : std::nullopt),
        until_(limit ? runtime::RealNow() + *limit : Time::max()) {}

  bool HasPassed() const { return limit_ && Left() <= Duration::zero(); }
  // Returns how long a thread may sleep whose hosts allow `pause`, in the machine's time.
  std::optional<Duration> Sleep(const std::optional<Duration>& pause) const {
    if (!limit_ || virtual_limit_) return pause;
    return std::min(Left(), pause.value_or(Left()));
  }

 private:
  Duration Left() const {
    return virtual_limit_ ? *virtual_limit_ - time_.Now() : until_ - runtime::RealNow();
  }

  DrivenTime& time_;
  const std::optional<Duration> limit_;
  const std::optional<Time> virtual_limit_;
  const Time until_;
};

ProcessHost::WaitEnd ProcessHost::DriveWait(const WaitsFor& what, std::optional<Duration> limit) {
  const HeldSignals held(ProgramClock::IsOfHosts());
  std::unique_lock lock(mutex_);
  if (driven_ == nullptr) return WaitEnd::kNoHosts;
  const uint64_t opening = openings_;
  const bool own_time = IsInProgramTime();
  EndSpin();
  driven_->Resume();
  WaitsFor limited = what;
  limited.virtual_limit = VirtualLimit(limit);
  limited.has_limit = limit.has_value();
  if (own_time && limited.mask == nullptr) limited.mask = held.before();
  const WaitLimit end(*driven_, limit, limited.virtual_limit);
  const auto is_ready = [&] {
    return (!what.fds.empty() && CountReady(what.fds) > 0) ||
           (what.take != nullptr && (*what.take)());
  };
  Registration registration(*this, lock, limited);
  const Time began = runtime::RealNow();
  Time busy_since{};  // while looks > 0
  bool begins = true;
  for (int looks = 0;; begins = false) {
    if (driven_->Settle()) WakeWaiters();
    if (is_ready()) return WaitEnd::kReady;
    int error = 0;
    if (own_time && HeldSignals::IsAnyPending(*limited.mask)) {
      error = registration.Sleep(Duration::zero());
    } else if (end.HasPassed()) {
      if (limited.virtual_limit) driven_->PassTo(*limited.virtual_limit);
      WakeWaiters();
      // An event exactly at the time-out still counts as in time.
      return is_ready() ? WaitEnd::kReady : WaitEnd::kTimedOut;
    } else if (own_time && !TakesLook(begins)) {
      looks = 0;
      error = registration.Sleep(kThreadsLookAgain);
    } else {
      const bool alone = IsAlone();
      const DrivenTime::Pause pause = driven_->GoOn(alone, FirstLimit());
      registration.WaitForOthersToo(alone ? driven_->wake_fd() : -1);
      if (pause.moved) {
        AfterMove();
        continue;
      }
      if (pause.endless && IsStalled()) {
        ReportStall();
        if (!what.is_foreign) return WaitEnd::kDeadlock;
      } else if (!pause.machine && !has_reported_stall_ &&
                 runtime::RealNow() - began >= kReportStuckAfter && IsStuck()) {
        ReportStall();
      }
      std::optional<Duration> sleep = end.Sleep(pause.machine);
      if (alone) {
        looks = 0;
      } else if (!own_time) {
        // The end of the last other thread wakes up no thread.
        sleep = std::min(sleep.value_or(kThreadsLookAgain), kThreadsLookAgain);
      } else {
        const Time now = runtime::RealNow();
        if (looks == 0) busy_since = now;
        ReportBusyThread(now - busy_since);
        sleep = LookAgain(looks++);
      }
      error = registration.Sleep(sleep);
    }
    if (!IsStill(opening)) return WaitEnd::kNoHosts;
    if (error == EINTR) return WaitEnd::kInterrupted;
  }
}

void ProcessHost::AfterMove() {
  has_signalled_ |= timers_.TakeSignalled();
  WakeWaiters();
}

Duration ProcessHost::LookAgain(int looks) {
  constexpr Duration kFirst = std::chrono::microseconds(50);
  constexpr int kMostDoublings = 6;  // 3.2 ms
  return kFirst * (1 << std::min(looks, kMostDoublings));
}

bool ProcessHost::Look(bool found_nothing) {
  const HeldSignals held(ProgramClock::IsOfHosts());
  const std::lock_guard lock(mutex_);
  if (driven_ == nullptr) return false;
  Sleeper::OfThread().NotePoll(changes_);
  if (!found_nothing) {
    driven_->Settle();
  } else if (IsInProgramTime()) {
    Spin();
  } else {
    driven_->Look(IsAlone());
  }
  if (driven_->owes_replies()) WakeWaiters();
  return true;
}

void ProcessHost::Spin() {
  if (driven_->Settle()) WakeWaiters();
  Sleeper& own = Sleeper::OfThread();
  if (++own.looks % EmbeddedHosts::kPollsThatAreAWait != 0) return;
  if (std::ranges::find(spinning_, &own) == spinning_.end()) spinning_.push_back(&own);
  if (DoOthersWait() && driven_->GoOn(true, FirstLimit()).moved) AfterMove();
}

void ProcessHost::SpinOnClock() {
  if (DomainTime::IsJoined()) {
    // The other members of the shared time must see that this process waits.
    DriveWait({.is_foreign = true, .what = "a loop that reads a clock"}, kSpinStep);
    return;
  }
  const HeldSignals held(true);
  const std::lock_guard lock(mutex_);
  if (!IsInProgramTime()) return;
  Sleeper& own = Sleeper::OfThread();
  if (std::ranges::find(spinning_, &own) == spinning_.end()) spinning_.push_back(&own);
  const Time now = driven_->Now();
  if (!own.spins_since) own.spins_since = now;
  if (!DoOthersWait()) return;
  // The steps grow. A loop of ten seconds therefore ends soon, and a loop of microseconds ends on
  // time.
  constexpr Duration kShortest = std::chrono::microseconds(1),
                     kLongest = std::chrono::milliseconds(10);
  constexpr int kPartOfSpin = 8;
  const Time step = now + std::clamp((now - *own.spins_since) / kPartOfSpin, kShortest, kLongest);
  const std::optional<Time> limit = FirstLimit();
  if (driven_->GoOn(true, limit ? std::min(*limit, step) : step).moved) AfterMove();
}

void ProcessHost::EndSpin() {
  if (!ProgramClock::IsOfHosts()) return;
  ProgramClock::ForgetReads();
  Sleeper& own = Sleeper::OfThread();
  own.looks = 0;
  own.spins_since.reset();
  std::erase(spinning_, &own);
}

namespace {

// glibc sets the lock word to 2 when other threads may wait for the mutex. It resets the word late.
bool IsWanted(const pthread_mutex_t* mutex) {
  return mutex != nullptr && mutex->__data.__lock > 1 && DoesOtherWaitFor(mutex, sizeof *mutex);
}

}  // namespace

ProcessHost::LockWait ProcessHost::BeginLockWait(const WaitsFor& what,
                                                 std::optional<Duration> limit, bool goes_on) {
  const HeldSignals held(ProgramClock::IsOfHosts());
  std::unique_lock lock(mutex_);
  if (driven_ == nullptr) return {};
  Sleeper& sleeper = Sleeper::OfThread();
  EndSpin();
  if (!goes_on) driven_->Resume();
  if (goes_on && std::ranges::find(sleepers_, &sleeper) == sleepers_.end()) goes_on = false;
  const std::optional<Time> virtual_limit = VirtualLimit(limit);
  WaitsFor limited = what;
  limited.virtual_limit = virtual_limit;
  limited.has_limit = limit.has_value();
  if (!goes_on) {
    sleeper.Prepare(forks_);
    sleeper.Begin(limited);
    sleepers_.push_back(&sleeper);
  }
  // The thread is not inside the C library yet, so a wake-up before this point is lost.
  const std::optional<Duration> until_woken =
      IsInProgramTime() ? std::optional(kLockLookAgain) : std::nullopt;
  for (;;) {
    if (IsInProgramTime() && virtual_limit && *virtual_limit <= driven_->Now()) return {{}, true};
    if (IsInProgramTime() && !TakesLook(!goes_on)) {
      return {kLockLookAgain * (1 + sleepers_.size() / kLockLooksAtOnce), false};
    }
    // A thread that waits for the caller's mutex runs as soon as the caller sleeps.
    if (!IsAlone() || IsWanted(what.mutex)) {
      // The last thread that begins to wait runs the hosts.
      return {IsInProgramTime() ? std::optional(kLockLookAgain) : std::nullopt, false};
    }
    const DrivenTime::Pause pause = driven_->GoOn(true, FirstLimit());
    if (!pause.moved) {
      if (pause.endless && IsStalled()) {
        ReportStall();
        WakeWaiters();  // the wait for RDMA returns EDEADLK
      }
      // Other members of a shared time cannot wake up this thread.
      if (driven_->wake_fd() >= 0) return {kLockLookAgain, false};
      return {pause.machine ? pause.machine : until_woken, false};
    }
    AfterMove();
  }
}

bool ProcessHost::IsLockSignalled() {
  const std::lock_guard lock(mutex_);
  return Sleeper::OfThread().is_signalled();
}

bool ProcessHost::EndLockWait(bool has_timed_out) {
  std::unique_lock lock(mutex_);
  Sleeper& sleeper = Sleeper::OfThread();
  std::erase(sleepers_, &sleeper);
  ForgetSignals(sleeper);
  PassOnLook(sleeper);
  if (driven_ == nullptr) return false;
  const std::optional<Time>& limit = sleeper.what().virtual_limit;
  if (has_timed_out && limit && !IsInProgramTime()) {
    driven_->PassTo(*limit);
    WakeWaiters();
  }
  driven_->Resume();
  return sleeper.has_expired();
}

void ProcessHost::RouseWaitersOf(const void* waited_on, bool all) {
  const std::lock_guard lock(mutex_);
  for (Sleeper* each : sleepers_) {
    if (each->what().lock == waited_on) each->Signal(all);
  }
}

void ProcessHost::WakeTakersOf(const void* lock) {
  const std::lock_guard guard(mutex_);
  for (Sleeper* each : sleepers_) {
    if (each->what().lock == lock && each->what().take != nullptr) each->Wake();
  }
}

int ProcessHost::WithTimers(const std::function<int(ProgramTimers&, Time now)>& use) {
  const HeldSignals held(true);
  const std::lock_guard lock(mutex_);
  if (!IsInProgramTime()) {
    errno = ENOSYS;
    return -1;
  }
  EndSpin();
  const std::optional<Time> alarm = timers_.alarm().setting.due;
  const int result = use(timers_, driven_->Now());
  if (timers_.alarm().setting.due != alarm) driven_->KeepAlarm(timers_.alarm().setting);
  if (hosts_ != nullptr && timers_.NextDeadline()) StartTimerDriver();
  AfterMove();
  return result;
}

namespace {

// Starts a thread of this library. It blocks the program's signals, because the program's own
// threads handle them.
void StartThread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(body)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

// The thread ends with the hosts.
void ProcessHost::StartDriver() {
  StartThread([this] {
    const WaitsFor what{.is_foreign = true, .what = "the driver thread"};
    while (DriveWait(what, std::nullopt) != WaitEnd::kNoHosts) std::this_thread::yield();
  });
}

void ProcessHost::StartTimerDriver() {
  if (std::exchange(has_timer_driver_, true)) return;
  StartThread([this, opening = openings_] { DriveUnseenWaits(opening); });
}

// Does nothing while a thread of the program runs, because its posts must reach the hosts when they
// are posted.
void ProcessHost::DriveUnseenWaits(uint64_t opening) {
  std::unique_lock lock(mutex_);
  if (!IsStill(opening)) return;
  Registration registration(
      *this, lock, {.is_foreign = true, .is_helper = true, .what = "the thread for timers"});
  ActiveProcesses children;
  while (IsStill(opening)) {
    std::optional<Duration> sleep;
    if (timers_.NextDeadline()) sleep = kUnseenLookAgain;
    if (sleep && TakesLook(/*begins=*/false)) {
      // The program may wait for a child process, which uses the machine's time.
      if (!children.Ran(ChildProcesses(), kChildRuns) && IsAlone() &&
          driven_->GoOn(true, FirstLimit()).moved) {
        AfterMove();
        sleep = Duration::zero();
      }
      looker_ = nullptr;
    }
    registration.Sleep(sleep);
  }
}

// Report this once, because such a program does this at each of its waits.
void ProcessHost::ReportBusyThread(Duration stands) {
  constexpr Duration kReportAfter = std::chrono::seconds(10);
  if (stands < kReportAfter || std::exchange(has_reported_busy_, true)) return;
  driven_->Note(
      "time has not advanced for 10 seconds, because a thread of the program runs without waiting; "
      "the program's time advances only while all threads wait; make a thread that spins on memory "
      "wait or read a clock, or do not use program_time");
}

// Report this once, because the program may continue and stall again.
void ProcessHost::ReportStall() {
  if (std::exchange(has_reported_stall_, true)) return;
  std::vector<std::string> waits;
  for (const Sleeper* each : sleepers_) {
    if (each->what().is_helper) continue;
    waits.push_back("\"" + NameOfThread(each->thread()) + "\": " + each->what().what);
  }
  std::ranges::sort(waits);  // threads begin to wait in no fixed order
  std::string all;
  for (const std::string& each : waits) all += (all.empty() ? "" : ", ") + each;
  driven_->Note("every thread of the program waits (" + all +
                ") and time cannot advance: " + driven_->WhyTimeStands());
}

}  // namespace rdmaemu::embedded
