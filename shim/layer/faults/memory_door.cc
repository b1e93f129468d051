#include "shim/layer/faults/memory_door.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "shim/layer/faults/ask.h"
#include "shim/layer/faults/call_door.h"
#include "shim/layer/faults/objects.h"
#include "shim/layer/module.h"

// verbs.h has macros of these names.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace rdmaemu::layer::faults {
namespace {

// Whether a request reads the program's memory, or writes to it.
enum class Access : uint32_t { kRead = kReadsMemory, kWrite = kWritesMemory };

// Returns whether a rule removes bytes of this SGE.
bool IsRemoved(const ibv_context* context, const ibv_sge& sge, Access access) {
  if (sge.length == 0) return false;
  MomentIn moment{};
  moment.door = static_cast<uint32_t>(Door::kMemory);
  moment.number = static_cast<uint32_t>(access);
  moment.address = sge.addr;
  moment.length = sge.length;
  const RegionState* const region = RegionStates::Find(NumberKey(context, sge.lkey));
  if (region != nullptr && region->mr != nullptr) moment.mr_order = region->order;
  const Asked asked(moment);
  asked.Mark(Injected::kCall);
  return asked.does() == Does::kFail;
}

// The bytes of a request in the program's memory.
struct Bytes {
  std::span<const ibv_sge> sges;
  Access access;
};

// Returns an SGE as long as all of `sges`, in the region of `removed` and outside its bounds.
ibv_sge Outside(std::span<const ibv_sge> sges, const ibv_sge& removed) {
  constexpr uint64_t kPage = 4096;
  uint64_t length = 0;
  for (const ibv_sge& each : sges) length += each.length;
  length = std::min<uint64_t>(length, UINT32_MAX);
  return {(UINT64_MAX - length) & ~(kPage - 1), static_cast<uint32_t>(length), removed.lkey};
}

// Asks the server about each SGE. When a rule removes bytes, returns true and writes the
// replacement of the SGEs to `out`.
bool Replaces(const ibv_context* context, const Bytes& bytes, ibv_sge& out) {
  for (const ibv_sge& each : bytes.sges) {
    if (!IsRemoved(context, each, bytes.access)) continue;
    out = Outside(bytes.sges, each);
    return true;
  }
  return false;
}

Bytes BytesOf(const ibv_recv_wr& wr) {
  return {{wr.sg_list, static_cast<size_t>(std::max(wr.num_sge, 0))}, Access::kWrite};
}
Bytes BytesOf(const ibv_send_wr& wr) {
  Bytes bytes{{wr.sg_list, static_cast<size_t>(std::max(wr.num_sge, 0))}, Access::kRead};
  switch (wr.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      bytes.access = Access::kWrite;
      return bytes;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_TSO:
      // The library copies inline data while it posts.
      if ((wr.send_flags & IBV_SEND_INLINE) != 0) bytes.sges = {};
      return bytes;
    default:
      return {};  // LOCAL_INV, BIND_MW and others have no SGEs
  }
}

// Return the most SGEs of one request on the queue.
int MostSges(ibv_qp* qp, const ibv_send_wr&) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  return ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0 ? static_cast<int>(init.cap.max_send_sge)
                                                         : 0;
}
int MostSges(ibv_qp* qp, const ibv_recv_wr&) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  return ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0 ? static_cast<int>(init.cap.max_recv_sge)
                                                         : 0;
}
int MostSges(ibv_srq* srq, const ibv_recv_wr&) {
  ibv_srq_attr attr{};
  return ibv_query_srq(srq, &attr) == 0 ? static_cast<int>(attr.max_sge) : 0;
}

// Posts the requests from `first` up to `end`, one at a time.
template <class Object, class Wr>
int PostOneByOne(Object* object, Wr* first, Wr* end, Wr** bad, int (*next)(Object*, Wr*, Wr**)) {
  for (Wr* each = first; each != end; each = each->next) {
    Wr copy = *each;
    copy.next = nullptr;
    Wr* refused = nullptr;
    if (const int error = next(object, &copy, &refused)) {
      *bad = each;
      return error;
    }
  }
  return 0;
}

// Does not change the caller's list. Posts a list without removed bytes in one call.
template <class Object, class Wr>
int Post(Object* object, Wr* list, Wr** bad, int (*next)(Object*, Wr*, Wr**)) {
  if (!IsWatched(&DoorsPage::memory)) return next(object, list, bad);
  Wr* begin = list;
  for (Wr* each = list; each != nullptr; each = each->next) {
    // The library refuses this request, and the program's array may be shorter.
    if (each->num_sge > 1 && each->num_sge > MostSges(object, *each)) break;
    ibv_sge changed;
    if (!Replaces(object->context, BytesOf(*each), changed)) continue;
    if (const int error = PostOneByOne(object, begin, each, bad, next)) return error;
    Wr copy = *each;
    copy.next = nullptr;
    copy.sg_list = &changed;
    copy.num_sge = 1;
    Wr* refused = nullptr;
    if (const int error = next(object, &copy, &refused)) {
      *bad = each;
      return error;
    }
    begin = each->next;
  }
  return begin == nullptr && list != nullptr ? 0 : next(object, begin, bad);
}

// ---- ibv_wr_*

struct ExtendedQp {
  ibv_qp_ex original;
  Access access;  // access of the request under construction; the provider's lock guards it
};
using ExtendedQps = Originals<ExtendedQp, ExtendedQp>;

// A call that begins a request.
template <auto kMember, Access kAccess, class F>
struct Opener;
template <auto kMember, Access kAccess, class R, class... A>
struct Opener<kMember, kAccess, R (*)(ibv_qp_ex*, A...)> {
  static R Call(ibv_qp_ex* qp, A... arguments) {
    const Caller caller(__builtin_return_address(0));
    ExtendedQp* const extended = ExtendedQps::Find(qp);
    extended->access = kAccess;
    return (extended->original.*kMember)(qp, arguments...);
  }
};

void SetSge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const Caller caller(__builtin_return_address(0));
  const ExtendedQp& extended = *ExtendedQps::Find(qp);
  ibv_sge sge{address, length, lkey};
  if (IsWatched(&DoorsPage::memory) && caller.IsProgram()) {
    const ibv_sge programs = sge;
    Replaces(qp->qp_base.context, {{&programs, 1}, extended.access}, sge);
  }
  extended.original.wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
}

void SetSgeList(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  const Caller caller(__builtin_return_address(0));
  const ExtendedQp& extended = *ExtendedQps::Find(qp);
  ibv_sge changed;
  if (IsWatched(&DoorsPage::memory) && caller.IsProgram() &&
      Replaces(qp->qp_base.context, {{list, count}, extended.access}, changed)) {
    list = &changed;
    count = 1;
  }
  extended.original.wr_set_sge_list(qp, count, list);
}

int Complete(ibv_qp_ex* qp) { return ExtendedQps::Find(qp)->original.wr_complete(qp); }

// ibv_wr_complete is the call that posts.
int WrComplete(ibv_qp_ex* qp) {
  const Caller caller(__builtin_return_address(0));
  if (!Asks(kCall_ibv_qp_ex_wr_complete, caller, __builtin_return_address(0))) return Complete(qp);
  return Decided<int, ibv_qp_ex*>(kCall_ibv_qp_ex_wr_complete, Report::kErrno, Complete, qp);
}

template <auto kMember, Access kAccess>
void ReplaceOpener(ibv_qp_ex& qp, ibv_qp_ex& original) {
  using F = std::remove_reference_t<decltype(qp.*kMember)>;
  Replace(qp.*kMember, original.*kMember, &Opener<kMember, kAccess, F>::Call);
}

void AdoptQp(ibv_qp_ex* qp) {
  ExtendedQp* const extended = qp == nullptr ? nullptr : ExtendedQps::FindOrMake(qp);
  if (extended == nullptr) return;
  ibv_qp_ex& original = extended->original;
  ReplaceOpener<&ibv_qp_ex::wr_send, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_send_imm, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_send_inv, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_send_tso, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_rdma_write, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_rdma_write_imm, Access::kRead>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_rdma_read, Access::kWrite>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_atomic_cmp_swp, Access::kWrite>(*qp, original);
  ReplaceOpener<&ibv_qp_ex::wr_atomic_fetch_add, Access::kWrite>(*qp, original);
  original.wr_abort = qp->wr_abort;
  Replace(qp->wr_complete, original.wr_complete, WrComplete);
  Replace(qp->wr_set_sge, original.wr_set_sge, SetSge);
  Replace(qp->wr_set_sge_list, original.wr_set_sge_list, SetSgeList);
}

decltype(::ibv_qp_to_qp_ex)* g_next_to_qp_ex;

ibv_qp_ex* ToQpEx(ibv_qp* qp) {
  const Caller caller(__builtin_return_address(0));
  ibv_qp_ex* const extended = g_next_to_qp_ex(qp);
  AdoptQp(extended);
  return extended;
}

// ---- regions, of all registering functions

template <auto kFunction, class F>
struct Registers;
template <auto kFunction, class... A>
struct Registers<kFunction, ibv_mr*(A...)> {
  static inline ibv_mr* (*next)(A...);
  static ibv_mr* Call(A... arguments) {
    const Caller caller(__builtin_return_address(0));
    ibv_mr* const mr = next(arguments...);
    Registered(mr);
    return mr;
  }
};

decltype(::ibv_rereg_mr)* g_next_rereg;
decltype(::ibv_dereg_mr)* g_next_dereg;

int Rereg(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  const Caller caller(__builtin_return_address(0));
  const uint32_t lkey = mr->lkey;
  const int result = g_next_rereg(mr, flags, pd, address, length, access);
  if (result == 0 && mr->lkey != lkey) Renamed(mr, lkey);
  return result;
}

int Dereg(ibv_mr* mr) {
  const Caller caller(__builtin_return_address(0));
  RegionState* const region = RegionStates::Find(NumberKey(mr->context, mr->lkey));
  const int error = g_next_dereg(mr);
  if (error == 0 && region != nullptr && region->mr == mr) region->mr = nullptr;
  return error;
}

template <auto kFunction>
void InterceptRegistration(void** (*slot_of)(const char*), const char* name) {
  using Function = std::remove_pointer_t<decltype(kFunction)>;
  using Door = Registers<kFunction, Function>;
  InterceptBy(slot_of, name, &Door::Call, &Door::next);
}

}  // namespace

void Refuse(ibv_qp_ex* qp) { ExtendedQps::Find(qp)->original.wr_abort(qp); }

int PostChecked(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad,
                int (*next)(ibv_qp*, ibv_send_wr*, ibv_send_wr**)) {
  return Post(qp, list, bad, next);
}
int PostChecked(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad,
                int (*next)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**)) {
  return Post(qp, list, bad, next);
}
int PostChecked(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad,
                int (*next)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**)) {
  return Post(srq, list, bad, next);
}

void InstallMemoryDoor(void** (*slot_of)(const char*)) {
  InterceptRegistration<&::ibv_reg_mr>(slot_of, "ibv_reg_mr");
  InterceptRegistration<&::ibv_reg_mr_iova>(slot_of, "ibv_reg_mr_iova");
  InterceptRegistration<&::ibv_reg_mr_iova2>(slot_of, "ibv_reg_mr_iova2");
  InterceptRegistration<&::ibv_reg_dmabuf_mr>(slot_of, "ibv_reg_dmabuf_mr");
  InterceptBy(slot_of, "ibv_rereg_mr", Rereg, &g_next_rereg);
  InterceptBy(slot_of, "ibv_dereg_mr", Dereg, &g_next_dereg);
  InterceptBy(slot_of, "ibv_qp_to_qp_ex", ToQpEx, &g_next_to_qp_ex);
}

}  // namespace rdmaemu::layer::faults
