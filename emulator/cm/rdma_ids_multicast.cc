// Multicast groups of ids (rdma_join_multicast, cma_iboe_join_multicast, destroy_mc and
// ucma_leave_multicast of the kernel). A join needs no answer from the network. The device is a
// member of the IP group until the id leaves or is destroyed.
#include <utility>

#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint8_t kMulticastHopLimit = 64;  // IPV6_DEFAULT_HOPLIMIT
// The kernel's own ENOTSUPP, which <cerrno> lacks (measured).
constexpr int kNotSupportedByKernel = 524;

}  // namespace

Result<uint32_t> RdmaIds::JoinMulticast(Time now, CmaId& id, const GroupRequest& request) {
  const SocketAddress& group = request.group;
  if (id.IsIwarp()) return Fail(ENOSYS);
  if (id.state != IdState::kAddrBound && id.state != IdState::kAddrResolved) return Fail(EINVAL);
  if (!id.IsUd() || group.IsAny()) return Fail(EINVAL);
  if (group.family != AF_INET) return Fail(kNotSupportedByKernel);  // RoCE v2 joins IPv4 only
  if (id.memberships.size() >= kMaxMembershipsPerId) return Fail(ENOMEM);
  // An address that is not multicast joins, too, and attaching its QP then fails (measured).
  const bool receives = !request.send_only && group.address.IsMulticast();
  if (receives) {
    const Status joined = groups_.JoinGroup(id.device->index, id.source().address, group.address);
    if (!joined) return tl::make_unexpected(joined.error());
  }
  if (id.qkey == 0) SetDefaultQkey(id);
  const uint32_t handle = ++last_membership_;
  id.memberships[handle] = {handle, request.uid, group, receives};
  multicast_owner_[handle] = id.handle;
  Push(now, id, MakeJoinEvent(id, id.memberships[handle]));
  return handle;
}

PendingEvent RdmaIds::MakeJoinEvent(const CmaId& id, const Membership& membership) const {
  PendingEvent event = MakeEvent(id, EventType::kMulticastJoin, 0);
  event.multicast = membership.handle;
  event.response.uid = membership.uid;
  event.response.id = membership.handle;
  // The address from which the id would send may have been removed since it was bound. The kernel
  // leaves the status at 0 (cma_make_mc_event).
  if (addresses_.DeviceOf(id.source().address) == nullptr) {
    event.response.event = static_cast<uint32_t>(EventType::kMulticastError);
    return event;
  }
  rdma_ucm_ud_param& ud = event.response.param.ud;
  ud.qp_num = kMulticastQpn;
  ud.qkey = id.qkey;
  ud.ah_attr = MakeAh(id, id.source().address, membership.group.address, 0, kMulticastHopLimit, 0);
  return event;
}

Result<uint32_t> RdmaIds::LeaveMulticast(uint32_t channel, uint32_t handle) {
  const auto owner = multicast_owner_.find(handle);
  if (owner == multicast_owner_.end()) return Fail(ENOENT);
  CmaId& id = *Find(owner->second);
  if (id.channel != channel) return Fail(EINVAL);
  if (id.state == IdState::kRemoved) return Fail(ENXIO);
  const auto membership = id.memberships.find(handle);
  const uint32_t reported = membership->second.events_reported;
  EndMembership(id, membership->second);
  multicast_owner_.erase(owner);
  id.memberships.erase(membership);
  channels_.Take(channel, id.handle,
                 [handle](const PendingEvent& event) { return event.multicast == handle; });
  return reported;
}

void RdmaIds::EndMembership(const CmaId& id, Membership& membership) {
  if (std::exchange(membership.receives, false)) {
    groups_.LeaveGroup(id.device->index, membership.group.address);
  }
}

void RdmaIds::EndAllMemberships(CmaId& id) {
  for (auto& [handle, membership] : id.memberships) EndMembership(id, membership);
}

}  // namespace rdmaemu::cm
