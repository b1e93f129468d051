#include "emulator/host/faults_calls.h"

#include "emulator/host/fault_words.h"

namespace rdmaemu {

Reply CallFaults::Call(Time now, ProcessId process, std::string_view program, uint32_t op,
                       std::span<const std::byte> message) {
  if (!faults_.Watches(fault::Point::kCall) || !CanFail(op)) return call_(now, process, message);
  const std::string subject = CallSubject(op);
  fault::Moment moment{};
  moment.point = fault::Point::kCall;
  moment.now = now;
  moment.subject = subject;
  moment.program = program;
  const fault::Rule* const rule = faults_.Decide(moment, process);
  if (rule == nullptr) return call_(now, process, message);
  // The rule does not last: a call may change the rules.
  const fault::Action action = rule->action;
  if (const auto* fail = std::get_if<fault::FailCall>(&action)) {
    if (fail->takes_effect) (void)call_(now, process, message);
    Reply failed;
    failed.error = fail->errno_value;
    return failed;
  }
  return Postpone(now, std::get<fault::Delay>(action), process, message);
}

Reply CallFaults::Postpone(Time now, const fault::Delay& delay, ProcessId process,
                           std::span<const std::byte> message) {
  if (delayed_.size() >= kMaxDelayed) {
    faults_.counters().delayed_calls_full++;
    return call_(now, process, message);
  }
  Delayed waiting{process, {}, {}};
  if (delay.takes_effect) {
    waiting.reply = call_(now, process, message);
  } else {
    waiting.message.assign(message.begin(), message.end());
  }
  delayed_.emplace(now + delay.time, std::move(waiting));
  Reply later;
  later.is_late = true;
  return later;
}

void CallFaults::Forget(ProcessId process) {
  std::erase_if(delayed_, [&](const auto& each) { return each.second.process == process; });
  std::erase_if(ready_, [&](const LateReply& each) { return each.process == process; });
}

std::optional<LateReply> CallFaults::TakeLate() {
  if (ready_.empty()) return std::nullopt;
  LateReply next = std::move(ready_.front());
  ready_.pop_front();
  return next;
}

void CallFaults::Expire(Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    Delayed due = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    if (!due.message.empty()) due.reply = call_(now, due.process, due.message);
    ready_.push_back({due.process, std::move(due.reply)});
  }
}

std::optional<Time> CallFaults::NextDeadline() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

}  // namespace rdmaemu
