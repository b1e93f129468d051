#include "emulator/embedded/domain_time.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "emulator/embedded/libc_waits.h"
#include "emulator/embedded/program_clock.h"
#include "emulator/embedded/threads.h"

namespace rdmaemu::embedded {

std::atomic<bool> DomainTime::is_joined_{false}, DomainTime::is_idle_{false};
std::atomic<int64_t> DomainTime::looked_ns_{0};

bool DomainTime::MayHaveStopped() {
  if (!IsJoined()) return false;
  timespec now{};
  Libc().clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ns =
      (std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)).count();
  if (now_ns - looked_ns_.load(std::memory_order_relaxed) < kLookAfter.count()) return false;
  looked_ns_.store(now_ns, std::memory_order_relaxed);
  return true;
}

runtime::OrMessage<std::unique_ptr<DomainTime>> DomainTime::Join(
    ProgramTimers& timers, std::function<bool(pid_t)> is_waiting) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return tl::unexpected(registry.error());
  auto domain = runtime::TimeDomain::JoinProgram(*registry);
  if (!domain) return tl::unexpected(domain.error());
  is_joined_ = true;
  is_idle_ = false;
  if (const runtime::TimeDomain::Alarm& kept = (*domain)->kept_alarm(); kept.due) {
    timers.Set(timers.alarm(), {kept.due, kept.interval}, (*domain)->At({}));
  }
  return std::unique_ptr<DomainTime>(
      new DomainTime(std::move(*domain), timers, std::move(is_waiting)));
}

void DomainTime::Leave() {
  const auto registry = runtime::Registry::Open();
  if (registry) (void)runtime::TimeDomain::JoinProgram(*registry);
}

DrivenTime::Pause DomainTime::GoOn(bool alone, std::optional<Time> limit) {
  if (!alone) {
    Resume();
    return {.machine = runtime::TimeDomain::kLookAgain};
  }
  Earliest next;
  next.Note(timers_.NextDeadline());
  next.Note(limit);
  // A thread may have done work that this library did not see and that is in flight to another
  // member.
  const uint64_t ran_ns = OthersRan_ns([this](pid_t thread) { return !is_waiting_(thread); });
  const bool did_work = std::exchange(did_work_, false) || ran_ns_ != ran_ns;
  ran_ns_ = ran_ns;
  is_idle_ = true;
  const runtime::TimeDomain::Answer answer = domain_->BecomeIdle(
      runtime::RealNow(), {next.deadline(), /*awaits_application=*/false, did_work});
  if (const std::optional<std::string> damage = domain_->TakeDamage()) Note(*damage);
  if (!answer.is_due) return {.machine = answer.look_again};
  Resume();
  timers_.Expire(Now());
  return {.moved = true};
}

bool DomainTime::AwaitsProcess() {
  domain_->BeginLook();
  domain_->TakeWake();
  std::vector<pid_t> living, ended;
  for (const auto [process, has_ended] : domain_->Strangers(ChildProcesses())) {
    (has_ended ? ended : living).push_back(process);
  }
  const bool begins = living_.Ran(living, kMostUntilMember);
  return ended_.Ran(ended, kMostUntilParentWakes) || begins;
}

void DomainTime::Resume() {
  did_work_ = true;
  if (!is_idle_) return;
  is_idle_ = false;
  domain_->BecomeBusy();
  ProgramClock::Publish(Now());
}

void DomainTime::LookAgain() {
  if (!is_idle_ && domain_->LookAgain()) ProgramClock::Publish(Now());
}

void DomainTime::Note(const std::string& text) {
  std::fprintf(stderr, "rdmaemu: %s\n", text.c_str());
}

}  // namespace rdmaemu::embedded
