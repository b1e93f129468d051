#include "shim/verbs/watched.h"

namespace rdmaemu::shim {
namespace {

// A refused post sets *bad to the first request, because none was posted.
template <class Request>
auto RefuseAll(Request* first, Request** bad) {
  return [=](int error) {
    if (bad != nullptr) *bad = first;
    return error;
  };
}

}  // namespace

int WatchedPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return ErrnoWith(Watched(
      CallOp::kPostSend, qp->handle, [&] { return PostSend(qp, wr, bad); }, RefuseAll(wr, bad)));
}

int WatchedPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return ErrnoWith(Watched(
      CallOp::kPostRecv, qp->handle, [&] { return PostRecv(qp, wr, bad); }, RefuseAll(wr, bad)));
}

int WatchedPostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return ErrnoWith(Watched(
      CallOp::kPostSrqRecv, srq->handle, [&] { return PostSrqRecv(srq, wr, bad); },
      RefuseAll(wr, bad)));
}

int WatchedPollCq(ibv_cq* cq, int count, ibv_wc* out) {
  return Watched(
      CallOp::kPollCq, cq->handle, [&] { return PollCq(cq, count, out); }, MinusOneWith);
}

int WatchedRequestNotify(ibv_cq* cq, int solicited_only) {
  return Watched(
      CallOp::kReqNotifyCq, cq->handle, [&] { return RequestNotify(cq, solicited_only); },
      ErrnoWith);
}

}  // namespace rdmaemu::shim
