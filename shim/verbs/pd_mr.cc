// Protection domains and memory regions.

#include "shim/verbs/objects.h"
#include "shim/verbs/region_check.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  ibv_pd* pd = New<ibv_pd>();
  if (pd == nullptr) return nullptr;
  HandleOut reply{};
  const int error = client::Call(CallOp::kAllocPd, AllocPdIn{Of(context)->handle, 0}, reply);
  if (error != 0) {
    free(pd);
    return NullWith(error);
  }
  pd->context = context;
  pd->handle = reply.handle;
  return pd;
}

RDMAEMU_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  const int error = CallOnHandle(CallOp::kDeallocPd, pd->context, pd->handle);
  if (error == 0) Free(pd);
  return ErrnoWith(error);
}

// The common implementation of all registration functions. Optional access flags are hints, which
// rxe ignores.
RDMAEMU_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                        unsigned access) {
  ibv_mr* mr = New<ibv_mr>();
  if (mr == nullptr) return nullptr;
  const RegMrIn in{
      pd->handle,
      static_cast<int32_t>(access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE}),
      CookieOf(address),
      length,
      iova,
      LookAtPages(CookieOf(address), length, NeedsWritablePages(static_cast<int>(access))),
      HandleOf(pd->context)};
  MrOut reply{};
  const int error = client::Call(CallOp::kRegMr, in, reply);
  if (error != 0) {
    free(mr);
    return NullWith(error);
  }
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = reply.handle;
  mr->lkey = reply.lkey;
  mr->rkey = reply.rkey;
  return mr;
}

RDMAEMU_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return ibv_reg_mr_iova2(pd, address, length, CookieOf(address), static_cast<unsigned>(access));
}

RDMAEMU_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                       int access) {
  return ibv_reg_mr_iova2(pd, address, length, iova, static_cast<unsigned>(access));
}

RDMAEMU_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return NullWith(EOPNOTSUPP);
}

// Follows ibv_rereg_mr of libibverbs. Returns IBV_REREG_MR_ERR_INPUT if the library refuses, and
// IBV_REREG_MR_ERR_CMD if the device refuses. The host then does not change the region.
RDMAEMU_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length,
                                int access) {
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
      (moves && (address == nullptr || length == 0)) ||
      (access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const ReregMrIn in{mr->handle,
                     static_cast<uint32_t>(flags),
                     changes_pd && pd != nullptr ? pd->handle : 0,
                     access & ~static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE),
                     CookieOf(address),
                     length,
                     HandleOf(mr->context)};
  MrOut reply{};
  const int error = client::Call(CallOp::kReregMr, in, reply);
  if (error != 0) {
    errno = error;
    return IBV_REREG_MR_ERR_CMD;
  }
  mr->lkey = reply.lkey;
  mr->rkey = reply.rkey;
  if (changes_pd) mr->pd = pd;
  if (moves) {
    mr->addr = address;
    mr->length = length;
  }
  return 0;
}

RDMAEMU_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  const int error = CallOnHandle(CallOp::kDeregMr, mr->context, mr->handle);
  if (error == 0) Free(mr);
  return ErrnoWith(error);
}
