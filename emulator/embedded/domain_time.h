// The time that this process shares with its host processes and with other programs of them, under
// `rdmaemu run --program-time`: time moves when all programs wait and all hosts are idle.
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "emulator/embedded/driven_time.h"
#include "emulator/embedded/program_timers.h"
#include "emulator/runtime/time_domain.h"

namespace rdmaemu::embedded {

class DomainTime final : public DrivenTime {
 public:
  // Set by `rdmaemu run --program-time` for its program: "1".
  static constexpr const char* kVariable = "RDMAEMU_PROGRAM_TIME_OF_HOSTS";

  // A process is a member when its libraries have been loaded. One that is none after this time
  // (of the machine) never will be: it is linked statically, or has another environment.
  static constexpr Duration kMostUntilMember = std::chrono::seconds(1);
  // A process that has ended wakes the parent that waits for it in this time. The kernel shows the
  // end a moment before it does so.
  static constexpr Duration kMostUntilParentWakes = std::chrono::milliseconds(20);

  // Becomes a member of the time of the registry's hosts. `timers` must outlive this object.
  static runtime::OrMessage<std::unique_ptr<DomainTime>> Join(ProgramTimers& timers);

  // This process, which may be a member since it was forked, is none.
  static void Leave();
  static bool IsJoined() { return is_joined_.load(std::memory_order_relaxed); }
  // The process has told the others that it waits, and a thread of it may run again.
  static bool MayHaveMoved() { return is_idle_.load(std::memory_order_relaxed); }

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
  bool AwaitsProcess() override;

 private:
  DomainTime(std::unique_ptr<runtime::TimeDomain> domain, ProgramTimers& timers)
      : domain_(std::move(domain)), timers_(timers) {}

  static std::atomic<bool> is_joined_, is_idle_;
  std::unique_ptr<runtime::TimeDomain> domain_;
  ProgramTimers& timers_;
  // By number, and whether it has ended: the machine's time when each was seen first.
  std::map<std::pair<pid_t, bool>, Time> strangers_;
  bool did_work_ = true;            // since the process was idle
  std::optional<uint64_t> ran_ns_;  // how long the other threads have run until it was idle last
};

}  // namespace rdmaemu::embedded
