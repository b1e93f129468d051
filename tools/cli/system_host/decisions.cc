#include "tools/cli/system_host/decisions.h"

#include <algorithm>
#include <cstring>

#include "emulator/fault/scenario.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu::cli {
namespace {

using fault::Point;
using layer::faults::AnswerOut;
using layer::faults::Does;
using layer::faults::Door;
using layer::faults::kCallSubjects;
using layer::faults::MomentIn;

static_assert(static_cast<uint8_t>(Point::kCall) == static_cast<uint8_t>(Door::kCall));
static_assert(static_cast<uint8_t>(Point::kCmEvent) == static_cast<uint8_t>(Door::kCmEvent));
static_assert(static_cast<uint8_t>(Point::kCompletion) == static_cast<uint8_t>(Door::kCompletion));
static_assert(static_cast<uint8_t>(Point::kAsyncEvent) == static_cast<uint8_t>(Door::kAsyncEvent));
static_assert(static_cast<uint8_t>(Point::kMemory) == static_cast<uint8_t>(Door::kMemory));

class NoTrace final : public trace::Sink {
 public:
  bool wants_records() const override { return false; }
  void Write(const trace::Record&) override {}
  bool wants_packets() const override { return false; }
  void WritePacket(Time, const wire::UdpFlow&, std::span<const std::byte>) override {}
};
NoTrace g_no_trace;

std::string SubjectOf(const MomentIn& in) {
  switch (static_cast<Point>(in.door)) {
    case Point::kCall:
      return in.number < std::size(kCallSubjects) ? kCallSubjects[in.number] : "";
    case Point::kCmEvent:
      return EventSubject(in.number);
    case Point::kCompletion:
      return CompletionSubject(in.status, static_cast<ibv_wc_opcode>(in.number));
    case Point::kAsyncEvent:
      return AsyncSubject(static_cast<ibv_event_type>(in.number));
    case Point::kMemory:
      return in.number == layer::faults::kWritesMemory ? "write" : "read";
    default:
      return "";
  }
}

AnswerOut Answer(Does does, uint32_t flags = 0, uint32_t type = 0, int32_t value = 0) {
  return {static_cast<uint32_t>(does), flags, type, value, {}, 0, {}};
}

// Returns what to use in place of a point that this backend does not have. nullptr: it has the
// point.
const char* InsteadOf(Point point) {
  switch (point) {
    case Point::kCmMessage:
      return "a rule at event, such as: at = \"event.connect_response\", event = \"rejected\","
             " status = 28";
    case Point::kPacket:
    case Point::kLink:
      return "a rule at wc or event, or tc-netem(8) on the device's network interface";
    case Point::kTime:
      return "rdmaemu fault add at that time";
    default:
      return nullptr;
  }
}

// The replacements for actions on the host.
struct InsteadOfDeed {
  const char* operator()(const fault::RemoveDevice&) const {
    return "rdma link delete DEVICE, or event = \"device_removal\" at an event";
  }
  const char* operator()(const fault::SetPort&) const { return "ip link set INTERFACE down"; }
  const char* operator()(const fault::RemoveAddress&) const { return "ip address delete"; }
  const char* operator()(const fault::MoveAddress&) const { return "ip address"; }
  const char* operator()(const fault::SetPkey&) const { return "the subnet manager"; }
  const char* operator()(const fault::RaiseAsync&) const {
    return "async at async.NAME, which changes an event that the device raises";
  }
  const char* operator()(const fault::PauseHost&) const { return "kill -STOP PROCESS"; }
  const char* operator()(const fault::CrashHost&) const { return "kill -KILL PROCESS"; }
  const char* operator()(const fault::EndProgram&) const { return "kill -KILL PROCESS"; }
};

bool IsCallHere(const std::string& subject) {
  return std::ranges::any_of(kCallSubjects, [&](const char* each) { return subject == each; });
}

}  // namespace

std::optional<std::string> WhyNotOnSystem(const fault::Rule& rule) {
  const std::string begin = "rule \"" + rule.name + "\": --backend system has no ";
  const std::string end = "; use ";
  if (const char* const instead = InsteadOf(rule.point)) {
    return begin + fault::PlacesText(rule) + end + instead;
  }
  if (rule.point == Point::kCall) {
    for (const std::string& subject : rule.match.subjects) {
      if (IsCallHere(subject)) continue;
      return begin + "call." + subject + end + "the call of the program that makes this step";
    }
  }
  const std::string action = fault::ActionText(rule.action);
  if (const auto* const deed = std::get_if<fault::Deed>(&rule.action)) {
    return begin + action + end + std::visit(InsteadOfDeed{}, *deed);
  }
  if (std::holds_alternative<fault::Duplicate>(rule.action)) {
    return begin + action + end + "drop or status";
  }
  return std::nullopt;
}

Decisions::Decisions(const RandomSeed& seed, const std::string& host_name, trace::Sink* trace)
    : host_name_(host_name),
      trace_(trace == nullptr ? g_no_trace : *trace),
      faults_(seed, host_name, trace_),
      deferred_(kMaxWaiting, refused_),
      control_(faults_, {[this](Time now, const fault::Release& release) {
                           deferred_.Release(now, release);
                         },
                         [this](fault::HeldCounts& held) { deferred_.CountHeld(held); }}) {
  faults_.SetRefusal(WhyNotOnSystem);
}

std::optional<std::string> Decisions::Add(std::vector<fault::Rule> rules) {
  for (fault::Rule& rule : rules) {
    if (!rule.match.host.empty() && rule.match.host != host_name_) continue;
    if (auto wrong = WhyNotOnSystem(rule)) return wrong;
    const std::string name = rule.name;
    if (const Status added = faults_.Add(std::move(rule)); !added) {
      return "rule \"" + name + "\": " + std::strerror(added.error().code);
    }
  }
  return std::nullopt;
}

AnswerOut Decisions::Ask(Time now, uint32_t connection, const std::string& program,
                         const MomentIn& in) {
  faults_.SetNow(now);
  const std::string subject = SubjectOf(in);
  if (subject.empty()) return Answer(Does::kProceed);
  fault::Moment moment{};
  moment.point = static_cast<Point>(in.door);
  moment.now = now;
  moment.subject = subject;
  moment.program = program;
  moment.device = {in.device, strnlen(in.device, sizeof in.device)};
  if (in.qp_order != 0) {
    moment.qp = in.qp;
    moment.qp_order = in.qp_order;
  }
  if (in.has_bytes != 0) moment.bytes = in.bytes;
  if (moment.point == Point::kMemory) moment.memory = MemoryRange{in.address, in.length};
  if (in.mr_order != 0) moment.mr_order = in.mr_order;
  if (moment.point == Point::kCompletion) TraceError(now, in);
  const fault::Rule* const rule = Decide(moment);
  if (rule == nullptr) return Answer(Does::kProceed);
  AnswerOut answer = AnswerOf(now, connection, *rule);
  rule->name.copy(answer.rule, sizeof answer.rule - 1);
  return answer;
}

// Writes the record that an emulated host writes for a failed completion.
void Decisions::TraceError(Time now, const MomentIn& in) {
  if (in.status == IBV_WC_SUCCESS || !trace_.wants_records()) return;
  trace_.Write({.time = now,
                .process = ProcessId::kNone,
                .kind = "wc.error",
                .object = "qp " + std::to_string(in.qp),
                .what = "status " + std::to_string(in.status),
                .fields = {{"status", int64_t{in.status}}}});
}

const fault::Rule* Decisions::Decide(fault::Moment& moment) {
  if (moment.point == Point::kCmEvent) {
    // The event's first moment counts the event, and decides whether it is lost.
    moment.is_before_queue = true;
    if (const fault::Rule* const loses = faults_.Decide(moment)) return loses;
    moment.is_before_queue = false;
  }
  return faults_.Decide(moment);
}

AnswerOut Decisions::AnswerOf(Time now, uint32_t connection, const fault::Rule& rule) {
  if (const auto* fail = std::get_if<fault::FailCall>(&rule.action)) {
    return Answer(fail->takes_effect ? Does::kFailAfter : Does::kFail, 0, 0, fail->errno_value);
  }
  if (const auto* change = std::get_if<fault::ChangeEvent>(&rule.action)) {
    AnswerOut answer = Answer(Does::kChange,
                              (change->event ? layer::faults::kHasType : 0u) |
                                  (change->status ? layer::faults::kHasValue : 0u),
                              change->event.value_or(0), change->status.value_or(0));
    const std::vector<uint8_t>& data = change->private_data;
    answer.private_data_bytes =
        static_cast<uint32_t>(std::min(data.size(), sizeof answer.private_data));
    std::copy_n(data.begin(), answer.private_data_bytes, answer.private_data);
    return answer;
  }
  if (const auto* change = std::get_if<fault::ChangeCompletion>(&rule.action)) {
    return Answer(Does::kChange, change->keeps_state ? layer::faults::kKeepsState : 0u, 0,
                  static_cast<int32_t>(change->status));
  }
  if (const auto* change = std::get_if<fault::ChangeAsync>(&rule.action)) {
    return Answer(Does::kChange, 0, change->type);
  }
  if (std::holds_alternative<fault::Drop>(rule.action)) return Answer(Does::kDrop);
  if (std::holds_alternative<fault::Unmap>(rule.action)) return Answer(Does::kFail);
  if (!deferred_.HasRoom()) return Answer(Does::kProceed);
  if (const auto* hold = std::get_if<fault::Hold>(&rule.action)) {
    deferred_.PutHeld(rule.name, connection);
    waits_[connection] = Wait::kNotAwaited;
    return Answer(hold->takes_effect ? Does::kWaitAfter : Does::kWaitBefore);
  }
  if (const auto* delay = std::get_if<fault::Delay>(&rule.action)) {
    deferred_.Put(now + delay->time, connection);
    waits_[connection] = Wait::kNotAwaited;
    return Answer(delay->takes_effect ? Does::kWaitAfter : Does::kWaitBefore);
  }
  return Answer(Does::kProceed);
}

bool Decisions::Await(uint32_t connection) {
  const auto wait = waits_.find(connection);
  if (wait == waits_.end()) return true;
  if (wait->second == Wait::kOver) {
    waits_.erase(wait);
    return true;
  }
  wait->second = Wait::kAwaited;
  return false;
}

Reply Decisions::Control(Time now, uint32_t connection, CallOp op,
                         std::span<const std::byte> body) {
  faults_.SetNow(now);
  return control_.Call(now, ProcessId{connection}, op, body);
}

void Decisions::Forget(uint32_t connection) {
  deferred_.Forget([&](uint32_t each) { return each == connection; });
  faults_.Forget(ProcessId{connection});
  waits_.erase(connection);
  std::erase(ready_, connection);
}

void Decisions::Expire(Time now) {
  faults_.SetNow(now);
  deferred_.Expire(now, [&](uint32_t connection) {
    const auto wait = waits_.find(connection);
    if (wait->second == Wait::kAwaited) {
      ready_.push_back(connection);
      waits_.erase(wait);
    } else {
      wait->second = Wait::kOver;
    }
  });
}

std::optional<uint32_t> Decisions::TakeReady() {
  if (ready_.empty()) return std::nullopt;
  const uint32_t next = ready_.front();
  ready_.pop_front();
  return next;
}

void Decisions::SetDoors(layer::faults::DoorsPage& page) const {
  for (size_t i = 0; i < std::size(kCallSubjects); i++) {
    page.calls[i] = faults_.Watches(Point::kCall, kCallSubjects[i]);
  }
  page.cm_events = faults_.Watches(Point::kCmEvent);
  page.completions = faults_.Watches(Point::kCompletion);
  page.async_events = faults_.Watches(Point::kAsyncEvent);
  page.memory = faults_.Watches(Point::kMemory);
}

}  // namespace rdmaemu::cli
