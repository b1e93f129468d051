// Shared receive queues.

#include <string.h>

#include "shim/verbs/objects.h"
#include "shim/verbs/recv_request.h"

namespace rdmaemu::shim {
namespace {

int Adopt(SharedReceiveQueue& srq, const SrqOut& reply) {
  const Ring ring =
      RingAt(client::MapSpan(reply.queue), reply.queue, 0, reply.slots, reply.slot_bytes);
  if (!ring) return errno;
  srq.ring = ring;
  srq.max_sge = reply.max_sge;
  srq.entries = reply.entries;
  return 0;
}

}  // namespace

int PostSrqRecv(ibv_srq* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  SharedReceiveQueue& srq = *Of(base);
  ForkLockGuard guard(srq.lock);
  if (!srq.ring.IsProducersStill()) return kPostedToNoQueue;
  return PostReceives(srq.ring, srq.entries, srq.max_sge, wr, bad);
}

}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  SharedReceiveQueue* srq = New<SharedReceiveQueue>();
  if (srq == nullptr) return nullptr;
  const CreateSrqIn in{pd->handle,           attr->attr.max_wr, attr->attr.max_sge,
                       attr->attr.srq_limit, CookieOf(srq),     HandleOf(pd->context)};
  SrqOut reply{};
  int error = client::Call(CallOp::kCreateSrq, in, reply);
  if (error == 0) {
    error = Adopt(*srq, reply);
    if (error != 0) {
      DestroyOut destroyed{};
      CallOnHandle(CallOp::kDestroySrq, pd->context, reply.handle, destroyed);
    }
  }
  if (error != 0) {
    free(srq);
    return NullWith(error);
  }
  srq->base.context = pd->context;
  srq->base.srq_context = attr->srq_context;
  srq->base.pd = pd;
  srq->base.handle = reply.handle;
  pthread_mutex_init(&srq->base.mutex, nullptr);
  pthread_cond_init(&srq->base.cond, nullptr);
  attr->attr.max_wr = reply.max_wr;
  attr->attr.max_sge = reply.max_sge;
  return &srq->base;
}

RDMAEMU_EXPORT int ibv_modify_srq(ibv_srq* base, ibv_srq_attr* attr, int mask) {
  SharedReceiveQueue& srq = *Of(base);
  const ModifySrqIn in{base->handle, mask, attr->max_wr, attr->srq_limit, HandleOf(base->context)};
  ForkLockGuard guard(srq.lock);  // no thread posts to the old ring while the host moves the queue
  SrqOut reply{};
  uint32_t filled = 0;
  int error = rdmaemu_client_call(static_cast<uint32_t>(CallOp::kModifySrq), &in, sizeof in, &reply,
                                  sizeof reply, &filled, nullptr, 0);
  if (error == 0 && (mask & IBV_SRQ_MAX_WR) != 0) {
    error = filled == sizeof reply ? Adopt(srq, reply) : EPROTO;
    if (error == 0) attr->max_wr = reply.max_wr;
  }
  return ErrnoWith(error);
}

RDMAEMU_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  QuerySrqOut reply{};
  const int error = CallOnHandle(CallOp::kQuerySrq, srq->context, srq->handle, reply);
  if (error == 0) *attr = reply.attr;
  return ErrnoWith(error);
}

RDMAEMU_EXPORT int ibv_destroy_srq(ibv_srq* base) {
  DestroyOut reply{};
  const int error = CallOnHandle(CallOp::kDestroySrq, base->context, base->handle, reply);
  if (error != 0) return ErrnoWith(error);
  WaitForAcks(base->mutex, base->cond, base->events_completed, reply.async_events_reported);
  pthread_mutex_destroy(&base->mutex);
  pthread_cond_destroy(&base->cond);
  Free(Of(base));
  return 0;
}
