#include "emulator/host/faults/async_events.h"

#include "emulator/host/faults/words.h"

namespace rdmaemu {

bool AsyncFaults::Passes(Context& context, AsyncEvent& event) {
  if (!faults_.Watches(fault::Point::kAsyncEvent)) return true;
  const std::string subject = AsyncSubject(event.type);
  fault::Moment moment{};
  moment.point = fault::Point::kAsyncEvent;
  moment.now = faults_.now();
  moment.subject = subject;
  moment.program = programs_.ProgramOf(context.group);
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
  const Delayed later{context.group, context.handle, event};
  if (const auto* delay = std::get_if<fault::Delay>(&rule->action)) {
    deferred_.Delay(moment.now + delay->time, later);
  } else {
    deferred_.Hold(rule->name, later);
  }
  return false;
}

void AsyncFaults::ForgetGone() {
  deferred_.Forget([&](const Delayed& each) {
    return !verbs_.CanQueueAsync(each.group, each.context, each.event);
  });
}

void AsyncFaults::Expire(Time now) {
  deferred_.Expire(
      now, [&](const Delayed& due) { verbs_.QueueHeldAsync(due.group, due.context, due.event); });
}

}  // namespace rdmaemu
