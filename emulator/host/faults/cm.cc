#include "emulator/host/faults/cm.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "emulator/abi/changed_event.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

using fault::Direction;
using fault::Point;

// The size as a packet: BTH and DETH, the MAD, the ICRC.
constexpr uint64_t kMessageBytes = 20 + wire::kMadBytes + wire::kIcrcBytes;

// Returns the port of an RDMA CM service id, or nothing when the message has no service id.
std::optional<uint16_t> ServicePortOf(const wire::CmMessage& message) {
  if (const auto* req = std::get_if<wire::CmReq>(&message.body)) {
    return static_cast<uint16_t>(req->service_id);
  }
  if (const auto* req = std::get_if<wire::CmSidrReq>(&message.body)) {
    return static_cast<uint16_t>(req->service_id);
  }
  return std::nullopt;
}

template <class Body>
MessageEnds EndsOf(const Body& body) {
  MessageEnds ends;
  if constexpr (requires { body.local_comm_id; }) ends.local_comm_id = body.local_comm_id;
  if constexpr (requires { body.remote_comm_id; }) ends.remote_comm_id = body.remote_comm_id;
  if constexpr (requires { body.service_id; }) ends.service_id = body.service_id;
  if constexpr (std::is_same_v<Body, wire::CmSidrReq>) ends.local_comm_id = body.request_id;
  if constexpr (std::is_same_v<Body, wire::CmSidrRep>) ends.remote_comm_id = body.request_id;
  return ends;
}

// Returns the ends of a message, as this side of it sees them.
MessageEnds EndsOf(Direction direction, const cm::CmRoute& route, const wire::CmMessage& message) {
  MessageEnds ends = std::visit([](const auto& body) { return EndsOf(body); }, message.body);
  ends.local = route.source;
  ends.remote = route.destination;
  if (direction == Direction::kReceive) {
    std::swap(ends.local, ends.remote);
    std::swap(ends.local_comm_id, ends.remote_comm_id);
  }
  return ends;
}

cm::CmRoute Back(const cm::CmRoute& route) {
  return {route.destination, route.source, route.traffic_class, route.pkey};
}

template <class Field>
void Fill(Field& field, const std::vector<uint8_t>& bytes) {
  std::copy_n(bytes.begin(), std::min(bytes.size(), field.size()), field.begin());
}

wire::CmRej RejOf(const fault::Reject& reject, wire::CmMessageType of, uint32_t local_comm_id,
                  uint32_t remote_comm_id) {
  wire::CmRej rej;
  rej.message = of;
  rej.local_comm_id = local_comm_id;
  rej.remote_comm_id = remote_comm_id;
  rej.reason = reject.reason;
  Fill(rej.private_data, reject.private_data);
  return rej;
}

fault::Moment EventMoment(Time now, std::string_view program, std::string_view subject) {
  fault::Moment moment{};
  moment.point = Point::kCmEvent;
  moment.now = now;
  moment.subject = subject;
  moment.program = program;
  return moment;
}

}  // namespace

Status CmFaults::Pass(Time now, Direction direction, const cm::CmRoute& route,
                      const wire::CmMessage& message) {
  if (faults_.Watches(Point::kCmMessage)) {
    const bool sends = direction == Direction::kSend;
    const NetAddress& local = sends ? route.source : route.destination;
    const std::string subject = MessageSubject(message.body);
    const std::string device = device_name_(local);
    fault::Moment moment{};
    moment.point = Point::kCmMessage;
    moment.now = now;
    moment.subject = subject;
    moment.direction = direction;
    moment.device = device;
    moment.local = local;
    moment.remote = sends ? route.destination : route.source;
    moment.service_port = ServicePortOf(message);
    const FaultTarget target{.message = EndsOf(direction, route, message)};
    if (const fault::Rule* const rule = faults_.Decide(moment, ProcessId::kNone, target)) {
      return Do(now, *rule, {direction, route, message});
    }
  }
  if (faults_.Watches(Point::kLink)) {
    PassLink(now, {direction, route, message});
  } else {
    DoorOf(direction)(now, route, message);
  }
  return {};
}

void CmFaults::PassLink(Time now, Delayed passing) {
  const cm::CmRoute& route = passing.route;
  // Between two addresses of this host, a link applies on the sending side.
  const bool has_passed =
      passing.direction == Direction::kReceive && !device_name_(route.source).empty();
  LinkFaults::Verdict verdict;
  if (!has_passed) {
    verdict = links_.Pass(now, passing.direction, route.source, route.destination,
                          kMessageBytes + passing.message.more_private_data.size());
  }
  if (verdict.is_lost) return;
  if (!verdict.held_by.empty()) {
    deferred_.Hold(verdict.held_by, std::move(passing));
  } else if (verdict.until) {
    deferred_.Delay(*verdict.until, std::move(passing));
  } else {
    DoorOf(passing.direction)(now, route, passing.message);
  }
}

Status CmFaults::Do(Time now, const fault::Rule& rule, const Delayed& passing) {
  if (const auto* unreachable = std::get_if<fault::Unreachable>(&rule.action)) {
    return Fail(-unreachable->status);
  }
  if (std::holds_alternative<fault::Hold>(rule.action)) {
    deferred_.Hold(rule.name, passing);
  } else if (const auto* delay = std::get_if<fault::Delay>(&rule.action)) {
    deferred_.Delay(now + delay->time, passing);
  } else if (const auto* duplicate = std::get_if<fault::Duplicate>(&rule.action)) {
    for (uint32_t i = 0; i <= duplicate->copies; i++) {
      DoorOf(passing.direction)(now, passing.route, passing.message);
    }
  } else if (const auto* reject = std::get_if<fault::Reject>(&rule.action)) {
    Reject(now, *reject, passing);
  }
  return {};
}

// Answers as cm_issue_rej and cm_issue_sidr_rep do for a request without a connection, and as
// cm_send_rej does for one with a connection.
void CmFaults::Reject(Time now, const fault::Reject& reject, const Delayed& passing) {
  const wire::CmMessage& message = passing.message;
  wire::CmMessage answer{message.transaction_id, 0, {}};
  if (const auto* req = std::get_if<wire::CmReq>(&message.body)) {
    answer.body = RejOf(reject, wire::CmMessageType::kReq, 0, req->local_comm_id);
    AnswerRequest(now, std::move(answer), passing);
  } else if (const auto* sidr = std::get_if<wire::CmSidrReq>(&message.body)) {
    wire::CmSidrRep rep;
    rep.request_id = sidr->request_id;
    rep.service_id = sidr->service_id;
    rep.status = static_cast<uint8_t>(reject.reason);
    Fill(rep.private_data, reject.private_data);
    answer.body = std::move(rep);
    AnswerRequest(now, std::move(answer), passing);
  } else if (const auto* rep = std::get_if<wire::CmRep>(&message.body)) {
    // The active side gets a REJ instead of the REP, and the passive side gets a REJ of its REP.
    // Both sides therefore stop waiting.
    wire::CmMessage back = answer;
    back.body = RejOf(reject, wire::CmMessageType::kRep, rep->remote_comm_id, rep->local_comm_id);
    answer.body = RejOf(reject, wire::CmMessageType::kReq, rep->local_comm_id, rep->remote_comm_id);
    DoorOf(passing.direction)(now, passing.route, answer);
    AnswerRequest(now, std::move(back), passing);
  } else if (const auto* rtu = std::get_if<wire::CmRtu>(&message.body)) {
    answer.body = RejOf(reject, wire::CmMessageType::kRep, rtu->local_comm_id, rtu->remote_comm_id);
    DoorOf(passing.direction)(now, passing.route, answer);
  }
}

void CmFaults::AnswerRequest(Time now, wire::CmMessage answer, const Delayed& request) {
  // When the rule stopped an outgoing request, the sender is on this host and its call has not
  // returned.
  if (request.direction == Direction::kSend) {
    deferred_.Delay(now, {Direction::kReceive, Back(request.route), std::move(answer)});
  } else {
    send_(now, Back(request.route), answer);
  }
}

cm::EventWait CmFaults::AtQueue(Time now, std::string_view program, uint32_t event) {
  if (!faults_.Watches(Point::kCmEvent)) return {};
  const std::string subject = EventSubject(event);
  fault::Moment moment = EventMoment(now, program, subject);
  moment.is_before_queue = true;
  const fault::Rule* const rule = faults_.Decide(moment);
  if (rule == nullptr) return {};
  if (const auto* const delay = std::get_if<fault::Delay>(&rule->action)) {
    return {{}, now + delay->time};
  }
  if (std::holds_alternative<fault::Drop>(rule->action)) return {{}, {}, true};
  return {rule->name, {}};
}

void CmFaults::AtEvent(Time now, ProcessId process, std::string_view program,
                       rdma_ucm_event_resp& event) {
  if (!faults_.Watches(Point::kCmEvent)) return;
  const std::string subject = EventSubject(event.event);
  const fault::Rule* const rule =
      faults_.Decide(EventMoment(now, program, subject), process, FaultTarget{.id = event.id});
  if (rule == nullptr) return;
  const auto& change = std::get<fault::ChangeEvent>(rule->action);
  if (change.event) ChangeEventType(event, *change.event);
  if (change.status) event.status = static_cast<uint32_t>(*change.status);
  if (change.private_data.empty()) return;
  std::ranges::copy(change.private_data, event.param.conn.private_data);
  event.param.conn.private_data_len = static_cast<uint8_t>(change.private_data.size());
}

void CmFaults::Expire(Time now) {
  deferred_.Expire(now,
                   [&](const Delayed& due) { DoorOf(due.direction)(now, due.route, due.message); });
}

}  // namespace rdmaemu
