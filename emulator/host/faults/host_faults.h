// The fault rules of a host. HostFaults decides about the moments at the doors, and implements the
// calls of the host's control. The doors (the other headers in this folder) describe each event as
// a fault::Moment, and execute the rule's action. HostFaults traces every firing.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "emulator/base/ids.h"
#include "emulator/fault/held.h"
#include "emulator/fault/rules.h"
#include "emulator/fault/scenario.h"
#include "emulator/host/faults/waits.h"
#include "emulator/trace/trace.h"
#include "emulator/transport/doors.h"

namespace rdmaemu {

// Returns the names of everything that a rule can name.
const fault::Vocabulary& FaultVocabulary();

// Counts deferred items that found no room. `fault_no_room` in the host's status shows the sum.
struct FaultCounters {
  uint64_t delayed_calls_full = 0;        // replies sent at once
  uint64_t delayed_messages_full = 0;     // lost
  uint64_t delayed_completions_full = 0;  // delivered at once
  uint64_t delayed_async_events_full = 0, kept_packets_full = 0, deeds_full = 0;  // lost
  uint64_t paused_datagrams_full = 0;  // datagrams for a paused host; lost
};

// The two ends of a CM message, with their communication ids. 0: the message has no such id.
struct MessageEnds {
  NetAddress local, remote;
  uint32_t local_comm_id = 0, remote_comm_id = 0;
  uint64_t service_id = 0;  // of a REQ or SIDR_REQ
};
// The object of a moment: a queue pair, an id of RDMA CM, or a CM message.
struct FaultTarget {
  GroupId group = GroupId::kNone;
  Handle qp = 0;
  uint32_t id = 0;
  std::optional<MessageEnds> message = {};
};
// Moves the QP to ERR, as after the completion that reports the error.
struct FailQpDeed {
  FaultTarget target;
};
// A deed of a rule, with the moment's target. The host executes it after the moment.
struct ObjectDeed {
  fault::Deed what;
  FaultTarget target;
  std::string device;
};
// Ends these processes, as they were found at the moment.
struct EndProgramDeed {
  std::string rule;
  fault::EndProgram what;
  std::vector<ProcessId> processes;  // empty: this host has no such program
};
using FaultDeed = std::variant<FailQpDeed, ObjectDeed, EndProgramDeed>;

class HostFaults {
 public:
  // Limit of the pending deeds of the current moment. Further deeds are lost.
  static constexpr size_t kMaxDeeds = 4096;

  HostFaults(const RandomSeed& seed, std::string host_name, trace::Sink& trace)
      : rules_(seed), host_name_(std::move(host_name)), trace_(trace) {}

  // Call this at each entry into the host.
  void SetNow(Time now) {
    if (!began_) rules_.Begin(now);
    began_ = true;
    now_ = now;
  }
  Time now() const { return now_; }

  bool HasRules() const { return !rules_.all().empty(); }
  bool Watches(fault::Point point) const { return rules_.Watches(point); }
  bool Watches(fault::Point point, std::string_view subject) const {
    return rules_.Watches(point, subject);
  }
  // Returns the rule that decides about the moment, after tracing it. nullptr: the door changes
  // nothing. A rule whose deed affects the host also gives nullptr. Its deed is then queued.
  const fault::Rule* Decide(const fault::Moment& moment, ProcessId process = ProcessId::kNone,
                            FaultTarget target = {});
  double Draw(const fault::Rule& rule, const fault::Moment& moment) {
    return rules_.Draw(rule.name, moment);
  }
  // Fires the rules whose time is due.
  void Expire(Time now);
  // Returns true when a wait has ended whose reply can be sent now.
  bool AnyWaitEnded() const { return waits_.any_ended(); }
  std::optional<Time> NextDeadline() const {
    return AnyWaitEnded() ? std::optional(now_) : rules_.NextTime();
  }

  // Queues a deed, which the host executes between two of its steps.
  void Queue(FaultDeed deed);
  bool HasDeeds() const { return !deeds_.empty(); }
  // There must be one.
  FaultDeed TakeDeed();

  // Sets how the programs of a rule with end_program are found. Without it there are none.
  using FindPrograms = std::function<std::vector<ProcessId>(fault::EndProgram::Which, ProcessId,
                                                            const FaultTarget&)>;
  void SetFindPrograms(FindPrograms find) { find_programs_ = std::move(find); }

  // Makes AddText refuse rules for which `why_not` returns an error.
  using WhyNot = std::function<std::optional<std::string>(const fault::Rule&)>;
  void SetRefusal(WhyNot why_not) { why_not_ = std::move(why_not); }
  // Adds a rule. A rule for another host is ignored. Errors as in fault::Rules::Add.
  Status Add(fault::Rule rule);
  // The calls of a running host's control (calls.h, kFault*), with JSON texts.
  std::string AddText(std::string_view rule);
  std::string RemoveText(std::string_view name);
  // Returns the reply only. The doors release the held items.
  std::string ReleaseText(std::string_view name) const;
  std::string ListText(const fault::HeldCounts& held = {}) const;
  // Traces that a process releases the items of a barrier.
  void TraceRelease(Time now, ProcessId process, std::string_view rule, uint64_t items);
  void Clear();

  // Returns the reply when the rule has already fired `times` times. Otherwise returns nothing, and
  // TakeLateText returns the reply later.
  std::optional<std::string> WaitText(ProcessId process, std::string_view name, uint64_t times);
  struct LateText {
    ProcessId process;
    std::string text;
  };
  std::optional<LateText> TakeLateText();
  // Cancels the process's waits.
  void Forget(ProcessId process) { waits_.Forget(process); }

  const transport::DoorFlags& flags() const { return flags_; }
  // Returns the WatchBits of the posts and polls that have a rule.
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
  WhyNot why_not_;
  FindPrograms find_programs_;
  bool began_ = false;
  Time now_{};
  std::deque<FaultDeed> deeds_;
  transport::DoorFlags flags_;
  uint32_t watched_calls_ = 0;
  FaultCounters counters_;
  FaultWaits waits_;
  size_t rules_made_ = 0;  // for the names of unnamed rules
};

}  // namespace rdmaemu
