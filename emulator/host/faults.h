// Fault rules at the doors of a host: calls, CM messages in both directions, CM events. A door
// describes what passes as a fault::Moment; the rules decide; the door does it. Every firing is in
// the trace.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/cm/cm.h"
#include "emulator/fault/rules.h"
#include "emulator/fault/scenario.h"
#include "emulator/trace/trace.h"

namespace rdmaemu {

// Every call, CM message and CM event that a rule can name.
const fault::Vocabulary& FaultVocabulary();

class HostFaults {
 public:
  // Messages that wait for their time; more are lost.
  static constexpr size_t kMaxDelayed = 65536;

  // Where messages go on to: the fabric, and the connection manager.
  using Door = std::function<void(Time, const cm::CmRoute&, const wire::CmMessage&)>;
  HostFaults(const RandomSeed& seed, trace::Sink& trace, Door send, Door receive)
      : rules_(seed), trace_(trace), send_(std::move(send)), receive_(std::move(receive)) {}

  // A message on its way out or in: passes on, later, more than once, or not at all.
  void Pass(Time now, fault::Direction direction, const cm::CmRoute& route,
            const wire::CmMessage& message);
  // What a call (CallOp) of a program answers instead of, or after, taking effect.
  std::optional<fault::FailCall> AtCall(Time now, ProcessId process, std::string_view program,
                                        uint32_t op);
  // An event that a program is about to get.
  void AtEvent(Time now, ProcessId process, std::string_view program, rdma_ucm_event_resp& event);

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

  Status Add(fault::Rule rule) { return rules_.Add(std::move(rule)); }
  // The calls of a running host's control (calls.h, kFault*): JSON texts.
  std::string AddText(std::string_view rule);
  std::string RemoveText(std::string_view name);
  std::string ListText() const;
  void Clear() { rules_.Clear(); }

 private:
  struct Delayed {
    fault::Direction direction;
    cm::CmRoute route;
    wire::CmMessage message;
  };

  const Door& DoorOf(fault::Direction direction) const {
    return direction == fault::Direction::kSend ? send_ : receive_;
  }
  void Do(Time now, const fault::Rule& rule, fault::Direction direction, const cm::CmRoute& route,
          const wire::CmMessage& message);
  void Postpone(Time until, Delayed message);
  void Reject(Time now, const fault::Reject& reject, fault::Direction direction,
              const cm::CmRoute& route, const wire::CmMessage& message);
  void Trace(Time now, ProcessId process, const fault::Rule& rule, std::string_view subject);

  fault::Rules rules_;
  trace::Sink& trace_;
  Door send_, receive_;
  std::multimap<Time, Delayed> delayed_;
  size_t rules_made_ = 0;  // for the names of those that have none
};

}  // namespace rdmaemu
