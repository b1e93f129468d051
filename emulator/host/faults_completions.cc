#include "emulator/host/faults_completions.h"

#include <algorithm>

#include "emulator/host/fault_words.h"

namespace rdmaemu {
namespace {

// What an error completion tells (measured): its status and request, and nothing else.
void ToError(CqEntry& entry, uint32_t status) {
  entry.wc.status = status;
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
  moment.program = processes_.ProgramOf(qp.group());
  moment.device = qp.device->name;
  moment.qp = qp.qpn;
  moment.qp_order = qp.order;
  moment.bytes = completion.entry.wc.byte_len;
  const FaultTarget target{qp.group(), qp.handle};
  const fault::Rule* const rule = faults_.Decide(moment, ProcessId::kNone, target);
  if (failing_.contains(qp.handle) && completion.entry.wc.status == IBV_WC_SUCCESS) {
    ToError(completion.entry, IBV_WC_WR_FLUSH_ERR);
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
    completion.entry.wc.opcode = completion.opcode;
    return;
  }
  ToError(completion.entry, change.status);
  completion.solicited = true;  // an error wakes who waits for solicited completions
  if (change.keeps_state || qp.state() == IBV_QPS_ERR) return;
  if (failing_.insert(qp.handle).second) faults_.Queue(FailQpDeed{{qp.group(), qp.handle}});
}

bool CompletionFaults::Deliver(Time now, const transport::PassingCompletion& completion,
                               Duration delay, const std::string& barrier) {
  const QueuePair& qp = completion.qp;
  CompletionQueue& cq = completion.is_send ? *qp.send_cq : *qp.recv_cq;
  const Line line{qp.handle, completion.is_send};
  const auto ahead = lines_.find(line);
  if (ahead == lines_.end() && delay == Duration::zero() && barrier.empty()) {
    return cq.Push(completion.entry, completion.solicited);
  }
  if (delayed_.size() + held_ >= kMaxDelayed) {
    faults_.counters().delayed_completions_full++;
    return DeliverAll(line, completion, cq);
  }
  Waiting& waiting = lines_[line];
  waiting.group = qp.group();
  const Delayed what{qp.group(), line, completion.entry, completion.solicited};
  if (barrier.empty() && waiting.held.empty()) {
    Delay(waiting, now + delay, what);
  } else {
    waiting.held.push_back({barrier, now + delay, what});
    held_++;
  }
  return true;
}

void CompletionFaults::Delay(Waiting& waiting, Time until, const Delayed& what) {
  waiting.until = std::max(waiting.until, until);
  waiting.delayed++;
  delayed_.emplace(waiting.until, what);
}

// Those before it come first, whatever they wait for.
bool CompletionFaults::DeliverAll(const Line& line, const transport::PassingCompletion& last,
                                  CompletionQueue& cq) {
  for (auto it = delayed_.begin(); it != delayed_.end();) {
    if (it->second.line == line) Release(it->second);
    it = it->second.line == line ? delayed_.erase(it) : std::next(it);
  }
  if (const auto waiting = lines_.find(line); waiting != lines_.end()) {
    for (const Held& held : waiting->second.held) Release(held.what);
    held_ -= waiting->second.held.size();
    lines_.erase(waiting);
  }
  return cq.Push(last.entry, last.solicited);
}

void CompletionFaults::LetGo(Time now, const fault::Release& release) {
  for (auto& [line, waiting] : lines_) {
    for (Held& held : waiting.held) {
      if (!release || held.rule == *release) held.rule.clear();
    }
    while (!waiting.held.empty() && waiting.held.front().rule.empty()) {
      const Held& first = waiting.held.front();
      Delay(waiting, std::max(now, first.until), first.what);
      waiting.held.pop_front();
      held_--;
    }
  }
}

void CompletionFaults::ForgetGone() {
  const size_t before = lines_.size();
  std::erase_if(lines_, [&](const auto& each) {
    const auto& [line, waiting] = each;
    if (verbs_.FindQpByHandle(waiting.group, line.first)) return false;
    held_ -= waiting.held.size();
    return true;
  });
  if (lines_.size() == before) return;
  std::erase_if(delayed_, [&](const auto& each) { return !lines_.contains(each.second.line); });
}

void CompletionFaults::CountHeld(fault::HeldCounts& counts) const {
  for (const auto& [line, waiting] : lines_) {
    std::string_view rule;
    for (const Held& held : waiting.held) {
      if (!held.rule.empty()) rule = held.rule;
      counts[std::string(rule)]++;
    }
  }
}

void CompletionFaults::Release(const Delayed& due) {
  const auto qp = verbs_.FindQpByHandle(due.group, due.line.first);
  if (!qp) return;  // destroyed, and its completions with it
  CompletionQueue& cq = due.line.second ? *(*qp)->send_cq : *(*qp)->recv_cq;
  (void)cq.Push(due.entry, due.solicited);
}

void CompletionFaults::Expire(Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Delayed due = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    if (const auto line = lines_.find(due.line); line != lines_.end()) {
      if (--line->second.delayed == 0 && line->second.held.empty()) lines_.erase(line);
    }
    Release(due);
  }
}

std::optional<Time> CompletionFaults::NextDeadline() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

}  // namespace rdmaemu
