#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {
namespace {

void Release(const Work& work) {
  for (int i = 0; i < work.count; i++) {
    Mr& mr = *work.uses[i].mr;
    if (mr.serial == work.uses[i].serial && mr.in_flight > 0) mr.in_flight--;
  }
}

void CountDown(Cq* cq) {
  if (cq != nullptr && cq->in_flight > 0) cq->in_flight--;
}

// Returns whether the front was signalled.
bool PopSend(Qp& qp) {
  const bool is_signalled = qp.sends.front().is_signalled;
  Release(qp.sends.front());
  qp.sends.Pop();
  if (is_signalled) {
    CountDown(qp.send_cq);
  } else {
    qp.unsignalled--;
  }
  return is_signalled;
}

}  // namespace

uint32_t NextSerial() {
  static uint32_t serial;
  return ++serial;
}

MrsByLkey& MrsOf(const void* context) {
  static auto* const all = new std::unordered_map<const void*, MrsByLkey>;
  return (*all)[context];
}

QpsByNumber& QpsOf(const void* context) {
  static auto* const all = new std::unordered_map<const void*, QpsByNumber>;
  return (*all)[context];
}

void ForgetWork(Qp& qp) {
  while (!qp.sends.is_empty()) PopSend(qp);
  while (!qp.receives.is_empty()) CompleteReceive(qp);
}

void StopTracking(Qp& qp) {
  ForgetWork(qp);
  qp.is_tracked = false;
}

void CompleteSend(Qp& qp) {
  while (!qp.sends.is_empty() && !PopSend(qp)) {
  }
}

void CompleteReceive(Qp& qp) {
  if (qp.receives.is_empty()) return;
  Release(qp.receives.front());
  qp.receives.Pop();
  CountDown(qp.recv_cq);
}

void UndoSend(Qp& qp) {
  const Work& work = qp.sends.back();
  Release(work);
  if (work.is_signalled) {
    CountDown(qp.send_cq);
  } else {
    qp.unsignalled--;
  }
  qp.sends.PopBack();
}

void UndoReceive(Qp& qp) {
  Release(qp.receives.back());
  qp.receives.PopBack();
  CountDown(qp.recv_cq);
}

}  // namespace rdmaemu::layer::checks
