// Address handles and multicast groups.
#include "emulator/verbs/mgid.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {

namespace {

// A queue pair of a port with LIDs is attached to an MGID. The wire has its IP group.
NetAddress AttachedGroup(const QueuePair& qp, const ibv_gid& gid) {
  const NetAddress group = NetAddress::FromGid(gid);
  return qp.device->has_lids() ? WireGroupOf(group) : group;
}

}  // namespace

Result<AddressHandle*> Verbs::CreateAh(GroupId id, Handle handle, const ibv_ah_attr& attr) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(id, handle);
  if (!pd) return Pass(pd.error());
  Context& context = *(*pd)->context;
  if (context.device->profile.device.orig_attr.max_ah == 0) return Fail(EOPNOTSUPP);
  const Result<Path> path = ResolvePath(*context.device, attr);
  if (!path) return Pass(path.error());
  auto ah = std::make_unique<AddressHandle>();
  ah->pd = *pd;
  ah->attr = attr;
  ah->path = *path;
  const auto adopted =
      Adopt(context, context.device->profile.device.orig_attr.max_ah, std::move(ah));
  if (adopted) (*pd)->users++;
  return adopted;
}

Status Verbs::DestroyAh(GroupId group, Handle handle) {
  const Result<AddressHandle*> ah = Find<AddressHandle>(group, handle);
  if (!ah) return Pass(ah.error());
  RemoveAh(**ah);
  return {};
}

void Verbs::RemoveAh(AddressHandle& ah) {
  ah.pd->users--;
  Drop(*ah.pd->context, ah);
}

const AddressHandle* Verbs::FindAh(const QueuePair& qp, Handle handle) {
  const AddressHandle* ah = handles_.Find<AddressHandle>(qp.group(), handle);
  return ah != nullptr && ah->pd == qp.pd ? ah : nullptr;
}

Status Verbs::AttachMcast(GroupId group, Handle handle, const ibv_gid& gid) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  if ((*qp)->device->profile.device.orig_attr.max_mcast_grp == 0) return Fail(EOPNOTSUPP);
  return multicast_.Attach(**qp, AttachedGroup(**qp, gid));
}

Status Verbs::DetachMcast(GroupId group, Handle handle, const ibv_gid& gid) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  return multicast_.Detach(**qp, AttachedGroup(**qp, gid));
}

std::vector<QueuePair*> Verbs::MulticastReceivers(const NetAddress& group, const NetAddress* at) {
  if (at == nullptr) return multicast_.Receivers(group, std::nullopt);
  const auto device = by_address_.find(*at);
  if (device == by_address_.end()) return {};
  return multicast_.Receivers(group, device->second->index);
}

}  // namespace rdmaemu
