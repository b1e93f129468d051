// Memory windows: allocated by a call, bound by a request in a send queue.

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type) {
  ibv_mw* mw = New<ibv_mw>();
  if (mw == nullptr) return nullptr;
  MwOut reply{};
  const int error =
      client::Call(CallOp::kAllocMw, AllocMwIn{pd->handle, type, HandleOf(pd->context)}, reply);
  if (error != 0) {
    free(mw);
    return NullWith(error);
  }
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = reply.rkey;
  mw->handle = reply.handle;
  mw->type = type;
  return mw;
}

int DeallocMw(ibv_mw* mw) {
  const int error = CallOnHandle(CallOp::kDeallocMw, mw->context, mw->handle);
  if (error == 0) Free(mw);
  return ErrnoWith(error);
}

// Binds type 1 windows (ibv_bind_mw(3)). The new rkey is known at the post.
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if (info.mr == nullptr && (info.addr != 0 || info.length != 0)) return ErrnoWith(EINVAL);
  if ((info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return ErrnoWith(EINVAL);
  if (info.mr != nullptr && info.mr->pd != mw->pd) return ErrnoWith(EPERM);
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  request.bind_mw.bind_info = info;
  ibv_send_wr* bad = nullptr;
  const int error = PostSend(qp, &request, &bad);
  if (error == 0) mw->rkey = request.bind_mw.rkey;
  return ErrnoWith(error);
}

void SetRkeyAtBind(const ibv_qp& qp, ibv_mw& mw, uint32_t rkey) {
  if (mw.type != IBV_MW_TYPE_2 || (Of(qp.context)->missing & kMissingRkeyAtBind) != 0) return;
  mw.rkey = (mw.rkey & ~0xffu) | (rkey & 0xff);  // as the host does (Verbs::BindWindow)
}

}  // namespace rdmaemu::shim
