// Posting and polling as the program calls them. They make no call to the host, unless a fault rule
// exists for one of them (DoorbellPage::watched_calls). In that case the library asks the host
// first.
#pragma once

#include <infiniband/verbs.h>

#include "shim/client/client.h"
#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

// Calls `act` and returns its result. If a fault rule says so, returns an errno by `refuse` instead
// of `act` or after it, or delays the call.
template <class Act, class Refuse>
int Watched(CallOp op, uint32_t handle, Act&& act, Refuse&& refuse) {
  if (!client::IsWatched(op, handle)) [[likely]]
    return act();
  AskOut told{};
  if (const int error = client::Call(op, AskIn{handle, 0}, told); error != 0) return refuse(error);
  const int result = act();
  if (told.again != 0) (void)client::Call(op, AskIn{handle, told.again}, told);
  return told.error != 0 ? refuse(told.error) : result;
}

int WatchedPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int WatchedPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int WatchedPostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int WatchedPollCq(ibv_cq* cq, int count, ibv_wc* out);
int WatchedRequestNotify(ibv_cq* cq, int solicited_only);

}  // namespace rdmaemu::shim
