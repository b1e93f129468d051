// The fault rules of a host: what decides about the moments at its doors, and what its control asks
// and changes. The doors themselves (faults_*.h) describe what passes as a fault::Moment and do
// what the rule says. Every firing is in the trace.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "emulator/base/ids.h"
#include "emulator/fault/held.h"
#include "emulator/fault/rules.h"
#include "emulator/fault/scenario.h"
#include "emulator/host/faults/waits.h"
#include "emulator/trace/trace.h"
#include "emulator/transport/doors.h"

namespace rdmaemu {

// Everything that a rule can name.
const fault::Vocabulary& FaultVocabulary();

// What rules wanted to keep for later and found no room for; `fault_no_room` in the host's status.
struct FaultCounters {
  uint64_t delayed_calls_full = 0;        // answered at once
  uint64_t delayed_messages_full = 0;     // lost
  uint64_t delayed_completions_full = 0;  // delivered at once
  uint64_t delayed_async_events_full = 0, kept_packets_full = 0, deeds_full = 0;  // lost
  uint64_t paused_datagrams_full = 0;  // for a host that stood still; lost
};

// The queue pair that a moment is of.
struct FaultTarget {
  GroupId group = GroupId::kNone;
  Handle qp = 0;
};
// The QP goes to ERR, as after the completion that says so.
struct FailQpDeed {
  FaultTarget target;
};
// What a rule does when its moment is over, with what the moment was of.
struct ObjectDeed {
  fault::Deed what;
  FaultTarget target;
  std::string device;
};
using FaultDeed = std::variant<FailQpDeed, ObjectDeed>;

class HostFaults {
 public:
  // Deeds that wait for the moment to end; more are lost.
  static constexpr size_t kMaxDeeds = 4096;

  HostFaults(const RandomSeed& seed, std::string host_name, trace::Sink& trace)
      : rules_(seed), host_name_(std::move(host_name)), trace_(trace) {}

  // At each entry into the host.
  void SetNow(Time now) {
    if (!began_) rules_.Begin(now);
    began_ = true;
    now_ = now;
  }
  Time now() const { return now_; }

  bool Watches(fault::Point point) const { return rules_.Watches(point); }
  // The rule that decides about the moment, which has been traced; nullptr: it passes as it is,
  // also where the rule does something to the host (which is then queued).
  const fault::Rule* Decide(const fault::Moment& moment, ProcessId process = ProcessId::kNone,
                            FaultTarget target = {});
  double Draw(const fault::Rule& rule, const fault::Moment& moment) {
    return rules_.Draw(rule.name, moment);
  }
  // Rules whose time has come.
  void Expire(Time now);
  // Somebody's answer is there, which waits for no time.
  bool AnyWaitEnded() const { return waits_.any_ended(); }
  std::optional<Time> NextDeadline() const {
    return AnyWaitEnded() ? std::optional(now_) : rules_.NextTime();
  }

  // What is to be done between two steps of the host.
  void Queue(FaultDeed deed);
  bool HasDeeds() const { return !deeds_.empty(); }
  std::optional<FaultDeed> TakeDeed();

  // A rule for another host is not taken. Errors as fault::Rules::Add.
  Status Add(fault::Rule rule);
  // The calls of a running host's control (calls.h, kFault*): JSON texts.
  std::string AddText(std::string_view rule);
  std::string RemoveText(std::string_view name);
  // The answer alone: the doors let go.
  std::string ReleaseText(std::string_view name) const;
  std::string ListText(const fault::HeldCounts& held = {}) const;
  void Clear();

  // The answer when the rule has fired so often; nothing: it comes by TakeLateText.
  std::optional<std::string> WaitText(ProcessId process, std::string_view name, uint64_t times);
  struct LateText {
    ProcessId process;
    std::string text;
  };
  std::optional<LateText> TakeLateText();
  // Nobody waits for the process's answers any more.
  void Forget(ProcessId process) { waits_.Forget(process); }

  const transport::DoorFlags& flags() const { return flags_; }
  // WatchBit of the posts and polls at which a rule stands.
  uint32_t watched_calls() const { return watched_calls_; }
  FaultCounters& counters() { return counters_; }
  const FaultCounters& counters() const { return counters_; }

 private:
  bool IsForAnotherHost(const fault::Rule& rule) const {
    return !rule.match.host.empty() && rule.match.host != host_name_;
  }
  void SetFlags();
  void Fired(const fault::Moment& moment, ProcessId process, const fault::Rule& rule);
  void Trace(const fault::Moment& moment, ProcessId process, const fault::Rule& rule);

  fault::Rules rules_;
  std::string host_name_;
  trace::Sink& trace_;
  bool began_ = false;
  Time now_{};
  std::deque<FaultDeed> deeds_;
  transport::DoorFlags flags_;
  uint32_t watched_calls_ = 0;
  FaultCounters counters_;
  FaultWaits waits_;
  size_t rules_made_ = 0;  // for the names of those that have none
};

}  // namespace rdmaemu
