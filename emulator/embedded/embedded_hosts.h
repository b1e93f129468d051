// The hosts inside a process, with one clock and one network between them. They are driven by the
// threads that call them: each call runs all hosts until they rest, a wait lets time go on. Not
// thread-safe; ProcessHost is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/id_space.h"
#include "emulator/embedded/clock.h"
#include "emulator/embedded/driven_time.h"
#include "emulator/embedded/embedded_host.h"
#include "emulator/embedded/program_timers.h"

namespace rdmaemu::embedded {

class EmbeddedHosts final : public DrivenTime {
 public:
  // In all, those that have ended among them: what is left of them in the program must not be taken
  // for another host's.
  static constexpr uint32_t kMaxHosts = IdSpace::kMaxParts;
  // Rounds of work without time passing, and deadlines in a row: more is a loop, and is left.
  static constexpr int kMaxRounds = 1 << 20;
  static constexpr int kMaxJumps = 1 << 20;
  // A program of one thread that looks for completions so often, and does nothing else in between,
  // waits: then time passes over deadlines that wait for the program, too.
  static constexpr uint32_t kPollsThatAreAWait = 10'000;

  // In program time: how long a thread that waits beside one that runs sleeps until it looks again.
  static constexpr Duration kLookAgainAtThreads = std::chrono::milliseconds(1);

  // `on_end` hears of a host that ends, by its number.
  using OnEnd = std::function<void(uint32_t)>;
  // With the first host, number 0. `timers` are those of a program that lives in the hosts' time,
  // and must outlive this object; nullptr: the program has the machine's time.
  static runtime::OrMessage<std::unique_ptr<EmbeddedHosts>> Open(const EmbeddedOptions& options,
                                                                 OnEnd on_end = {},
                                                                 ProgramTimers* timers = nullptr);
  ~EmbeddedHosts() override;

  // Another host. Without a seed it has one that follows from the first one's and its number.
  runtime::OrMessage<EmbeddedHost*> Add(EmbeddedOptions options);
  // nullptr when there is no such host. Of a name: the last one that had it.
  EmbeddedHost* At(uint32_t number) {
    return number < hosts_.size() ? hosts_[number].get() : nullptr;
  }
  EmbeddedHost* Find(std::string_view name);
  const std::vector<std::unique_ptr<EmbeddedHost>>& all() const { return hosts_; }
  // Power off, as EmbeddedHost::End.
  void End(EmbeddedHost& host);
  // How often the rules of that name have fired, together: of the hosts, and of those that ended
  // and were followed by no other of their name. `exists`: one of them may fire once more, or has
  // fired.
  struct Firings {
    bool exists = false;
    bool may_fire = false;
    uint64_t times = 0;
  };
  Firings FiredOf(std::string_view rule);
  // A rule of that name is removed or another one begins, or (nothing) all are removed.
  void ForgetFired(std::optional<std::string_view> rule);
  // For the name of a rule that has none: counted over all hosts, so that names are unique.
  uint64_t NextRuleNumber() { return ++rules_made_; }

  // As EmbeddedHost's; then all hosts run until they rest.
  std::optional<int> Call(EmbeddedHost& host, CallBuffers& call);
  std::optional<int> TakeLateReply(EmbeddedHost& host, CallBuffers& call) {
    return host.TakeLateReply(call);
  }
  bool owes_replies() const override;
  // A doorbell was rung.
  void Ring();
  // Runs until nothing is ready at this moment. True when anything was.
  bool Settle() override;

  Pause GoOn(bool alone, std::optional<Time> limit = std::nullopt) override;
  // The program looked and found nothing. No time passes for a program of one thread until it has
  // looked kPollsThatAreAWait times in a row.
  void Look(bool alone) override;
  // A wait of the program timed out: virtual time has reached that moment.
  void PassTo(Time time) override;
  // Of a clock that moves only when told: to what is due next. False: nothing is.
  bool Jump();

  Time Now() override { return clock_.Now(); }
  bool limits_waits() const override {
    return clock_.mode() == EmbeddedClock::Mode::kVirtual || is_program_time();
  }
  std::string WhyTimeStands() const override;
  const EmbeddedClock& clock() const { return clock_; }
  // Of a clock that does not run: lets so much time pass, with all that happens in it.
  void Advance(Duration time);
  // Lets time jump until nothing is due or the program is awaited. False: too much happened.
  // The program's timers are not waited for.
  bool RunUntilIdle();
  bool is_program_time() const override { return timers_ != nullptr; }

  // A line of the timeline, which stderr gets as well.
  void Note(const std::string& text) override;
  std::string TraceText() const { return lines_.Text(); }

 private:
  EmbeddedHosts(runtime::ClockOption clock, OnEnd on_end, ProgramTimers* timers)
      : clock_(clock), on_end_(std::move(on_end)), timers_(timers) {}
  bool Deliver(Time now);
  void JumpTo(Time time);
  // Of the hosts, and of the program's timers.
  std::optional<Time> NextDeadline();
  std::optional<Time> NextDeadlineOfHosts();
  Pause GoOnInProgramTime(bool alone, std::optional<Time> limit);
  // As Host::NextJump, of all hosts.
  std::optional<Time> NextJump();

  EmbeddedClock clock_;
  OnEnd on_end_;
  ProgramTimers* const timers_;
  RecentLines lines_;
  EmbeddedNetwork network_;
  std::vector<std::unique_ptr<EmbeddedHost>> hosts_;  // by number
  std::string first_seed_;
  uint64_t rules_made_ = 0;
  uint32_t empty_looks_ = 0;  // in a row
};

}  // namespace rdmaemu::embedded
