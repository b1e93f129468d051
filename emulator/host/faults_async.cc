#include "emulator/host/faults_async.h"

#include "emulator/host/fault_words.h"

namespace rdmaemu {

bool AsyncFaults::Passes(Context& context, AsyncEvent& event) {
  if (!faults_.Watches(fault::Point::kAsyncEvent)) return true;
  const std::string subject = AsyncSubject(event.type);
  fault::Moment moment{};
  moment.point = fault::Point::kAsyncEvent;
  moment.now = faults_.now();
  moment.subject = subject;
  moment.program = processes_.ProgramOf(context.group);
  moment.device = context.device->name;
  const auto qp = verbs_.FindQpByHandle(context.group, event.object);
  if (qp) {
    moment.qp = (*qp)->qpn;
    moment.qp_order = (*qp)->order;
  }
  const fault::Rule* const rule =
      faults_.Decide(moment, ProcessId::kNone, {context.group, qp ? event.object : Handle{}});
  if (rule == nullptr) return true;
  if (const auto* change = std::get_if<fault::ChangeAsync>(&rule->action)) {
    event.type = static_cast<ibv_event_type>(change->type);
    return true;
  }
  if (std::holds_alternative<fault::Drop>(rule->action)) return false;
  if (delayed_.size() + held_.size() >= kMaxDelayed) {
    faults_.counters().delayed_async_events_full++;
    return false;
  }
  const Delayed later{context.group, context.handle, event};
  if (const auto* delay = std::get_if<fault::Delay>(&rule->action)) {
    delayed_.emplace(moment.now + delay->time, later);
  } else {
    held_.Add(rule->name, later);
  }
  return false;
}

void AsyncFaults::LetGo(Time now, const fault::Release& release) {
  held_.LetGo(release, [&](const Delayed& each) { delayed_.emplace(now, each); });
}

void AsyncFaults::ForgetGone() {
  held_.Forget([&](const Delayed& each) {
    return !verbs_.CanQueueAsync(each.group, each.context, each.event);
  });
}

void AsyncFaults::Expire(Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Delayed due = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    verbs_.QueueHeldAsync(due.group, due.context, due.event);
  }
}

std::optional<Time> AsyncFaults::NextDeadline() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

}  // namespace rdmaemu
