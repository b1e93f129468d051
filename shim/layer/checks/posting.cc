#include "shim/layer/checks/posting.h"

#include "shim/layer/checks/work.h"

namespace rdmaemu::layer::checks {

bool PostCheck::Find(const ibv_qp* address) {
  qp = All<Qp>().FindAlive(address);
  if (qp == nullptr) return false;
  serial = qp->serial;
  return true;
}

bool PostCheck::StillExists() const {
  return qp != nullptr && qp->life == Life::kAlive && qp->serial == serial;
}

void CheckCqRoom(const Check& check, const char* call, const Qp& qp, const Cq* cq) {
  if (!check.is_programs || cq == nullptr || cq->in_flight <= cq->size) return;
  Report(Rule::kCQ_001, call, cq, &qp, nullptr, "%u completions may arrive, and %s has %u entries",
         cq->in_flight, NameOf(*cq).c_str(), cq->size);
}

bool SendCheck::Record(const char* call, const ibv_qp* address, const ibv_send_wr* list) {
  if (!Find(address)) return true;
  if (is_programs) {
    CheckSendState(*qp, address, call);
    for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
      if (CheckSend(*qp, *wr, call)) continue;
      qp = nullptr;
      return false;
    }
  }
  if (!qp->is_tracked) return true;
  has_signalled = HasSignalled(*qp);
  for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
    PushSend(*qp, *wr, is_programs);
    posted++;
  }
  is_full = qp->has_caps && qp->sends.count() > qp->cap.max_send_wr;
  return true;
}

void SendCheck::Finish(const char* call, int error, size_t accepted) {
  if (!StillExists()) return;
  if (is_full && is_programs && (error == 0 || error == ENOMEM)) ReportFull(call);
  if (error == 0) {
    CheckCqRoom(*this, call, *qp, qp->send_cq);
    return;
  }
  for (size_t i = accepted; i < posted && !qp->sends.is_empty(); i++) UndoSend(*qp);
}

void SendCheck::ReportFull(const char* call) const {
  if (has_signalled) {
    Report(Rule::kQP_003, call, qp, nullptr, nullptr,
           "%zu sends are not completed, and max_send_wr is %u", qp->sends.count(),
           qp->cap.max_send_wr);
  } else {
    Report(Rule::kQP_008, call, qp, nullptr, nullptr,
           "none of %zu sends is signalled, and max_send_wr is %u", qp->sends.count(),
           qp->cap.max_send_wr);
  }
}

void Complete(const ibv_context* context, const ibv_wc& wc, const char* call, bool is_programs) {
  QpsByNumber& numbers = QpsOf(context);
  const auto found = numbers.find(wc.qp_num);
  if (found == numbers.end()) return;
  Qp& qp = *found->second;
  if (wc.status != IBV_WC_SUCCESS) {
    StopTracking(qp);
    if (wc.status == IBV_WC_REM_ACCESS_ERR && is_programs) {
      Report(Rule::kMR_009, call, &qp, nullptr, nullptr,
             "the completion of wr_id %llu has the status IBV_WC_REM_ACCESS_ERR",
             static_cast<unsigned long long>(wc.wr_id));
    }
    return;
  }
  if (!qp.is_tracked) return;
  if ((wc.opcode & IBV_WC_RECV) == 0) {
    CompleteSend(qp, is_programs);
  } else if (qp.srq == nullptr) {
    CompleteReceive(qp, is_programs);
  }
}

}  // namespace rdmaemu::layer::checks
