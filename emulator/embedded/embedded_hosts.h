// The hosts inside a process, with one clock and one network between them. The program's threads
// run them: each call runs all hosts until none has work, and a wait advances time. Not
// thread-safe. ProcessHost adds the lock.
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
  // Limit of all hosts, including ended ones. A number is never reused, because the program may
  // still hold objects of an ended host.
  static constexpr uint32_t kMaxHosts = IdSpace::kMaxParts;
  // Limits for rounds of work at one time, and for consecutive deadlines without other work. The
  // hosts treat more as an endless loop and stop.
  static constexpr int kMaxRounds = 1 << 20;
  static constexpr int kMaxJumps = 1 << 20;
  // A program of one thread counts as waiting after this many consecutive polls without a
  // completion. Time then advances, even beyond deadlines that wait for the program.
  static constexpr uint32_t kPollsThatAreAWait = 10'000;

  // In program time, a thread that waits while another thread runs checks the other threads again
  // after this time.
  static constexpr Duration kLookAgainAtThreads = std::chrono::milliseconds(1);

  // Called with the number of a host that ends.
  using OnEnd = std::function<void(uint32_t)>;
  // Opens the hosts with the first one, number 0. `timers` are those of a program whose clocks show
  // the hosts' time. `timers` must outlive this object. nullptr: the program uses the machine's
  // time.
  static runtime::OrMessage<std::unique_ptr<EmbeddedHosts>> Open(const EmbeddedOptions& options,
                                                                 OnEnd on_end = {},
                                                                 ProgramTimers* timers = nullptr);
  ~EmbeddedHosts() override;

  // Adds a host. Without a seed, its seed is derived from the first host's seed and its number.
  runtime::OrMessage<EmbeddedHost*> Add(EmbeddedOptions options);
  // Returns nullptr if there is no such host. If several hosts had the name, Find returns the
  // latest.
  EmbeddedHost* At(uint32_t number) {
    return number < hosts_.size() ? hosts_[number].get() : nullptr;
  }
  EmbeddedHost* Find(std::string_view name);
  const std::vector<std::unique_ptr<EmbeddedHost>>& all() const { return hosts_; }
  // Ends a host as by power off (EmbeddedHost::End).
  void End(EmbeddedHost& host);
  // How often the rules of one name have fired, in total over all hosts. An ended host counts
  // unless a newer host has its name. `exists`: one of the rules may fire again, or has fired.
  struct Firings {
    bool exists = false;
    bool may_fire = false;
    uint64_t times = 0;
  };
  Firings FiredOf(std::string_view rule);
  // Deletes the firing counts of ended hosts for a rule that is removed or added again. nullopt:
  // for all rules.
  void ForgetFired(std::optional<std::string_view> rule);
  // Returns the number in the name of an unnamed rule. The numbers count over all hosts, so that
  // names are unique.
  uint64_t NextRuleNumber() { return ++rules_made_; }

  // Calls EmbeddedHost::Call, then runs all hosts until none has work.
  std::optional<int> Call(EmbeddedHost& host, CallBuffers& call);
  std::optional<int> TakeLateReply(EmbeddedHost& host, CallBuffers& call) {
    return host.TakeLateReply(call);
  }
  bool owes_replies() const override;
  // Runs the hosts after the program rang a doorbell.
  void Ring();
  // Runs until no work is ready at the present time. Returns true if any work was ready.
  bool Settle() override;

  Pause GoOn(bool alone, std::optional<Time> limit = std::nullopt) override;
  // Handles an empty poll of the program. In a program of one thread, time advances only after
  // kPollsThatAreAWait consecutive empty polls.
  void Look(bool alone) override;
  // Advances virtual time to the time-out of a program's wait.
  void PassTo(Time time) override;
  // Jumps to the next deadline, for a manual clock. Returns false if there is none.
  bool Jump();

  Time Now() override { return clock_.Now(); }
  bool limits_waits() const override {
    return clock_.mode() == EmbeddedClock::Mode::kVirtual || is_program_time();
  }
  std::string WhyTimeStands() const override;
  const EmbeddedClock& clock() const { return clock_; }
  // Advances a virtual or manual clock by `time`, and does all work that becomes due meanwhile.
  void Advance(Duration time);
  // Advances time from deadline to deadline until no deadline is left or a host waits for the
  // program. Returns false after kMaxJumps jumps. Ignores the program's timers.
  bool RunUntilIdle();
  bool is_program_time() const override { return timers_ != nullptr; }

  // Adds a line to the timeline and prints it to stderr.
  void Note(const std::string& text) override;
  std::string TraceText() const { return lines_.Text(); }
  // Returns the part of each host, by number. Empty if the hosts keep nothing for a report.
  std::vector<EmbeddedHost::ReportPart> Report();

 private:
  EmbeddedHosts(runtime::ClockOption clock, OnEnd on_end, ProgramTimers* timers)
      : clock_(clock), on_end_(std::move(on_end)), timers_(timers) {}
  bool Deliver(Time now);
  void JumpTo(Time time);
  // Returns the next deadline of the hosts and of the program's timers.
  std::optional<Time> NextDeadline();
  std::optional<Time> NextDeadlineOfHosts();
  Pause GoOnInProgramTime(bool alone, std::optional<Time> limit);
  // Returns the next deadline of all hosts, or nullopt if a host waits for the program.
  std::optional<Time> NextJump();

  EmbeddedClock clock_;
  OnEnd on_end_;
  ProgramTimers* const timers_;
  RecentLines lines_;
  EmbeddedNetwork network_;
  std::vector<std::unique_ptr<EmbeddedHost>> hosts_;  // by number
  std::string first_seed_;
  size_t report_bytes_ = 0;
  uint64_t rules_made_ = 0;
  uint32_t empty_looks_ = 0;  // consecutive
};

}  // namespace rdmaemu::embedded
