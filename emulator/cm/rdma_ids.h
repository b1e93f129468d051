// The RDMA CM ids of a host and their operations: bind, resolve, listen, connect, multicast,
// migration, removal. The operations act as rdma_* of the kernel's cma.c. Their events and counts
// are those of ucma.c.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "emulator/abi/write_event.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/timer_queue.h"
#include "emulator/cm/channel.h"
#include "emulator/cm/cma_id.h"
#include "emulator/cm/ib_cm.h"

namespace rdmaemu::cm {

class RdmaIds final : public IbCmUser {
 public:
  static constexpr size_t kMaxIdsPerGroup = 65536;
  static constexpr size_t kMaxMembershipsPerId = 1024;

  RdmaIds(const CmEnvironment& environment, Random& random, trace::Sink& trace, Channels& channels,
          IdSpace handles = {})
      : addresses_(environment.addresses),
        groups_(environment.groups),
        queue_pairs_(environment.queue_pairs),
        random_(random),
        trace_(trace),
        channels_(channels),
        ib_cm_(environment, random, trace, *this),
        handles_(handles) {}

  IbCm& ib_cm() { return ib_cm_; }
  const IbCm& ib_cm() const { return ib_cm_; }
  size_t size() const { return ids_.size(); }
  size_t OfGroup(GroupId group) const;
  std::vector<CmListener> Listeners() const;
  std::vector<const CmaId*> All(size_t limit) const;

  // Returns ENOMEM when there are kMaxIdsPerGroup ids in the group.
  Result<CmaId*> Create(GroupId group, ProcessId process, uint32_t channel, uint64_t uid,
                        uint16_t port_space, ibv_qp_type qp_type);
  // Returns ENOENT when there is no such id, EINVAL when the id is on another channel, ENXIO when
  // its device was removed.
  Result<CmaId*> Get(uint32_t channel, uint32_t handle);
  // Acts as Get for ids with a device. Returns EINVAL for an id without a device.
  Result<CmaId*> GetWithDevice(uint32_t channel, uint32_t handle);
  // Returns how many of the id's events were reported.
  Result<uint32_t> Destroy(Time now, uint32_t channel, uint32_t handle);
  void DestroyOfChannel(Time now, uint32_t channel);
  // Moves the id with its pending events. A listener's unfetched requests move, too.
  Result<uint32_t> Migrate(uint32_t channel, uint32_t handle, uint32_t new_channel);
  // Updates counts after a program has fetched an event: the id's reported events and the
  // listener's backlog.
  void EventReported(const PendingEvent& event);

  Status Bind(CmaId& id, const SocketAddress& address);
  // `timeout_ms` limits the wait for a neighbour that does not answer. After the time-out the id
  // gets ADDR_ERROR with -ETIMEDOUT (process_one_req of the kernel's addr.c), and may try again. In
  // ResolveRoute `timeout_ms` limits the wait for the subnet administrator of a port with LIDs
  // (ROUTE_ERROR).
  Status ResolveAddress(Time now, CmaId& id, const SocketAddress& source,
                        const SocketAddress& destination, uint32_t timeout_ms);
  Status ResolveRoute(Time now, CmaId& id, uint32_t timeout_ms);
  Status SetPath(Time now, CmaId& id, const PathRecord& path);
  Status Listen(CmaId& id, uint32_t backlog);
  Status SetReuseAddress(CmaId& id, bool reuse);
  Status SetAfOnly(CmaId& id, bool af_only);
  Status SetAckTimeout(CmaId& id, uint8_t timeout);

  // Returns EINPROGRESS when the manager is iw_cm, the peer is on another host and
  // `outcome_channel` is not 0. In this case `outcome_channel` gets an event whose status is the
  // outcome of the connect. Without that channel the id's own channel gets the outcome.
  Status Connect(Time now, CmaId& id, const rdma_ucm_conn_param& parameters,
                 const rdma_ucm_ece& ece, uint32_t outcome_channel = 0);
  // Without parameters, sends the RTU of an id that got CONNECT_RESPONSE (rdma_establish). With
  // parameters, answers the request. Afterwards the id's events carry `uid`.
  Status Accept(Time now, CmaId& id, const rdma_ucm_conn_param* parameters, const rdma_ucm_ece& ece,
                uint64_t uid);
  Status Reject(Time now, CmaId& id, RejectReason reason, std::span<const uint8_t> private_data);
  Status Disconnect(Time now, CmaId& id);
  // Acts as rdma_notify. Returns EINVAL for an event that the id's manager does not support.
  Status Notify(Time now, CmaId& id, uint32_t event);
  void QpEnded(Time now, uint32_t qpn);
  void Refused(Time now, const NetAddress& local, const NetAddress& remote) {
    ib_cm_.Refused(now, local, remote);
  }
  // Queues an event that the program wrote. Returns ENOMEM when the id's channel is full.
  Status WriteEvent(Time now, CmaId& id, const CmWriteEvent& event);
  // Returns the attributes with which the id's QP enters `state` (rdma_init_qp_attr).
  Result<ib_uverbs_qp_attr> InitQpAttr(CmaId& id, ibv_qp_state state);

  struct GroupRequest {
    SocketAddress group;
    uint64_t uid;
    bool send_only;
  };
  // Returns the membership's handle. Returns EINVAL for an id that is not UD, or is in another
  // state than bound or resolved. Returns the kernel's ENOTSUPP (524) for an IPv6 group of RoCE. On
  // a port with LIDs, returns EADDRNOTAVAIL for an id without an IPoIB interface. Otherwise returns
  // the error of JoinGroup.
  Result<uint32_t> JoinMulticast(Time now, CmaId& id, const GroupRequest& request);
  Result<uint32_t> LeaveMulticast(uint32_t channel, uint32_t handle);

  void DeviceRemoved(Time now, uint32_t device_index);
  void AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index);

  void Expire(Time now);
  std::optional<Time> NextDeadline() const { return queries_.Next(); }

  bool Listens(const CmDevice& device, uint64_t service_id) override;
  RequestVerdict Request(Time now, Connection& connection, const CmDevice& device,
                         const wire::CmMessage& message) override;
  EventAnswer Event(Time now, const Connection& connection, IbCmEventType type,
                    const wire::CmMessage* message) override;

 private:
  CmaId* Find(uint32_t handle);
  // Returns the ids with a device for which `match` returns true. Their order is the order in which
  // they got their devices, as in cma_device's list.
  template <class Match>
  std::vector<CmaId*> Attached(const Match& match);
  void Erase(Time now, CmaId& id);
  void ReleaseResources(Time now, CmaId& id);
  void ReleasePort(CmaId& id);
  Status BindWithDestination(CmaId& id, const SocketAddress& source,
                             const SocketAddress& destination);
  void AttachTo(CmaId& id, const CmDevice& device);
  Status AttachDevice(CmaId& id, const NetAddress& local);
  // Attaches the id to the device with LIDs that has the GID. Returns ENODEV when there is no such
  // device.
  Status AttachByGid(CmaId& id, const NetAddress& gid, uint16_t pkey);
  SocketAddress WithLoopback(SocketAddress address);
  Status BindPort(CmaId& id);
  Status ResolveLoopback(CmaId& id);
  Status ResolveGid(CmaId& id);
  Status ResolveRoutedAddress(Time now, CmaId& id, uint32_t timeout_ms);
  // Returns EADDRNOTAVAIL when the Q_Key belongs to a broadcast group that the id's link does not
  // have.
  Status SetDefaultQkey(CmaId& id);
  PathRecord MakePath(const CmaId& id) const;
  // Asks the subnet administrator for the id's path (rdma_ids_subnet.cc).
  void QueryPath(Time now, CmaId& id, uint32_t timeout_ms);
  // Returns 0 when the administrator has the path, a negative status when it has no path. Returns
  // nothing when no answer arrives.
  std::optional<int> AdministratorStatus(const CmaId& id, const PathRecord& path) const;
  // Queues an event. Returns false when the id cannot get events yet or its channel is full.
  bool Push(Time now, const CmaId& id, EventType type, int status);
  bool Push(Time now, const CmaId& id, PendingEvent event);
  PendingEvent MakeEvent(const CmaId& id, EventType type, int status) const;
  // A request without a header belongs to an AF_IB id.
  CmaId* FindListener(const CmDevice& device, uint64_t service_id,
                      const wire::RdmaCmHeader* header);
  bool IsReachable(const CmDevice& device, const wire::RdmaCmHeader& header) const;
  Status TakeAddresses(CmaId& id, const CmaId& listener, const Connection& connection,
                       const wire::RdmaCmHeader* header, const wire::CmReq* req);
  PathRecord PathOfRequest(const CmaId& id, const wire::CmReq& req) const;
  void IbEvent(Time now, CmaId& id, const Connection& connection, IbCmEventType type,
               const wire::CmMessage* message);
  void SidrReplied(Time now, CmaId& id, const Connection& connection,
                   const wire::CmMessage& message);
  Status SendReq(Time now, CmaId& id, const rdma_ucm_conn_param& parameters);
  Status SendSidrReq(Time now, CmaId& id, const rdma_ucm_conn_param& parameters);
  Status AcceptRc(Time now, CmaId& id, Connection& connection,
                  const rdma_ucm_conn_param& parameters);
  Status AcceptUd(Time now, CmaId& id, Connection& connection,
                  const rdma_ucm_conn_param* parameters);
  PendingEvent MakeJoinEvent(const CmaId& id, const Membership& membership) const;
  Result<Membership> RoceMembership(const CmaId& id, const GroupRequest& request) const;
  Result<Membership> IbMembership(const CmaId& id, const GroupRequest& request) const;
  NetAddress MgidFor(const CmaId& id, const SocketAddress& group, const NetAddress& local) const;
  // The next functions handle ids whose manager is iw_cm (rdma_ids_iwarp.cc).
  bool StaysInHost(const CmaId& id) {
    return id.destination().IsAny() || addresses_.DeviceOf(id.destination().address) != nullptr;
  }
  Status ConnectIwarp(Time now, CmaId& id, const rdma_ucm_conn_param& parameters,
                      uint32_t outcome_channel);
  bool TellOutcome(Time now, CmaId& id, int status);
  EventAnswer IwarpRejected(Time now, CmaId& id, const wire::CmMessage& message);
  Status AcceptIwarp(Time now, CmaId& id, Connection& connection,
                     const rdma_ucm_conn_param* parameters, uint64_t uid);
  Status RejectIwarp(Time now, CmaId& id, Connection& connection,
                     std::span<const uint8_t> private_data);
  Status DisconnectIwarp(Time now, CmaId& id);
  EventAnswer IwarpEvent(Time now, CmaId& id, const Connection& connection, IbCmEventType type,
                         const wire::CmMessage* message);
  EventAnswer IwarpReply(Time now, CmaId& id, const Connection& connection,
                         const wire::CmMessage& message);
  Status StartIwarp(Time now, CmaId& id, const Connection& connection, uint32_t remote_qpn,
                    uint32_t sq_psn);
  void EndIwarp(Time now, CmaId& id);
  void CloseIwarp(Time now, CmaId& id);
  void ReleaseIwarpQp(Time now, CmaId& id);
  void EndRemovedIwarpPeer(Time now, const CmaId& id);
  static ib_uverbs_qp_attr IwarpQpAttr(const CmaId& id, bool is_connecting, ibv_qp_state state);
  PendingEvent IwarpEstablished(const CmaId& id) const;
  void EndMembership(const CmaId& id, Membership& membership);
  void EndAllMemberships(CmaId& id);
  ib_uverbs_ah_attr MakeAh(const CmaId& id, const NetAddress& local, const NetAddress& remote,
                           uint32_t flow_label, uint8_t hop_limit, uint8_t traffic_class) const;
  // Returns the address vector by LID for a path within the subnet, else the one with a GRH
  // (ib_init_ah_attr_from_path).
  static ib_uverbs_ah_attr AhOfPath(const CmaId& id, const ib_uverbs_ah_attr& global);
  // Adds the LIDs to a path within the subnet, on a device that has LIDs.
  void AddLids(const CmaId& id, PathRecord& path) const;

  CmAddresses& addresses_;
  CmGroups& groups_;
  CmQueuePairs& queue_pairs_;
  Random& random_;
  trace::Sink& trace_;
  Channels& channels_;
  IbCm ib_cm_;
  PortSpaces ports_;
  std::map<uint32_t, CmaId> ids_;
  std::set<std::pair<uint32_t, uint32_t>> by_channel_;  // (channel, id)
  std::map<GroupId, size_t> per_group_;
  std::map<uint32_t, uint32_t> multicast_owner_;  // membership -> id
  std::map<uint32_t, uint32_t> by_qpn_;           // QPs of iw_cm ids -> id
  // For each id, the time at which its wait for a neighbour or the subnet administrator ends.
  TimerQueue<uint32_t> queries_;
  const IdSpace handles_;
  uint32_t made_ = 0;
  uint32_t last_membership_ = 0;
  uint64_t last_attach_ = 0;
};

}  // namespace rdmaemu::cm
