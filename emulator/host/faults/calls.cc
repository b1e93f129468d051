#include "emulator/host/faults/calls.h"

#include <cstring>

#include "emulator/cm/commands.h"
#include "emulator/host/calls/call_target.h"
#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

CallOp OpOf(std::span<const std::byte> message) {
  CallHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  return CallOp{header.op};
}

// Returns the number by which a program waits for its earlier call. 0: the call is new.
uint32_t AskedAgain(std::span<const std::byte> message) {
  AskIn in;
  if (!IsAsked(OpOf(message)) || message.size() != sizeof(CallHeader) + sizeof in) return 0;
  std::memcpy(&in, message.data() + sizeof(CallHeader), sizeof in);
  return in.again;
}

// Returns the id of a command of connection management. 0: the call has no id.
uint32_t CmIdOf(uint32_t op, std::span<const std::byte> message) {
  constexpr auto kCmBase = static_cast<uint32_t>(CallOp::kCmCommand);
  constexpr size_t kBefore = sizeof(CallHeader) + offsetof(CmCall<uint32_t>, command);
  if (op < kCmBase || message.size() < kBefore) return 0;
  return cm::IdOf(op - kCmBase, message.subspan(kBefore));
}

Reply AskReply(const AskOut& out) {
  Reply reply;
  reply.body.resize(sizeof out);
  std::memcpy(reply.body.data(), &out, sizeof out);
  return reply;
}

}  // namespace

Reply CallFaults::Call(Time now, ProcessId process, uint32_t caller, GroupId group, uint32_t op,
                       std::span<const std::byte> message) {
  if (const uint32_t number = AskedAgain(message); number != 0) {
    return asked_.Come(process, caller, number) ? AnswerNow({process, caller, 0, {}, {}})
                                                : call_(now, process, message);
  }
  if (!faults_.Watches(fault::Point::kCall) || !CanFail(op)) return call_(now, process, message);
  const std::string subject = CallSubject(op);
  const CallTarget target = TargetOf(verbs_, group, op, message);
  fault::Moment moment{};
  moment.point = fault::Point::kCall;
  moment.now = now;
  moment.subject = subject;
  moment.program = programs_.ProgramOf(process);
  if (target.device != nullptr) moment.device = target.device->name;
  if (target.qp != nullptr) {
    moment.qp = target.qp->qpn;
    moment.qp_order = target.qp->order;
  }
  FaultTarget target_of_rules{.id = CmIdOf(op, message)};
  if (target.qp != nullptr) target_of_rules = {group, target.qp->handle};
  const fault::Rule* const rule = faults_.Decide(moment, process, target_of_rules);
  if (rule == nullptr) return call_(now, process, message);
  // Copy the rule's action, because a call may change the rules.
  const fault::Action action = rule->action;
  if (const auto* fail = std::get_if<fault::FailCall>(&action)) {
    if (fail->takes_effect && IsAsked(CallOp{op})) return AskReply({fail->errno_value, 0});
    if (fail->takes_effect) (void)call_(now, process, message);
    Reply failed;
    failed.error = fail->errno_value;
    return failed;
  }
  const auto* const hold = std::get_if<fault::Hold>(&action);
  if (hold == nullptr) {
    return Postpone(now, std::get<fault::Delay>(action), process, caller, message);
  }
  if (!HasRoom()) return call_(now, process, message);
  // Copy the name, because Take may execute the call, which may change the rules.
  const std::string name = rule->name;
  Delayed waiting = Take(now, hold->takes_effect, process, caller, message);
  Reply answer = AnswerNow(waiting);
  deferred_.PutHeld(name, std::move(waiting));
  return answer;
}

Reply CallFaults::Postpone(Time now, const fault::Delay& delay, ProcessId process, uint32_t caller,
                           std::span<const std::byte> message) {
  if (!HasRoom()) return call_(now, process, message);
  Delayed waiting = Take(now, delay.takes_effect, process, caller, message);
  Reply answer = AnswerNow(waiting);
  deferred_.Put(now + delay.time, std::move(waiting));
  return answer;
}

bool CallFaults::HasRoom() {
  if (asked_.HasRoom()) return deferred_.HasRoom();
  faults_.counters().delayed_calls_full++;
  return false;
}

CallFaults::Delayed CallFaults::Take(Time now, bool takes_effect, ProcessId process,
                                     uint32_t caller, std::span<const std::byte> message) {
  Delayed waiting{process, caller, static_cast<uint32_t>(OpOf(message)), {}, {}};
  if (!takes_effect) {
    waiting.message.assign(message.begin(), message.end());
    return waiting;
  }
  waiting.reply = call_(now, process, message);
  if (IsAsked(OpOf(message))) waiting.asked = asked_.Begin(process);
  return waiting;
}

Reply CallFaults::AnswerNow(const Delayed& waiting) {
  if (waiting.asked != 0) return AskReply({0, waiting.asked});
  Reply later;
  later.is_late = true;
  return later;
}

void CallFaults::Forget(ProcessId process) {
  asked_.Forget(process);
  deferred_.Forget([&](const Delayed& each) { return each.process == process; });
  std::erase_if(ready_, [&](const Late& each) { return each.reply.process == process; });
}

std::optional<CallFaults::Late> CallFaults::TakeLate() {
  if (ready_.empty()) return std::nullopt;
  Late next = std::move(ready_.front());
  ready_.pop_front();
  return next;
}

void CallFaults::Expire(Time now) {
  deferred_.Expire(now, [&](Delayed due) {
    if (due.asked != 0) {
      const std::optional<uint32_t> waits = asked_.End(due.asked);
      if (!waits) return;
      due.caller = *waits;
    }
    if (!due.message.empty()) due.reply = call_(now, due.process, due.message);
    ready_.push_back(
        {{due.process, std::move(due.reply), due.caller}, due.asked != 0 ? 0 : due.op});
  });
}

}  // namespace rdmaemu
