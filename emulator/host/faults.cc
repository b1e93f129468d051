#include "emulator/host/faults.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "emulator/base/cm_event_names.h"
#include "emulator/cm/events.h"
#include "emulator/cm/write_event.h"
#include "emulator/host/call_names.h"
#include "emulator/host/calls.h"

namespace rdmaemu {
namespace {

using Json = nlohmann::ordered_json;
using fault::Direction;
using fault::Moment;
using fault::Point;

// "RegMr" and "RESOLVE_ADDR" as rules have them: reg_mr, resolve_addr.
std::string SubjectOf(std::string_view name) {
  std::string subject;
  bool after_small = false;
  for (const char letter : name) {
    const auto code = static_cast<unsigned char>(letter);
    if (after_small && std::isupper(code)) subject += '_';
    after_small = std::islower(code);
    subject += static_cast<char>(std::tolower(code));
  }
  return subject;
}

bool CanFail(uint32_t op) {
  switch (CallOp{op}) {
    case CallOp::kHello:
    case CallOp::kMapSegment:
    case CallOp::kShareCallPage:
    case CallOp::kHostStatus:
    case CallOp::kHostStop:
    case CallOp::kChangeDevice:
    case CallOp::kFaultAdd:
    case CallOp::kFaultRemove:
    case CallOp::kFaultClear:
    case CallOp::kFaultList:
    case CallOp::kClock:
      return false;
    default:
      return true;
  }
}

std::string EventSubject(uint32_t event) {
  constexpr std::string_view kPrefix = "RDMA_CM_EVENT_";
  const std::string_view name = CmEventName(event);
  return SubjectOf(name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name);
}

fault::Vocabulary MakeVocabulary() {
  fault::Vocabulary words;
  auto& calls = words[static_cast<size_t>(Point::kCall)];
  for (uint32_t op = 1; op <= static_cast<uint32_t>(CallOp::kCmCommand) + kCmCommandWriteEvent;
       op++) {
    const std::string_view name = CallName(op);
    if (name != "unknown" && CanFail(op)) calls.push_back(SubjectOf(name));
  }
  const wire::CmBody kBodies[] = {wire::CmReq{},  wire::CmMra{},     wire::CmRej{},
                                  wire::CmRep{},  wire::CmRtu{},     wire::CmDreq{},
                                  wire::CmDrep{}, wire::CmSidrReq{}, wire::CmSidrRep{}};
  static_assert(std::size(kBodies) == std::variant_size_v<wire::CmBody>);
  for (const wire::CmBody& body : kBodies) {
    words[static_cast<size_t>(Point::kCmMessage)].push_back(SubjectOf(wire::CmName(body)));
  }
  for (uint32_t event = 0; event <= static_cast<uint32_t>(cm::EventType::kTimewaitExit); event++) {
    words[static_cast<size_t>(Point::kCmEvent)].push_back(EventSubject(event));
  }
  return words;
}

// The port of an RDMA CM service id; nothing where the message names none.
std::optional<uint16_t> ServicePortOf(const wire::CmMessage& message) {
  if (const auto* req = std::get_if<wire::CmReq>(&message.body)) {
    return static_cast<uint16_t>(req->service_id);
  }
  if (const auto* req = std::get_if<wire::CmSidrReq>(&message.body)) {
    return static_cast<uint16_t>(req->service_id);
  }
  return std::nullopt;
}

cm::CmRoute Back(const cm::CmRoute& route) {
  return {route.destination, route.source, route.traffic_class};
}

// What a client sent may stand in it, and need not be UTF-8.
std::string Answer(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

const fault::Vocabulary& FaultVocabulary() {
  static const fault::Vocabulary kWords = MakeVocabulary();
  return kWords;
}

void HostFaults::Pass(Time now, Direction direction, const cm::CmRoute& route,
                      const wire::CmMessage& message) {
  if (rules_.Watches(Point::kCmMessage)) {
    const bool sends = direction == Direction::kSend;
    const std::string subject = SubjectOf(wire::CmName(message.body));
    Moment moment{};
    moment.point = Point::kCmMessage;
    moment.now = now;
    moment.subject = subject;
    moment.direction = direction;
    moment.local = sends ? route.source : route.destination;
    moment.remote = sends ? route.destination : route.source;
    moment.service_port = ServicePortOf(message);
    if (const fault::Rule* const rule = rules_.Decide(moment)) {
      Trace(now, ProcessId::kNone, *rule, subject);
      return Do(now, *rule, direction, route, message);
    }
  }
  DoorOf(direction)(now, route, message);
}

void HostFaults::Do(Time now, const fault::Rule& rule, Direction direction,
                    const cm::CmRoute& route, const wire::CmMessage& message) {
  if (const auto* delay = std::get_if<fault::Delay>(&rule.action)) {
    Postpone(now + delay->time, {direction, route, message});
  } else if (const auto* duplicate = std::get_if<fault::Duplicate>(&rule.action)) {
    for (uint32_t i = 0; i <= duplicate->copies; i++) DoorOf(direction)(now, route, message);
  } else if (const auto* reject = std::get_if<fault::Reject>(&rule.action)) {
    Reject(now, *reject, direction, route, message);
  }
}

void HostFaults::Postpone(Time until, Delayed message) {
  if (delayed_.size() < kMaxDelayed) delayed_.emplace(until, std::move(message));
}

// As cm_issue_rej and cm_issue_sidr_rep do for a request that has no connection.
void HostFaults::Reject(Time now, const fault::Reject& reject, Direction direction,
                        const cm::CmRoute& route, const wire::CmMessage& message) {
  wire::CmMessage answer{message.transaction_id, 0, {}};
  const auto fill = [&](auto& private_data) {
    const size_t size = std::min(reject.private_data.size(), private_data.size());
    std::copy_n(reject.private_data.begin(), size, private_data.begin());
  };
  if (const auto* req = std::get_if<wire::CmReq>(&message.body)) {
    wire::CmRej rej;
    rej.message = wire::CmMessageType::kReq;
    rej.remote_comm_id = req->local_comm_id;
    rej.reason = reject.reason;
    fill(rej.private_data);
    answer.body = std::move(rej);
  } else if (const auto* sidr = std::get_if<wire::CmSidrReq>(&message.body)) {
    wire::CmSidrRep rep;
    rep.request_id = sidr->request_id;
    rep.service_id = sidr->service_id;
    rep.status = static_cast<uint8_t>(reject.reason);
    fill(rep.private_data);
    answer.body = std::move(rep);
  }
  // Where the request was stopped on its way out, its sender is here, and in the middle of sending.
  if (direction == Direction::kSend) {
    Postpone(now, {Direction::kReceive, Back(route), std::move(answer)});
  } else {
    send_(now, Back(route), answer);
  }
}

std::optional<fault::FailCall> HostFaults::AtCall(Time now, ProcessId process,
                                                  std::string_view program, uint32_t op) {
  if (!rules_.Watches(Point::kCall) || !CanFail(op)) return std::nullopt;
  const std::string subject = SubjectOf(CallName(op));
  Moment moment{};
  moment.point = Point::kCall;
  moment.now = now;
  moment.subject = subject;
  moment.program = program;
  const fault::Rule* const rule = rules_.Decide(moment);
  if (rule == nullptr) return std::nullopt;
  Trace(now, process, *rule, subject);
  return std::get<fault::FailCall>(rule->action);
}

void HostFaults::AtEvent(Time now, ProcessId process, std::string_view program,
                         rdma_ucm_event_resp& event) {
  if (!rules_.Watches(Point::kCmEvent)) return;
  const std::string subject = EventSubject(event.event);
  Moment moment{};
  moment.point = Point::kCmEvent;
  moment.now = now;
  moment.subject = subject;
  moment.program = program;
  const fault::Rule* const rule = rules_.Decide(moment);
  if (rule == nullptr) return;
  Trace(now, process, *rule, subject);
  const auto& change = std::get<fault::ChangeEvent>(rule->action);
  if (change.event) event.event = *change.event;
  if (change.status) event.status = static_cast<uint32_t>(*change.status);
}

void HostFaults::Expire(Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Delayed due = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    DoorOf(due.direction)(now, due.route, due.message);
  }
}

std::optional<Time> HostFaults::NextDeadline() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

std::string HostFaults::AddText(std::string_view rule) {
  auto parsed = fault::ParseRule(rule, ++rules_made_, FaultVocabulary());
  if (!parsed) return Answer({{"error", parsed.error()}});
  const std::string name = parsed->name;
  const Status added = rules_.Add(std::move(*parsed));
  if (added) return Answer({{"name", name}});
  return Answer({{"error", added.error().code == EEXIST
                               ? "there is a rule called \"" + name +
                                     "\" already; remove it first, or choose another name"
                               : "the host has " + std::to_string(fault::Rules::kMaxRules) +
                                     " rules, and takes no more; remove some"}});
}

std::string HostFaults::RemoveText(std::string_view name) {
  if (rules_.Remove(name)) return Answer({{"name", std::string(name)}});
  return Answer({{"error", "there is no rule called \"" + std::string(name) +
                               "\"; rdmaemu fault list shows them"}});
}

std::string HostFaults::ListText() const {
  Json list = Json::array();
  for (const fault::RuleState& state : rules_.all()) {
    list.push_back({{"name", state.rule.name},
                    {"at", fault::PlaceName(state.rule.point, state.rule.match.subject)},
                    {"does", fault::ActionText(state.rule.action)},
                    {"matched", state.matched},
                    {"fired", state.fired}});
  }
  return Answer(list);
}

void HostFaults::Trace(Time now, ProcessId process, const fault::Rule& rule,
                       std::string_view subject) {
  if (!trace_.wants_records()) return;
  trace::Record record{now, process, "fault", rule.name, fault::ActionText(rule.action), {}};
  record.fields.push_back({"at", fault::PlaceName(rule.point, subject)});
  trace_.Write(record);
}

}  // namespace rdmaemu
