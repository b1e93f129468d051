// Multicast groups of ids (rdma_join_multicast, cma_iboe_join_multicast, cma_join_ib_multicast,
// destroy_mc and ucma_leave_multicast of the kernel). A join needs no answer from the network. The
// device is a member of the IP group until rdma_leave_multicast, or until the id is destroyed.
#include <utility>

#include "emulator/cm/rdma_ids.h"
#include "emulator/verbs/device.h"
#include "emulator/verbs/mgid.h"

namespace rdmaemu::cm {

namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint8_t kMulticastHopLimit = 64;  // IPV6_DEFAULT_HOPLIMIT
// The kernel's own ENOTSUPP, which <cerrno> lacks (measured).
constexpr int kNotSupportedByKernel = 524;
constexpr uint8_t kAssignedSignature = 0xa0;  // of an MGID that the administrator chose

}  // namespace

// cma_iboe_join_multicast.
Result<Membership> RdmaIds::RoceMembership(const CmaId& id, const GroupRequest& request) const {
  const SocketAddress& group = request.group;
  if (group.IsAny()) return Fail(EINVAL);
  if (group.family != AF_INET) return Fail(kNotSupportedByKernel);  // RoCE v2 joins IPv4 only
  Membership membership;
  membership.group = membership.wire_group = group.address;
  membership.local = id.source().address;
  // An address that is not multicast joins, too, and attaching its QP then fails (measured).
  membership.receives = !request.send_only && group.address.IsMulticast();
  return membership;
}

// cma_join_ib_multicast. The administrator refuses a P_Key that the port lacks, and a GID that is
// no multicast GID. The administrator creates every other group.
Result<Membership> RdmaIds::IbMembership(const CmaId& id, const GroupRequest& request) const {
  // ib_sa_get_mcmember_rec finds only the broadcast group of the IPoIB interface.
  if (!id.on_link) return Fail(EADDRNOTAVAIL);
  const CmDevice* const device = addresses_.DeviceOf(id.source().address);
  if (device == nullptr) return Membership{};  // its event is an error, as on RoCE
  Membership membership;
  membership.local = AddressOfGid(addresses_.FirstGidOf(*device).value_or(id.source().address));
  membership.group = MgidFor(id, request.group, membership.local);
  membership.wire_group = WireGroupOf(membership.group);
  membership.mlid = MlidOf(membership.group);
  const bool refused =
      !membership.group.IsMulticast() || !addresses_.FindPkey(membership.local, id.address_pkey);
  membership.status = refused ? -EINVAL : 0;
  membership.receives = !refused && !request.send_only;
  return membership;
}

// cma_set_mgid.
NetAddress RdmaIds::MgidFor(const CmaId& id, const SocketAddress& group,
                            const NetAddress& local) const {
  const auto& bytes = group.address.bytes;
  if (group.IsAny()) {  // the administrator chooses one: ff12:a01b:PKEY:LID::COUNT
    NetAddress mgid =
        MgidOf(NetAddress::Ipv4(last_membership_ + 1), id.address_pkey, MgidSignature::kIpoib);
    const uint16_t lid = LidOf(local);
    mgid.bytes[2] = kAssignedSignature;
    mgid.bytes[6] = static_cast<uint8_t>(lid >> 8);
    mgid.bytes[7] = static_cast<uint8_t>(lid);
    return mgid;
  }
  const bool is_assigned = bytes[0] == 0xff && (bytes[1] & 0xf0) == 0x10 &&
                           bytes[2] == kAssignedSignature && bytes[3] == 0x1b;
  if (group.family == AF_IB || (group.family == AF_INET6 && is_assigned)) return group.address;
  return MgidOf(group.address, id.address_pkey,
                id.port_space == RDMA_PS_UDP ? MgidSignature::kRdmaCm : MgidSignature::kIpoib);
}

Result<uint32_t> RdmaIds::JoinMulticast(Time now, CmaId& id, const GroupRequest& request) {
  if (id.IsIwarp()) return Fail(ENOSYS);
  if (id.state != IdState::kAddrBound && id.state != IdState::kAddrResolved) return Fail(EINVAL);
  if (!id.IsUd()) return Fail(EINVAL);
  const Result<Membership> asked =
      id.HasLids() ? IbMembership(id, request) : RoceMembership(id, request);
  if (!asked) return tl::make_unexpected(asked.error());
  if (id.memberships.size() >= kMaxMembershipsPerId) return Fail(ENOMEM);
  if (asked->receives) {
    const Status joined = groups_.JoinGroup(id.device->index, asked->local, asked->wire_group);
    if (!joined) return tl::make_unexpected(joined.error());
  }
  if (id.qkey == 0) (void)SetDefaultQkey(id);  // cannot fail for an id with a link
  const uint32_t handle = ++last_membership_;
  Membership& membership = id.memberships[handle] = *asked;
  membership.handle = handle;
  membership.uid = request.uid;
  multicast_owner_[handle] = id.handle;
  Push(now, id, MakeJoinEvent(id, membership));
  return handle;
}

PendingEvent RdmaIds::MakeJoinEvent(const CmaId& id, const Membership& membership) const {
  PendingEvent event = MakeEvent(id, EventType::kMulticastJoin, membership.status);
  event.multicast = membership.handle;
  event.response.uid = membership.uid;
  event.response.id = membership.handle;
  // The address from which the id would send may have been removed since it was bound. In this case
  // the kernel does not change the status from 0 (cma_make_mc_event).
  if (membership.status != 0 || addresses_.DeviceOf(id.source().address) == nullptr) {
    event.response.event = static_cast<uint32_t>(EventType::kMulticastError);
    return event;
  }
  rdma_ucm_ud_param& ud = event.response.param.ud;
  ud.qp_num = kMulticastQpn;
  ud.qkey = id.qkey;
  ud.ah_attr = MakeAh(id, id.source().address, membership.group, 0, kMulticastHopLimit, 0);
  if (id.HasLids()) {  // ib_init_ah_from_mcmember
    ud.ah_attr.grh.sgid_index = 0;
    ud.ah_attr.dlid = membership.mlid;
    ud.ah_attr.static_rate = IBV_RATE_10_GBPS;
  }
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
    groups_.LeaveGroup(id.device->index, membership.wire_group);
  }
}

void RdmaIds::EndAllMemberships(CmaId& id) {
  for (auto& [handle, membership] : id.memberships) EndMembership(id, membership);
}

}  // namespace rdmaemu::cm
