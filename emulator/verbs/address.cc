// Address handles and multicast groups.
#include <algorithm>

#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {

Result<AddressHandle*> Verbs::CreateAh(GroupId id, Handle handle, const ibv_ah_attr& attr) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(id, handle);
  if (!pd) return Pass(pd.error());
  Context& context = *(*pd)->context;
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
  const NetAddress address = NetAddress::FromGid(gid);
  if ((*qp)->type != IBV_QPT_UD || !address.IsMulticast()) return Fail(EINVAL);
  const ibv_device_attr& limits = (*qp)->device->profile.device.orig_attr;
  auto found = multicast_.find(address);
  if (found == multicast_.end()) {
    if (multicast_.size() >= static_cast<size_t>(limits.max_mcast_grp)) return Fail(ENOMEM);
  } else if (std::ranges::find(found->second, *qp) != found->second.end()) {
    return {};
  } else if (found->second.size() >= static_cast<size_t>(limits.max_mcast_qp_attach)) {
    return Fail(ENOMEM);
  }
  if (multicast_members_ >= limits.max_total_mcast_qp_attach) return Fail(ENOMEM);
  multicast_[address].push_back(*qp);
  multicast_members_++;
  (*qp)->multicast_groups++;
  return {};
}

Status Verbs::DetachMcast(GroupId group, Handle handle, const ibv_gid& gid) {
  const Result<QueuePair*> qp = Find<QueuePair>(group, handle);
  if (!qp) return Pass(qp.error());
  const auto found = multicast_.find(NetAddress::FromGid(gid));
  if (found == multicast_.end() || std::erase(found->second, *qp) == 0) return Fail(EINVAL);
  if (found->second.empty()) multicast_.erase(found);
  multicast_members_--;
  (*qp)->multicast_groups--;
  return {};
}

void Verbs::DetachAll(QueuePair& qp) {
  for (auto it = multicast_.begin(); it != multicast_.end();) {
    multicast_members_ -= static_cast<int64_t>(std::erase(it->second, &qp));
    it = it->second.empty() ? multicast_.erase(it) : std::next(it);
  }
  qp.multicast_groups = 0;
}

std::vector<QueuePair*> Verbs::MulticastReceivers(const NetAddress& group) {
  const auto found = multicast_.find(group);
  return found == multicast_.end() ? std::vector<QueuePair*>{} : found->second;
}

}  // namespace rdmaemu
