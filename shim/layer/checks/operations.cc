// Checks of posting work, polling and arming, which inline functions call through the context.
#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"
#include "shim/layer/checks/work.h"
#include "shim/layer/originals.h"

namespace rdmaemu::layer::checks {
namespace {

using Operations = Originals<Checks, ibv_context_ops>;

// Counts the work requests of a list from `first` up to, not including, `end`.
template <class Wr>
size_t CountWrs(const Wr* first, const Wr* end) {
  size_t count = 0;
  for (; first != nullptr && first != end; first = first->next) count++;
  return count;
}

// The check of one call that posts to a queue pair. The work is recorded before the call, because
// another thread may poll its completion before the call returns.
struct PostCheck : Check {
  Qp* qp = nullptr;
  uint32_t serial = 0;

  bool Find(const ibv_qp* address) {
    qp = All<Qp>().FindAlive(address);
    if (qp == nullptr) return false;
    serial = qp->serial;
    return true;
  }
  bool StillExists() const {
    return qp != nullptr && qp->life == Life::kAlive && qp->serial == serial;
  }
};

// Takes back the last `count` works of a call that did not post them.
void TakeBackSends(Qp& qp, size_t count) {
  for (; count > 0 && !qp.sends.is_empty(); count--) UndoSend(qp);
}
void TakeBackReceives(Qp& qp, size_t count) {
  for (; count > 0 && !qp.receives.is_empty(); count--) UndoReceive(qp);
}

void CheckCqRoom(const Check& check, const char* call, const Qp& qp, const Cq* cq) {
  if (!check.is_programs || cq == nullptr || cq->in_flight <= cq->size) return;
  Report(Rule::kCQ_001, call, cq, &qp, nullptr, "%u completions may arrive, and %s has %u entries",
         cq->in_flight, NameOf(*cq).c_str(), cq->size);
}

struct PostSend : PostCheck {
  static constexpr const char* kCall = "ibv_post_send";
  size_t posted = 0;
  bool is_full = false, has_signalled = false;

  bool Before(ibv_qp* address, ibv_send_wr* list, ibv_send_wr** bad) {
    const Section section;
    if (!section || !Find(address)) return true;
    if (is_programs) {
      CheckSendState(*qp, address, kCall);
      for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
        if (CheckSend(*qp, *wr, kCall)) continue;
        *bad = list;
        qp = nullptr;
        return false;
      }
    }
    if (!qp->is_tracked) return true;
    has_signalled = HasSignalled(*qp);
    for (const ibv_send_wr* wr = list; wr != nullptr; wr = wr->next) {
      PushSend(*qp, *wr);
      posted++;
    }
    is_full = qp->has_caps && qp->sends.count() > qp->cap.max_send_wr;
    return true;
  }
  void After(int error, ibv_qp*, ibv_send_wr* list, ibv_send_wr** bad) {
    if (qp == nullptr) return;
    const Section section;
    if (!section || !StillExists()) return;
    if (is_full && is_programs && (error == 0 || error == ENOMEM)) ReportFull();
    if (error == 0) {
      CheckCqRoom(*this, kCall, *qp, qp->send_cq);
    } else if (posted > 0) {
      TakeBackSends(*qp, posted - CountWrs(list, *bad));
    }
  }
  void ReportFull() const {
    if (has_signalled) {
      Report(Rule::kQP_003, kCall, qp, nullptr, nullptr,
             "%zu sends are not completed, and max_send_wr is %u", qp->sends.count(),
             qp->cap.max_send_wr);
    } else {
      Report(Rule::kQP_008, kCall, qp, nullptr, nullptr,
             "none of %zu sends is signalled, and max_send_wr is %u", qp->sends.count(),
             qp->cap.max_send_wr);
    }
  }
};

struct PostRecv : PostCheck {
  static constexpr const char* kCall = "ibv_post_recv";
  size_t posted = 0;
  bool is_full = false;

  bool Before(ibv_qp* address, ibv_recv_wr* list, ibv_recv_wr**) {
    const Section section;
    if (!section || !Find(address)) return true;
    if (is_programs) {
      CheckReceiveQueue(*qp, address, kCall);
      for (const ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next)
        CheckReceive(*qp, *wr, kCall);
    }
    qp->has_posted_receives = true;
    if (!qp->is_tracked || qp->srq != nullptr) return true;
    for (const ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
      PushReceive(*qp, *wr);
      posted++;
    }
    is_full = qp->has_caps && qp->receives.count() > qp->cap.max_recv_wr;
    return true;
  }
  void After(int error, ibv_qp* address, ibv_recv_wr* list, ibv_recv_wr** bad) {
    if (qp == nullptr) return;
    const Section section;
    if (!section || !StillExists()) return;
    if (is_full && is_programs && (error == 0 || error == ENOMEM)) {
      Report(Rule::kQP_004, kCall, qp, nullptr, nullptr,
             "%zu receives are not completed, and max_recv_wr is %u", qp->receives.count(),
             qp->cap.max_recv_wr);
    }
    if (error == 0) {
      CheckCqRoom(*this, kCall, *qp, qp->recv_cq);
      return;
    }
    if (posted > 0) TakeBackReceives(*qp, posted - CountWrs(list, *bad));
    if (error != EINVAL || address->state != IBV_QPS_RESET || !is_programs) return;
    Report(Rule::kQP_002, kCall, qp, nullptr, nullptr, "the call fails in the state RESET");
  }
};

struct PostSrqRecv : Check {
  static constexpr const char* kCall = "ibv_post_srq_recv";
  Srq* srq = nullptr;
  bool Before(ibv_srq* address, ibv_recv_wr* list, ibv_recv_wr**) {
    const Section section;
    srq = section ? All<Srq>().FindAlive(address) : nullptr;
    if (srq == nullptr || !is_programs) return true;
    for (const ibv_recv_wr* wr = list; wr != nullptr; wr = wr->next) {
      CheckSrqReceive(*srq, address->context, *wr, kCall);
    }
    return true;
  }
  void After(int error, ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) {
    if (srq == nullptr || error != ENOMEM || !is_programs) return;
    const Section section;
    if (!section) return;
    Report(Rule::kQP_005, kCall, srq, nullptr, nullptr, "the call fails, and max_wr is %u",
           srq->attr.max_wr);
  }
};

void Complete(const ibv_cq* cq, const ibv_wc& wc, bool is_programs) {
  QpsByNumber& numbers = QpsOf(cq->context);
  const auto found = numbers.find(wc.qp_num);
  if (found == numbers.end()) return;
  Qp& qp = *found->second;
  if (wc.status != IBV_WC_SUCCESS) {
    StopTracking(qp);
    if (wc.status == IBV_WC_REM_ACCESS_ERR && is_programs) {
      Report(Rule::kMR_009, "ibv_poll_cq", &qp, nullptr, nullptr,
             "the completion of wr_id %llu has the status IBV_WC_REM_ACCESS_ERR",
             static_cast<unsigned long long>(wc.wr_id));
    }
    return;
  }
  if (!qp.is_tracked) return;
  if ((wc.opcode & IBV_WC_RECV) == 0) {
    CompleteSend(qp);
  } else if (qp.srq == nullptr) {
    CompleteReceive(qp);
  }
}

struct PollCq : Check {
  static constexpr const char* kCall = "ibv_poll_cq";
  void After(int count, ibv_cq* address, int, ibv_wc* wcs) {
    const Section section;
    Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
    if (cq == nullptr) return;
    cq->polls++;
    cq->is_polled_since_event = true;
    cq->is_armed_late = false;
    for (int i = 0; i < count; i++) Complete(address, wcs[i], is_programs);
  }
};

struct ReqNotifyCq : Check {
  static constexpr const char* kCall = "ibv_req_notify_cq";
  bool Before(ibv_cq* address, int) {
    const Section section;
    Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
    if (cq == nullptr) return true;
    if (is_programs && address->channel == nullptr) {
      Report(Rule::kCQ_009, kCall, cq, nullptr, nullptr, "%s has no completion channel",
             NameOf(*cq).c_str());
    }
    cq->is_armed_late = cq->is_polled_since_event && cq->in_flight > 0;
    return true;
  }
};

template <class OneCheck, auto kMember, class F>
struct Operation;
template <class OneCheck, auto kMember, class R, class First, class... A>
struct Operation<OneCheck, kMember, R (*)(First*, A...)> {
  static R Call(First* first, A... rest) {
    ibv_context_ops* const original = Operations::Find(first->context);
    return Hook<OneCheck, R(First*, A...)>::Checked(original->*kMember, __builtin_return_address(0),
                                                    first, rest...);
  }
};

template <class OneCheck, auto kMember>
void ReplaceIn(ibv_context_ops& table, ibv_context_ops& original) {
  using F = std::remove_reference_t<decltype(table.*kMember)>;
  Replace(table.*kMember, original.*kMember, &Operation<OneCheck, kMember, F>::Call);
}

}  // namespace

void Adopt(ibv_context* context) {
  if (context == nullptr) return;
  ibv_context_ops* const original = Operations::FindOrMake(context);
  if (original == nullptr) return;
  ReplaceIn<PostSend, &ibv_context_ops::post_send>(context->ops, *original);
  ReplaceIn<PostRecv, &ibv_context_ops::post_recv>(context->ops, *original);
  ReplaceIn<PostSrqRecv, &ibv_context_ops::post_srq_recv>(context->ops, *original);
  ReplaceIn<PollCq, &ibv_context_ops::poll_cq>(context->ops, *original);
  ReplaceIn<ReqNotifyCq, &ibv_context_ops::req_notify_cq>(context->ops, *original);
}

}  // namespace rdmaemu::layer::checks
