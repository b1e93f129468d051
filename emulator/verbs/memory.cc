// Memory regions and windows: registration, keys, binding, and the lookups of the data path.
#include <algorithm>

#include "emulator/base/newer_verbs.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {
namespace {

constexpr int kRemoteAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kWritesFromAfar = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// IB_ACCESS_SUPPORTED: the flags up to HUGETLB and the optional range. ON_DEMAND needs paging,
// which no software device supports.
constexpr int kKnownAccess =
    (((IBV_ACCESS_HUGETLB << 1) - 1) | IBV_ACCESS_OPTIONAL_RANGE) & ~IBV_ACCESS_ON_DEMAND;
// RXE_ACCESS_SUPPORTED_MR of Linux 6.12 lacks the first two, and that driver has no paging.
constexpr int kUnusedAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMostPages = UINT32_MAX;  // of one region (ib_umem_get)

constexpr uint32_t KeyIndex(uint32_t key) { return key >> 8; }

// True when `length` bytes at `address` are inside `size` bytes at `start`. No sum can overflow.
bool Inside(uint64_t address, uint64_t length, uint64_t start, uint64_t size) {
  return address >= start && address - start <= size && length <= size - (address - start);
}

MemoryRef RefOf(const MemoryRegion& region, uint64_t address, uint64_t length) {
  return {region.process, {region.user_address + (address - region.iova), length}};
}

tl::unexpected<MemoryFault> Fault(MemoryFault fault) { return tl::make_unexpected(fault); }

uint32_t RkeyOf(const Profile& profile, const MemoryRegion& region) {
  const bool is_remote = (region.access & (kRemoteAccess | kAccessFlush)) != 0;
  return profile.always_has_rkey || is_remote ? region.lkey : 0;
}

}  // namespace

Result<uint32_t> Verbs::NewKey(KeyOwner owner) {
  constexpr size_t kMaxKeys = size_t{1} << 23;
  if (keys_.size() >= kMaxKeys) return Fail(ENOMEM);
  for (;;) {
    const uint32_t key = environment_.random.Next32();
    if (KeyIndex(key) == 0 || keys_.Find(KeyIndex(key)) != nullptr) continue;
    keys_.Insert(KeyIndex(key), owner);
    return key;
  }
}

Status Verbs::CheckRegion(const Profile& profile, ProcessId process, int access, uint64_t address,
                          uint64_t length, RegionPages pages) {
  // Linux 6.12 supports all these flags, and returns EOPNOTSUPP for those that the device lacks.
  const int flush_access = profile.flush_access();
  const int unused =
      profile.refuses_unused_access ? access & (kUnusedAccess | (kAccessFlush & ~flush_access)) : 0;
  if ((access & ~(kKnownAccess | flush_access | unused)) != 0) return Fail(EINVAL);
  if ((access & kWritesFromAfar) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return Fail(EINVAL);
  }
  if (unused != 0) return Fail(EOPNOTSUPP);
  // A range that wraps around, or a range without pages, is EINVAL (measured).
  const uint64_t end = address + length;
  if (end < address || end > UINT64_MAX - kPageBytes) return Fail(EINVAL);
  if (length == 0 && (!profile.registers_empty_regions || address % kPageBytes == 0)) {
    return Fail(EINVAL);
  }
  if (length / kPageBytes >= kMostPages) return Fail(EINVAL);
  Memory& memory = environment_.memory;
  // The kernel also pins the page of an empty region.
  const bool reachable = pages == RegionPages::kUnknown || length == 0
                             ? memory.Reachable(process, {address, std::max<uint64_t>(length, 1)},
                                                NeedsWritablePages(access))
                             : pages == RegionPages::kReachable && memory.Admits(process, address);
  if (!reachable) return Fail(EFAULT);
  // rxe_mr_fill_pages_from_sgt of Linux 6.12
  if ((access & kAccessFlushPersistent) != 0 && !profile.has_persistent_memory) return Fail(EINVAL);
  return {};
}

Result<MemoryRegion*> Verbs::RegMr(GroupId group, ProcessId process, const MrRequest& request) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(group, request.pd);
  if (!pd) return Pass(pd.error());
  if ((request.address ^ request.iova) % kPageBytes != 0) return Fail(EINVAL);
  if (request.iova + request.length < request.iova) return Fail(EINVAL);
  Context& context = *(*pd)->context;
  const Status checked = CheckRegion(context.device->profile, process, request.access,
                                     request.address, request.length, request.pages);
  if (!checked) return Pass(checked.error());

  auto region = std::make_unique<MemoryRegion>();
  region->pd = *pd;
  region->process = process;
  region->user_address = request.address;
  region->iova = request.iova;
  region->length = request.length;
  region->access = request.access;
  const Result<uint32_t> key = NewKey({region.get(), nullptr});
  if (!key) return Pass(key.error());
  region->lkey = *key;
  region->rkey = RkeyOf(context.device->profile, *region);
  const Result<MemoryRegion*> adopted =
      Adopt(context, context.device->profile.device.orig_attr.max_mr, std::move(region));
  if (!adopted) {
    keys_.Erase(KeyIndex(*key));
    return adopted;
  }
  (*adopted)->order = ++GroupOf(group).mrs_made;
  (*pd)->users++;
  return adopted;
}

std::optional<uint32_t> Verbs::RegionOrderOf(ProcessId process, const MemoryRange& range) const {
  std::optional<uint32_t> order;
  for (const auto& [id, group] : groups_) {
    for (const Handle handle : group->handles[static_cast<size_t>(ObjectKind::kMr)]) {
      const MemoryRegion& region = *handles_.Find<MemoryRegion>(id, handle);
      if (region.process != process || range.address >= region.user_address + region.length ||
          region.user_address >= range.address + range.length) {
        continue;
      }
      if (!order || region.order < *order) order = region.order;
    }
  }
  return order;
}

Result<MemoryRegion*> Verbs::ReregMr(GroupId group, ProcessId process, Handle handle,
                                     const ReregRequest& request) {
  constexpr uint32_t kKnownFlags =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  const Result<MemoryRegion*> found = Find<MemoryRegion>(group, handle);
  if (!found) return found;
  MemoryRegion& region = **found;
  const Profile& profile = region.pd->context->device->profile;
  if (!profile.reregisters_regions) return Fail(EOPNOTSUPP);
  if (request.flags == 0 || (request.flags & ~kKnownFlags) != 0) return Fail(EINVAL);
  if (region.bound_windows != 0) return Fail(EBUSY);

  MemoryRegion changed = region;
  if ((request.flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(group, request.pd);
    if (!pd) return Pass(pd.error());
    if ((*pd)->context != region.pd->context) return Fail(EINVAL);
    changed.pd = *pd;
  }
  if ((request.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) changed.access = request.access;
  if ((request.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    changed.process = process;
    changed.user_address = changed.iova = request.address;
    changed.length = request.length;
  }
  const Status checked = CheckRegion(profile, changed.process, changed.access, changed.user_address,
                                     changed.length, RegionPages::kUnknown);
  if (!checked) return Pass(checked.error());
  changed.rkey = RkeyOf(profile, changed);
  Quiesce(RegionPayloads{region, (request.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0});
  region.pd->users--;
  changed.pd->users++;
  region = changed;
  if ((request.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) handles_.SetMaker(handle, maker_);
  return &region;
}

Status Verbs::DeregMr(GroupId group, Handle handle) {
  const Result<MemoryRegion*> region = Find<MemoryRegion>(group, handle);
  if (!region) return Pass(region.error());
  if ((*region)->bound_windows != 0) {
    const Profile& profile = (*region)->pd->context->device->profile;
    return Fail(profile.bound_regions_are_busy ? EBUSY : EINVAL);
  }
  RemoveMr(**region);
  return {};
}

void Verbs::RemoveMr(MemoryRegion& region) {
  Quiesce(RegionPayloads{region});
  keys_.Erase(KeyIndex(region.lkey));
  region.pd->users--;
  Drop(*region.pd->context, region);
}

// ---- windows

Result<MemoryWindow*> Verbs::AllocMw(GroupId group, Handle handle, int type) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(group, handle);
  if (!pd) return Pass(pd.error());
  Context& context = *(*pd)->context;
  if (context.device->profile.device.orig_attr.max_mw == 0) return Fail(EOPNOTSUPP);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return Fail(EINVAL);
  auto window = std::make_unique<MemoryWindow>();
  window->pd = *pd;
  window->type = static_cast<ibv_mw_type>(type);
  const Result<uint32_t> key = NewKey({nullptr, window.get()});
  if (!key) return Pass(key.error());
  window->rkey = *key;
  const Result<MemoryWindow*> adopted =
      Adopt(context, context.device->profile.device.orig_attr.max_mw, std::move(window));
  if (!adopted) {
    keys_.Erase(KeyIndex(*key));
    return adopted;
  }
  (*pd)->users++;
  return adopted;
}

Status Verbs::DeallocMw(GroupId group, Handle handle) {
  const Result<MemoryWindow*> window = Find<MemoryWindow>(group, handle);
  if (!window) return Pass(window.error());
  RemoveMw(**window);
  return {};
}

void Verbs::RemoveMw(MemoryWindow& window) {
  Unbind(window);
  keys_.Erase(KeyIndex(window.rkey));
  window.pd->users--;
  Drop(*window.pd->context, window);
}

void Verbs::Unbind(MemoryWindow& window) {
  if (window.region != nullptr) {
    const MemoryRef bound = RefOf(*window.region, window.iova, window.length);
    Quiesce(RemotePayloads{bound.process, bound.range});
    window.region->bound_windows--;
  }
  if (window.qp != nullptr) window.qp->bound_windows--;
  window.region = nullptr;
  window.qp = nullptr;
  window.iova = window.length = 0;
  window.access = 0;
}

// Checks the rules of rxe_check_bind_mw. Returns the region to bind to, nullptr to unbind.
tl::expected<MemoryRegion*, MemoryFault> Verbs::CheckBind(const QueuePair& qp,
                                                          const MemoryWindow& window,
                                                          const rxe_send_wr& wr) {
  const auto& bind = wr.wr.mw;
  const auto access = static_cast<int>(bind.access);
  if (window.type == IBV_MW_TYPE_1) {
    if ((access & IBV_ACCESS_ZERO_BASED) != 0) return Fault(MemoryFault::kAccess);
    if (bind.length == 0) return nullptr;
  } else if (window.region != nullptr || bind.length == 0) {
    // A type 2 window must be invalidated before it is bound again. Binding cannot invalidate it.
    return Fault(MemoryFault::kKey);
  }
  KeyOwner* owner = keys_.Find(KeyIndex(bind.mr_lkey));
  MemoryRegion* region = owner == nullptr ? nullptr : owner->region;
  if (region == nullptr || region->lkey != bind.mr_lkey || region->pd != qp.pd) {
    return Fault(MemoryFault::kKey);
  }
  if ((region->access & IBV_ACCESS_MW_BIND) == 0) return Fault(MemoryFault::kAccess);
  if ((region->access & IBV_ACCESS_ZERO_BASED) != 0 &&
      !qp.device->profile.binds_zero_based_regions) {
    return Fault(MemoryFault::kAccess);
  }
  if ((access & kWritesFromAfar) != 0 && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return Fault(MemoryFault::kAccess);
  }
  if (!Inside(bind.addr, bind.length, region->iova, region->length)) {
    return Fault(MemoryFault::kRange);
  }
  return region;
}

tl::expected<void, MemoryFault> Verbs::BindWindow(QueuePair& qp, const rxe_send_wr& wr) {
  const auto& bind = wr.wr.mw;
  KeyOwner* owner = keys_.Find(KeyIndex(bind.mw_rkey));
  if (owner == nullptr || owner->window == nullptr || owner->window->rkey != bind.mw_rkey ||
      owner->window->pd != qp.pd) {
    return Fault(MemoryFault::kKey);
  }
  MemoryWindow& window = *owner->window;
  // rxe_bind_mw of Linux 6.12: RXE_ACCESS_SUPPORTED_MW
  if (qp.device->profile.refuses_unused_access && (bind.access & IBV_ACCESS_HUGETLB) != 0) {
    return Fault(MemoryFault::kAccess);
  }
  const auto region = CheckBind(qp, window, wr);
  if (!region) return Fault(region.error());
  Unbind(window);
  // The program chooses the lower 8 bits of the new key (ibv_inc_rkey). The other bits do not
  // change.
  window.rkey = (window.rkey & ~0xffu) | (bind.rkey & 0xff);
  if (*region == nullptr) return {};
  window.region = *region;
  window.region->bound_windows++;
  window.iova = bind.addr;
  window.length = bind.length;
  // Rights of the region itself (IBV_ACCESS_LOCAL_WRITE and others) do not apply to a window.
  window.access =
      static_cast<int>(bind.access) & (kRemoteAccess | kAccessFlush | IBV_ACCESS_ZERO_BASED);
  if (window.type == IBV_MW_TYPE_2) {
    window.qp = &qp;
    qp.bound_windows++;
  }
  return {};
}

tl::expected<void, MemoryFault> Verbs::Invalidate(QueuePair& qp, uint32_t rkey) {
  KeyOwner* owner = keys_.Find(KeyIndex(rkey));
  if (owner == nullptr) return Fault(MemoryFault::kKey);
  if (MemoryWindow* window = owner->window; window != nullptr) {
    // Programs invalidate type 1 windows by binding them to nothing (o10-37.2.26).
    if (window->rkey != rkey || window->type != IBV_MW_TYPE_2 || window->region == nullptr ||
        window->qp != &qp) {
      return Fault(MemoryFault::kKey);
    }
    Unbind(*window);
    return {};
  }
  MemoryRegion& region = *owner->region;
  if (region.rkey != rkey || region.pd != qp.pd || !region.remote_valid) {
    return Fault(MemoryFault::kKey);
  }
  if (region.bound_windows != 0) return Fault(MemoryFault::kAccess);
  Quiesce(RemotePayloads{region.process, {region.user_address, region.length}});
  region.remote_valid = false;
  return {};
}

// ---- the data path

tl::expected<MemoryRef, MemoryFault> Verbs::ResolveLocal(const ProtectionDomain& pd,
                                                         const rxe_sge& sge, int access) {
  const KeyOwner* owner = keys_.Find(KeyIndex(sge.lkey));
  const MemoryRegion* region = owner == nullptr ? nullptr : owner->region;
  if (region == nullptr || region->lkey != sge.lkey || region->pd != &pd) {
    // A length of 0 needs no key.
    if (sge.length == 0) return MemoryRef{ProcessId::kNone, {0, 0}};
    return Fault(MemoryFault::kKey);
  }
  if (sge.length == 0) return MemoryRef{region->process, {0, 0}};
  if ((access & ~region->access) != 0) return Fault(MemoryFault::kAccess);
  if (!Inside(sge.addr, sge.length, region->iova, region->length)) {
    return Fault(MemoryFault::kRange);
  }
  return RefOf(*region, sge.addr, sge.length);
}

tl::expected<Verbs::RemoteTarget, MemoryFault> Verbs::FindRemote(const QueuePair& qp, uint32_t rkey,
                                                                 int access) {
  const KeyOwner* owner = keys_.Find(KeyIndex(rkey));
  if (owner == nullptr) return Fault(MemoryFault::kKey);
  if (const MemoryRegion* region = owner->region; region != nullptr) {
    if (region->rkey != rkey || region->pd != qp.pd || !region->remote_valid) {
      return Fault(MemoryFault::kKey);
    }
    if ((access & ~region->access) != 0) return Fault(MemoryFault::kAccess);
    return RemoteTarget{*region, region->iova, region->iova, region->length};
  }
  const MemoryWindow& window = *owner->window;
  if (window.rkey != rkey || window.pd != qp.pd || window.region == nullptr ||
      (window.qp != nullptr && window.qp != &qp)) {
    return Fault(MemoryFault::kKey);
  }
  if ((access & ~window.access) != 0) return Fault(MemoryFault::kAccess);
  const bool zero_based = (window.access & IBV_ACCESS_ZERO_BASED) != 0;
  return RemoteTarget{*window.region, zero_based ? 0 : window.iova, window.iova, window.length};
}

tl::expected<MemoryRef, MemoryFault> Verbs::ResolveRemote(const QueuePair& qp, uint32_t rkey,
                                                          uint64_t address, uint64_t length,
                                                          int access) {
  if (length == 0) return MemoryRef{ProcessId::kNone, {0, 0}};
  const auto target = FindRemote(qp, rkey, access);
  if (!target) return Fault(target.error());
  if (!Inside(address, length, target->first, target->length)) return Fault(MemoryFault::kRange);
  return RefOf(target->region, target->iova + (address - target->first), length);
}

const MemoryRegion* Verbs::FindRegion(const ProtectionDomain& pd, uint32_t key, bool is_remote) {
  const KeyOwner* owner = keys_.Find(KeyIndex(key));
  const MemoryRegion* const region = owner == nullptr ? nullptr : owner->region;
  if (region == nullptr || region->pd != &pd) return nullptr;
  if (!is_remote) return region->lkey == key ? region : nullptr;
  return region->rkey == key && region->remote_valid ? region : nullptr;
}

tl::expected<MemoryRef, MemoryFault> Verbs::ResolveFlush(const QueuePair& qp, uint32_t rkey,
                                                         uint64_t address, uint64_t length,
                                                         bool whole_region, int access) {
  const auto target = FindRemote(qp, rkey, access);
  if (!target) return Fault(target.error());
  if (whole_region) return RefOf(target->region, target->region.iova, target->region.length);
  if (!Inside(address, length, target->first, target->length)) return Fault(MemoryFault::kRange);
  return RefOf(target->region, target->iova + (address - target->first), length);
}

}  // namespace rdmaemu
