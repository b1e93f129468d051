// The time that this process shares with its host processes and their other programs under `rdmaemu
// run --program-time`. Time advances when all programs wait and all hosts are idle.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>

#include "emulator/embedded/driven_time.h"
#include "emulator/embedded/processes.h"
#include "emulator/embedded/program_timers.h"
#include "emulator/runtime/time_domain.h"

namespace rdmaemu::embedded {

class DomainTime final : public DrivenTime {
 public:
  // `rdmaemu run --program-time` sets this variable to "1" for its program.
  static constexpr const char* kVariable = "RDMAEMU_PROGRAM_TIME_OF_HOSTS";

  // A process becomes a member when its libraries are loaded, and counts as running until then. A
  // child process that has not become a member and has not run for this time never becomes a
  // member. Such a child is linked statically, or has another environment. Measured in the
  // machine's time.
  static constexpr Duration kMostUntilMember = std::chrono::seconds(1);
  // A process that has ended wakes up the parent that waits for it within this time. /proc shows
  // the end shortly before the parent wakes up.
  static constexpr Duration kMostUntilParentWakes = std::chrono::milliseconds(20);

  // Makes this process a member of the time of the registry's hosts. `timers` must outlive this
  // object.
  static runtime::OrMessage<std::unique_ptr<DomainTime>> Join(
      ProgramTimers& timers, std::function<bool(pid_t)> is_waiting);

  // Ends this process's membership, if the process became a member by a fork.
  static void Leave();
  static bool IsJoined() { return is_joined_.load(std::memory_order_relaxed); }
  // Returns true if this process is marked as waiting although one of its threads may run again.
  static bool MayHaveMoved() { return is_idle_.load(std::memory_order_relaxed); }

  // Returns true if this process may have been stopped since the last look at the time, because the
  // machine's time has moved by kLookAfter. Other processes may have advanced the time meanwhile.
  // Async-signal-safe.
  static bool MayHaveStopped();
  static constexpr Duration kLookAfter = std::chrono::microseconds(100);

  bool Settle() override { return false; }
  Pause GoOn(bool alone, std::optional<Time> limit) override;
  void Look(bool) override {}
  void PassTo(Time) override {}
  const runtime::TimeDomain& domain() const { return *domain_; }
  Time Now() override { return domain_->At({}); }
  bool limits_waits() const override { return true; }
  bool is_program_time() const override { return true; }
  bool owes_replies() const override { return false; }
  std::string WhyTimeStands() const override { return "nothing is due on any host"; }
  void Note(const std::string& text) override;
  int wake_fd() const override { return domain_->wake_fd(); }
  void Resume() override;
  void LookAgain() override;
  bool AwaitsProcess() override;
  void KeepAlarm(const TimerSetting& alarm) override {
    domain_->KeepAlarm({alarm.due, alarm.interval});
  }

 private:
  DomainTime(std::unique_ptr<runtime::TimeDomain> domain, ProgramTimers& timers,
             std::function<bool(pid_t)> is_waiting)
      : domain_(std::move(domain)), timers_(timers), is_waiting_(std::move(is_waiting)) {}

  static std::atomic<bool> is_joined_, is_idle_;
  static std::atomic<int64_t> looked_ns_;  // in the machine's time
  std::unique_ptr<runtime::TimeDomain> domain_;
  ProgramTimers& timers_;
  const std::function<bool(pid_t)> is_waiting_;
  ActiveProcesses living_, ended_;  // children that are not members
  bool did_work_ = true;            // since the process was idle
  std::optional<uint64_t> ran_ns_;  // run time of the other threads until the last idle moment
};

}  // namespace rdmaemu::embedded
