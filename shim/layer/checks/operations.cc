// Checks of posting work, polling and arming, which inline functions call through the context.
#include <infiniband/verbs.h>

#include "shim/layer/checks/extended.h"
#include "shim/layer/checks/install.h"
#include "shim/layer/checks/operation.h"
#include "shim/layer/checks/posting.h"
#include "shim/layer/checks/work.h"

namespace rdmaemu::layer::checks {
namespace {

// Counts the work requests of a list from `first` up to, not including, `end`.
template <class Wr>
size_t CountWrs(const Wr* first, const Wr* end) {
  size_t count = 0;
  for (; first != nullptr && first != end; first = first->next) count++;
  return count;
}

// Removes the last `count` receives of a call that did not post them.
void TakeBackReceives(Qp& qp, size_t count) {
  for (; count > 0 && !qp.receives.is_empty(); count--) UndoReceive(qp);
}

struct PostSend : SendCheck {
  static constexpr const char* kCall = "ibv_post_send";

  bool Before(ibv_qp* address, ibv_send_wr* list, ibv_send_wr** bad) {
    const Section section;
    if (!section || Record(kCall, address, list)) return true;
    *bad = list;
    return false;
  }
  void After(int error, ibv_qp*, ibv_send_wr* list, ibv_send_wr** bad) {
    if (qp == nullptr) return;
    const size_t accepted = error == 0 ? posted : CountWrs(list, *bad);
    const Section section;
    if (section) Finish(kCall, error, accepted);
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
      PushReceive(*qp, *wr, is_programs);
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

struct PollCq : Check {
  static constexpr const char* kCall = "ibv_poll_cq";
  void After(int count, ibv_cq* address, int, ibv_wc* wcs) {
    const Section section;
    Cq* const cq = section ? All<Cq>().FindAlive(address) : nullptr;
    if (cq == nullptr) return;
    cq->polls++;
    cq->is_polled_since_event = true;
    cq->is_armed_late = false;
    for (int i = 0; i < count; i++) Complete(address->context, wcs[i], kCall, is_programs);
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

}  // namespace

void Adopt(ibv_context* context) {
  if (context == nullptr) return;
  ibv_context_ops* const original = TablesOf<ibv_context_ops>::FindOrMake(context);
  if (original == nullptr) return;
  ReplaceIn<PostSend, &ibv_context_ops::post_send>(context->ops, *original);
  ReplaceIn<PostRecv, &ibv_context_ops::post_recv>(context->ops, *original);
  ReplaceIn<PostSrqRecv, &ibv_context_ops::post_srq_recv>(context->ops, *original);
  ReplaceIn<PollCq, &ibv_context_ops::poll_cq>(context->ops, *original);
  ReplaceIn<ReqNotifyCq, &ibv_context_ops::req_notify_cq>(context->ops, *original);
  if (verbs_context* const extended = verbs_get_ctx(context)) AdoptExtended(context, *extended);
}

}  // namespace rdmaemu::layer::checks
