#include "emulator/verbs/multicast.h"

#include <algorithm>

#include "emulator/verbs/objects.h"

namespace rdmaemu {

Status MulticastGroups::Attach(QueuePair& qp, const NetAddress& group) {
  if (qp.type != IBV_QPT_UD || !group.IsMulticast()) return Fail(EINVAL);
  const ibv_device_attr& limits = qp.device->profile.device.orig_attr;
  Totals& totals = totals_[qp.device->index];
  const std::pair key{group, qp.device->index};
  const auto found = groups_.find(key);
  const bool is_new = found == groups_.end() || found->second.attached.empty();
  if (is_new) {
    if (totals.groups >= limits.max_mcast_grp || limits.max_mcast_qp_attach < 1) {
      return Fail(ENOMEM);
    }
  } else if (std::ranges::find(found->second.attached, &qp) != found->second.attached.end()) {
    return {};
  } else if (found->second.attached.size() >= static_cast<size_t>(limits.max_mcast_qp_attach)) {
    return Fail(ENOMEM);
  }
  if (totals.attachments >= limits.max_total_mcast_qp_attach) return Fail(ENOMEM);
  groups_[key].attached.push_back(&qp);
  if (is_new) totals.groups++;
  totals.attachments++;
  qp.multicast_groups++;
  return {};
}

void MulticastGroups::Remove(Groups::iterator group, QueuePair& qp) {
  std::vector<QueuePair*>& attached = group->second.attached;
  if (std::erase(attached, &qp) == 0) return;
  Totals& totals = totals_[group->first.second];
  totals.attachments--;
  if (attached.empty()) totals.groups--;
  qp.multicast_groups--;
}

MulticastGroups::Groups::iterator MulticastGroups::ForgetIfUnused(Groups::iterator group) {
  const bool unused = group->second.attached.empty() && !group->second.joined;
  return unused ? groups_.erase(group) : std::next(group);
}

Status MulticastGroups::Detach(QueuePair& qp, const NetAddress& group) {
  const auto found = groups_.find({group, qp.device->index});
  if (found == groups_.end() ||
      std::ranges::find(found->second.attached, &qp) == found->second.attached.end()) {
    return Fail(EINVAL);
  }
  Remove(found, qp);
  ForgetIfUnused(found);
  return {};
}

void MulticastGroups::DetachAll(QueuePair& qp) {
  for (auto it = groups_.begin(); it != groups_.end() && qp.multicast_groups > 0;) {
    if (it->first.second == qp.device->index) Remove(it, qp);
    it = ForgetIfUnused(it);
  }
}

void MulticastGroups::SetJoined(uint32_t device, const NetAddress& group, bool joined) {
  const auto it = groups_.try_emplace({group, device}).first;
  it->second.joined = joined;
  ForgetIfUnused(it);
}

std::vector<QueuePair*> MulticastGroups::Receivers(const NetAddress& group,
                                                   std::optional<uint32_t> device) const {
  std::vector<QueuePair*> receivers;
  for (auto it = groups_.lower_bound({group, device.value_or(0)});
       it != groups_.end() && it->first.first == group; ++it) {
    if (device && it->first.second != *device) break;
    if (!it->second.joined) continue;
    receivers.insert(receivers.end(), it->second.attached.begin(), it->second.attached.end());
  }
  return receivers;
}

}  // namespace rdmaemu
