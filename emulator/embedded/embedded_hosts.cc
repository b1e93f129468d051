#include "emulator/embedded/embedded_hosts.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "emulator/embedded/program_clock.h"
#include "emulator/runtime/host_setup.h"

namespace rdmaemu::embedded {
namespace {

// Derives a host's seed from the first host's seed. The result differs from all 64-bit seeds and
// from the seeds of the other hosts.
std::string SeedOf(const std::string& first, uint32_t number) {
  std::optional<RandomSeed> seed = runtime::ParseSeed(first);
  if (!seed) return {};
  seed->key.back() ^= number;
  return runtime::SeedText(*seed);
}

}  // namespace

runtime::OrMessage<std::unique_ptr<EmbeddedHosts>> EmbeddedHosts::Open(
    const EmbeddedOptions& options, OnEnd on_end, ProgramTimers* timers) {
  std::unique_ptr<EmbeddedHosts> made(new EmbeddedHosts(options.clock, std::move(on_end), timers));
  made->first_seed_ = options.host.seed;
  made->report_bytes_ = options.report_bytes;
  const auto first = made->Add(options);
  if (!first) return tl::unexpected(first.error());
  return made;
}

EmbeddedHosts::~EmbeddedHosts() {
  for (const auto& host : hosts_) host->Close(Now());
}

runtime::OrMessage<EmbeddedHost*> EmbeddedHosts::Add(EmbeddedOptions options) {
  const auto number = static_cast<uint32_t>(hosts_.size());
  if (number >= kMaxHosts) {
    return tl::unexpected("a process has at most " + std::to_string(kMaxHosts) +
                          " hosts until rdmaemu_close, including removed hosts");
  }
  if (const EmbeddedHost* const other = Find(options.host.name); other && !other->has_ended()) {
    return tl::unexpected("this process has a host \"" + options.host.name +
                          "\" already; choose another name, or remove that one first");
  }
  if (options.host.seed.empty()) options.host.seed = SeedOf(first_seed_, number);
  options.report_bytes = report_bytes_;
  auto made = EmbeddedHost::Make(options, number, Now(), network_, lines_);
  if (!made) return tl::unexpected(made.error());
  hosts_.push_back(std::move(*made));
  return hosts_.back().get();
}

EmbeddedHost* EmbeddedHosts::Find(std::string_view name) {
  const auto found = std::find_if(hosts_.rbegin(), hosts_.rend(),
                                  [&](const auto& each) { return each->name() == name; });
  return found == hosts_.rend() ? nullptr : found->get();
}

void EmbeddedHosts::End(EmbeddedHost& host) {
  if (host.has_ended()) return;
  // Report the end first, so that a thread that waits on a counter of this host sees it.
  if (on_end_) on_end_(host.number());
  host.End();
}

EmbeddedHosts::Firings EmbeddedHosts::FiredOf(std::string_view rule) {
  Firings firings;
  for (const auto& host : hosts_) {
    if (host->has_ended() && Find(host->name()) != host.get()) continue;
    const EmbeddedHost::FiredCounts fired = host->Fired();
    const auto found = fired.find(rule);
    if (found == fired.end()) continue;
    firings.exists = true;
    firings.may_fire |= !host->has_ended();
    firings.times += found->second;
  }
  return firings;
}

void EmbeddedHosts::ForgetFired(std::optional<std::string_view> rule) {
  for (const auto& host : hosts_) host->ForgetFired(rule);
}

std::optional<int> EmbeddedHosts::Call(EmbeddedHost& host, CallBuffers& call) {
  // A program polls after this call, so the call is part of that poll.
  if (call.op != static_cast<uint32_t>(CallOp::kPollCq)) empty_looks_ = 0;
  const std::optional<int> error = host.Call(Now(), call);
  Settle();
  return error;
}

bool EmbeddedHosts::owes_replies() const {
  return std::ranges::any_of(hosts_, [](const auto& host) { return host->owes_reply(); });
}

void EmbeddedHosts::Ring() {
  empty_looks_ = 0;
  Settle();
}

bool EmbeddedHosts::Settle() {
  bool any = false;
  for (int round = 0; round < kMaxRounds; round++) {
    const Time now = Now();
    bool found = false;
    for (const auto& host : hosts_) {
      if (!host->has_ended()) found |= host->Step(now);
    }
    found |= Deliver(now);
    for (const auto& host : hosts_) {
      if (!host->has_crashed()) continue;
      End(*host);
      found = true;
    }
    if (!found) break;
    any = true;
  }
  return any;
}

bool EmbeddedHosts::Deliver(Time now) {
  return network_.Deliver(
      [&](uint32_t number, const wire::UdpFlow& flow, std::span<const std::byte> bytes,
          const NetAddress& at) { hosts_[number]->Receive(now, flow, bytes, at); });
}

void EmbeddedHosts::JumpTo(Time time) {
  clock_.MoveTo(time);
  if (timers_ != nullptr) ProgramClock::Publish(clock_.Now());
  Settle();
  if (timers_ != nullptr) timers_->Expire(clock_.Now());
}

std::optional<Time> EmbeddedHosts::NextDeadline() {
  Earliest next;
  next.Note(NextDeadlineOfHosts());
  if (timers_ != nullptr) next.Note(timers_->NextDeadline());
  return next.deadline();
}

std::optional<Time> EmbeddedHosts::NextDeadlineOfHosts() {
  Earliest next;
  for (const auto& host : hosts_) next.Note(host->NextDeadline());
  return next.deadline();
}

std::optional<Time> EmbeddedHosts::NextJump() {
  const Time now = Now();
  const bool is_awaited =
      std::ranges::any_of(hosts_, [&](const auto& host) { return host->AwaitsApplication(now); });
  return is_awaited ? std::nullopt : NextDeadlineOfHosts();
}

EmbeddedHosts::Pause EmbeddedHosts::GoOnInProgramTime(bool alone, std::optional<Time> limit) {
  // Time does not advance while a thread of the program runs.
  if (!alone) return {.machine = kLookAgainAtThreads};
  Earliest next;
  next.Note(NextDeadline());
  next.Note(limit);
  const std::optional<Time> due = next.deadline();
  if (clock_.mode() == EmbeddedClock::Mode::kManual || !due) return {.endless = true};
  JumpTo(*due);
  return {.moved = true};
}

EmbeddedHosts::Pause EmbeddedHosts::GoOn(bool alone, std::optional<Time> limit) {
  if (Settle()) return {.moved = true};
  if (is_program_time()) return GoOnInProgramTime(alone, limit);
  const std::optional<Time> due = NextDeadline();
  if (clock_.runs()) {
    if (!due) return {.endless = alone};
    return {.machine = clock_.MachineTimeUntil(*due)};
  }
  if (clock_.mode() == EmbeddedClock::Mode::kManual || !due) return {.endless = alone};
  if (limit && *limit < *due) {
    if (!alone) clock_.PassUntil(*limit);
    return {.moved = Settle()};  // the time-out of the ended wait counts in the machine's time
  }
  const std::optional<Time> jump = alone ? due : NextJump();
  if (jump) {
    JumpTo(*jump);
    return {.moved = true};
  }
  clock_.PassUntil(*due);
  return {.moved = Settle(), .machine = clock_.MachineTimeUntil(*due)};
}

void EmbeddedHosts::Look(bool alone) {
  if (!alone) {
    GoOn(false);
  } else if (++empty_looks_ >= kPollsThatAreAWait) {
    empty_looks_ = 0;
    GoOn(true);
  } else {
    Settle();
  }
}

void EmbeddedHosts::PassTo(Time time) {
  if (clock_.mode() == EmbeddedClock::Mode::kVirtual && time > Now()) JumpTo(time);
}

bool EmbeddedHosts::Jump() {
  const std::optional<Time> due = NextDeadline();
  if (due) JumpTo(*due);
  return due.has_value();
}

void EmbeddedHosts::Advance(Duration time) {
  const Time target = Now() + time;
  Settle();
  for (int jumps = 0; jumps < kMaxJumps; jumps++) {
    const std::optional<Time> due = NextDeadline();
    if (!due || *due > target) break;
    JumpTo(*due);
  }
  JumpTo(target);
}

void EmbeddedHosts::Note(const std::string& text) {
  const std::string line = "rdmaemu: " + text + "\n";
  lines_.Next() = line;
  std::fputs(line.c_str(), stderr);
}

std::vector<EmbeddedHost::ReportPart> EmbeddedHosts::Report() {
  std::vector<EmbeddedHost::ReportPart> parts;
  for (const auto& host : hosts_) {
    if (auto part = host->Report(Now())) parts.push_back(std::move(*part));
  }
  return parts;
}

std::string EmbeddedHosts::WhyTimeStands() const {
  return clock_.mode() == EmbeddedClock::Mode::kManual
             ? "the clock is manual, and only rdmaemu_advance advances it"
             : "nothing is due on any host";
}

bool EmbeddedHosts::RunUntilIdle() {
  Settle();
  if (clock_.runs()) return true;
  for (int jumps = 0; jumps < kMaxJumps; jumps++) {
    const std::optional<Time> jump = NextJump();
    if (!jump) return true;
    JumpTo(*jump);
  }
  return false;
}

}  // namespace rdmaemu::embedded
