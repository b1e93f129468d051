// A libibverbs whose data path does next to nothing, for the cost of what stands before it: a queue
// pair that takes any work, a CQ that has one completion after each request, and an empty one.
#include <infiniband/verbs.h>
#include <stdlib.h>

namespace {

int PostSend(ibv_qp* qp, ibv_send_wr*, ibv_send_wr**) {
  qp->handle++;
  return 0;
}

// `cqe` 0: always empty.
int PollCq(ibv_cq* cq, int, ibv_wc* out) {
  if (cq->cqe == 0) return 0;
  *out = {};
  out->wr_id = 7;
  out->qp_num = 17;
  out->byte_len = 64;
  return 1;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ibv_context* ibv_open_device(ibv_device*) {
  auto* const whole = static_cast<verbs_context*>(calloc(1, sizeof(verbs_context)));
  if (whole == nullptr) return nullptr;
  whole->sz = sizeof *whole;
  whole->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  whole->context.ops.post_send = PostSend;
  whole->context.ops.poll_cq = PollCq;
  return &whole->context;
}
