#include "shim/layer/checks/extended.h"

#include <stddef.h>

#include "shim/layer/checks/install.h"
#include "shim/layer/checks/operation.h"
#include "shim/layer/checks/qp.h"

namespace rdmaemu::layer::checks {
namespace {

struct CreateQpEx : Check {
  static constexpr const char* kCall = "ibv_create_qp_ex";
  void After(ibv_qp* qp, ibv_context*, ibv_qp_init_attr_ex* attr) {
    if (qp == nullptr) return;
    const bool has_pd = (attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
    MadeQp(*this, kCall, qp, has_pd ? attr->pd : nullptr, attr->cap, attr->sq_sig_all != 0);
  }
};

struct CreateCqEx : Check {
  static constexpr const char* kCall = "ibv_create_cq_ex";
  void After(ibv_cq_ex* cq, ibv_context*, ibv_cq_init_attr_ex* attr) {
    AdoptCq(cq);
    Made<Cq>(*this, kCall, cq, [&](Cq& made) {
      made.channel = attr->channel;
      made.size = static_cast<uint32_t>(cq->cqe);
      made.has_qp_num = cq->read_qp_num != nullptr;
    });
  }
};

struct CreateSrqEx : Check {
  static constexpr const char* kCall = "ibv_create_srq_ex";
  void After(ibv_srq* srq, ibv_context*, ibv_srq_init_attr_ex* attr) {
    Made<Srq>(*this, kCall, srq, [&](Srq& made) {
      made.pd = (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) != 0 ? attr->pd : nullptr;
      made.attr = attr->attr;
    });
  }
};

struct QpToQpEx : Check {
  static constexpr const char* kCall = "ibv_qp_to_qp_ex";
  void After(ibv_qp_ex* extended, ibv_qp*) { AdoptQp(extended); }
};

template <class OneCheck, auto kMember>
void ReplaceCreation(verbs_context& table, size_t offset, verbs_context& original) {
  if (HasMember(table, offset)) ReplaceIn<OneCheck, kMember>(table, original);
}

}  // namespace

void AdoptExtended(ibv_context* context, verbs_context& table) {
  verbs_context* const original = TablesOf<verbs_context>::FindOrMake(context);
  if (original == nullptr) return;
  ReplaceCreation<CreateQpEx, &verbs_context::create_qp_ex>(
      table, offsetof(verbs_context, create_qp_ex), *original);
  ReplaceCreation<CreateCqEx, &verbs_context::create_cq_ex>(
      table, offsetof(verbs_context, create_cq_ex), *original);
  ReplaceCreation<CreateSrqEx, &verbs_context::create_srq_ex>(
      table, offsetof(verbs_context, create_srq_ex), *original);
}

void InstallExtendedCalls(SlotOfName slot_of) {
  Install<QpToQpEx, decltype(::ibv_qp_to_qp_ex)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
