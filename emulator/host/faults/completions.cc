#include "emulator/host/faults/completions.h"

#include "emulator/host/faults/words.h"

namespace rdmaemu {
namespace {

// Reduces an entry to the contents of an error completion: its status and request (measured).
void ToError(transport::PassingCompletion& completion, uint32_t status) {
  CqEntry& entry = completion.entry;
  const VendorErrors& errors = completion.qp.device->profile.vendor_errors;
  entry.wc.status = status;
  entry.wc.vendor_err = errors.Of(ibv_wc_status(status), completion.is_send);
  entry.wc.opcode = 0;
  entry.wc.byte_len = 0;
  entry.wc.wc_flags = 0;
}

}  // namespace

bool CompletionFaults::Complete(Time now, transport::PassingCompletion completion) {
  const QueuePair& qp = completion.qp;
  fault::Moment moment{};
  moment.point = fault::Point::kCompletion;
  moment.now = now;
  moment.subject = CompletionSubject(completion.entry.wc.status, completion.opcode);
  moment.program = programs_.ProgramOf(qp.group());
  moment.device = qp.device->name;
  moment.qp = qp.qpn;
  moment.qp_order = qp.order;
  moment.bytes = completion.entry.wc.byte_len;
  const FaultTarget target{qp.group(), qp.handle};
  const fault::Rule* const rule = faults_.Decide(moment, ProcessId::kNone, target);
  if (failing_.contains(qp.handle) && completion.entry.wc.status == IBV_WC_SUCCESS) {
    ToError(completion, IBV_WC_WR_FLUSH_ERR);
  }
  if (rule == nullptr) return Deliver(now, completion, {});
  if (std::holds_alternative<fault::Drop>(rule->action)) return true;
  if (const auto* delay = std::get_if<fault::Delay>(&rule->action)) {
    return Deliver(now, completion, delay->time);
  }
  if (std::holds_alternative<fault::Hold>(rule->action)) {
    return Deliver(now, completion, {}, rule->name);
  }
  uint32_t copies = 0;
  if (const auto* duplicate = std::get_if<fault::Duplicate>(&rule->action)) {
    copies = duplicate->copies;
  } else if (const auto* change = std::get_if<fault::ChangeCompletion>(&rule->action)) {
    Change(*change, completion);
  }
  bool pushed = Deliver(now, completion, {});
  for (uint32_t i = 0; i < copies; i++) pushed = Deliver(now, completion, {}) && pushed;
  return pushed;
}

void CompletionFaults::Change(const fault::ChangeCompletion& change,
                              transport::PassingCompletion& completion) {
  const QueuePair& qp = completion.qp;
  if (change.status == IBV_WC_SUCCESS) {
    completion.entry.wc.status = change.status;
    completion.entry.wc.vendor_err = 0;
    completion.entry.wc.opcode = completion.opcode;
    return;
  }
  ToError(completion, change.status);
  completion.solicited = true;  // an error also wakes up waiters for solicited completions
  if (change.keeps_state || qp.state() == IBV_QPS_ERR) return;
  if (failing_.insert(qp.handle).second) faults_.Queue(FailQpDeed{{qp.group(), qp.handle}});
}

bool CompletionFaults::Deliver(Time now, const transport::PassingCompletion& completion,
                               Duration delay, std::string_view barrier) {
  const QueuePair& qp = completion.qp;
  CompletionQueue& cq = completion.is_send ? *qp.send_cq : *qp.recv_cq;
  const Line line{qp.handle, completion.is_send};
  if (!deferred_.Has(line) && delay == Duration::zero() && barrier.empty()) {
    return cq.Push(completion.entry, completion.solicited);
  }
  if (!deferred_.HasRoom()) {
    deferred_.TakeLine(line, [&](const Delayed& each) { Push(each); });
    return cq.Push(completion.entry, completion.solicited);
  }
  Delayed what{qp.group(), line, completion.entry, completion.solicited};
  if (barrier.empty()) {
    deferred_.Put(now + delay, std::move(what));
  } else {
    deferred_.PutHeld(barrier, std::move(what));
  }
  return true;
}

void CompletionFaults::ForgetGone() {
  deferred_.Forget(
      [&](const Delayed& each) { return !verbs_.FindQpByHandle(each.group, each.line.first); });
}

void CompletionFaults::Push(const Delayed& due) {
  const auto qp = verbs_.FindQpByHandle(due.group, due.line.first);
  if (!qp) return;  // destroyed, together with its completions
  CompletionQueue& cq = due.line.second ? *(*qp)->send_cq : *(*qp)->recv_cq;
  (void)cq.Push(due.entry, due.solicited);
}

void CompletionFaults::Expire(Time now) {
  deferred_.Expire(now, [&](const Delayed& due) { Push(due); });
}

}  // namespace rdmaemu
