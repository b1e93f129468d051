// The RDMA CM ids of a host and what may be done with each (rdma_* of the kernel's cma.c, with the
// events and counts of ucma.c): bind, resolve, listen, connect, multicast, migration, removal.
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

  // ENOMEM: too many.
  Result<CmaId*> Create(GroupId group, ProcessId process, uint32_t channel, uint64_t uid,
                        uint16_t port_space, ibv_qp_type qp_type);
  // ENOENT: no such id; EINVAL: on another channel; ENXIO: its device was removed.
  Result<CmaId*> Get(uint32_t channel, uint32_t handle);
  // As Get, for ids that have a device: EINVAL else.
  Result<CmaId*> GetWithDevice(uint32_t channel, uint32_t handle);
  // Answers how many of its events were reported.
  Result<uint32_t> Destroy(Time now, uint32_t channel, uint32_t handle);
  void DestroyOfChannel(Time now, uint32_t channel);
  // Moves the id with its pending events; a listener takes its unfetched requests along.
  Result<uint32_t> Migrate(uint32_t channel, uint32_t handle, uint32_t new_channel);
  // What the taking of an event changes: who reported it, the listener's backlog.
  void EventReported(const PendingEvent& event);

  Status Bind(CmaId& id, const SocketAddress& address);
  // `timeout_ms` is how long a neighbour that does not answer is waited for: ADDR_ERROR with
  // -ETIMEDOUT then (process_one_req of the kernel's addr.c), and the id may try again.
  Status ResolveAddress(Time now, CmaId& id, const SocketAddress& source,
                        const SocketAddress& destination, uint32_t timeout_ms);
  Status ResolveRoute(Time now, CmaId& id, uint32_t timeout_ms);
  Status SetPath(Time now, CmaId& id, const PathRecord& path);
  Status Listen(CmaId& id, uint32_t backlog);
  Status SetReuseAddress(CmaId& id, bool reuse);
  Status SetAfOnly(CmaId& id, bool af_only);
  Status SetAckTimeout(CmaId& id, uint8_t timeout);

  // EINPROGRESS: the manager is iw_cm, the peer on another host; `outcome_channel` gets an event
  // whose status says whether the connect has succeeded. Without a channel the id's own does.
  Status Connect(Time now, CmaId& id, const rdma_ucm_conn_param& parameters,
                 const rdma_ucm_ece& ece, uint32_t outcome_channel = 0);
  // Without parameters: sends the RTU of an id that got CONNECT_RESPONSE (rdma_establish).
  // With them: answers the request, after which the id's events carry `uid`.
  Status Accept(Time now, CmaId& id, const rdma_ucm_conn_param* parameters, const rdma_ucm_ece& ece,
                uint64_t uid);
  Status Reject(Time now, CmaId& id, RejectReason reason, std::span<const uint8_t> private_data);
  Status Disconnect(Time now, CmaId& id);
  // rdma_notify: EINVAL for an event that the id's manager does not know.
  Status Notify(Time now, CmaId& id, uint32_t event);
  void QpEnded(Time now, uint32_t qpn);
  void Refused(Time now, const NetAddress& local, const NetAddress& remote) {
    ib_cm_.Refused(now, local, remote);
  }
  // An event of the program's own. ENOMEM: its channel is full.
  Status WriteEvent(Time now, CmaId& id, const CmWriteEvent& event);
  // The attributes with which the id's QP enters `state` (rdma_init_qp_attr).
  Result<ib_uverbs_qp_attr> InitQpAttr(CmaId& id, ibv_qp_state state);

  struct GroupRequest {
    SocketAddress group;
    uint64_t uid;
    bool send_only;
  };
  // Answers the membership's handle. EINVAL for an id that is not UD or neither just bound nor just
  // resolved; ENOTSUPP as the kernel has it (524) for an IPv6 group; what JoinGroup answers.
  Result<uint32_t> JoinMulticast(Time now, CmaId& id, const GroupRequest& request);
  Result<uint32_t> LeaveMulticast(uint32_t channel, uint32_t handle);

  void DeviceRemoved(Time now, uint32_t device_index);
  void AddressMoved(Time now, const NetAddress& address, uint32_t to_device_index);

  void Expire(Time now);
  std::optional<Time> NextDeadline() const { return neighbours_.Next(); }

  bool Listens(const CmDevice& device, uint64_t service_id) override;
  RequestVerdict Request(Time now, Connection& connection, const CmDevice& device,
                         const wire::CmMessage& message) override;
  EventAnswer Event(Time now, const Connection& connection, IbCmEventType type,
                    const wire::CmMessage* message) override;

 private:
  CmaId* Find(uint32_t handle);
  // Ids that have a device and for which `match` holds, in the order in which they got it, which is
  // that of cma_device's list.
  template <class Match>
  std::vector<CmaId*> Attached(const Match& match);
  void Erase(Time now, CmaId& id);
  void ReleaseResources(Time now, CmaId& id);
  void ReleasePort(CmaId& id);
  Status BindWithDestination(CmaId& id, const SocketAddress& source,
                             const SocketAddress& destination);
  void AttachTo(CmaId& id, const CmDevice& device);
  Status AttachDevice(CmaId& id, const NetAddress& local);
  SocketAddress WithLoopback(SocketAddress address);
  Status BindPort(CmaId& id);
  Status ResolveLoopback(CmaId& id);
  Status ResolveGid(CmaId& id);
  Status ResolveRoutedAddress(Time now, CmaId& id, uint32_t timeout_ms);
  void SetDefaultQkey(CmaId& id);
  PathRecord MakePath(const CmaId& id) const;
  // Queues an event; false when the id has no use for it or its channel is full.
  bool Push(Time now, const CmaId& id, EventType type, int status);
  bool Push(Time now, const CmaId& id, PendingEvent event);
  PendingEvent MakeEvent(const CmaId& id, EventType type, int status) const;
  CmaId* FindListener(const CmDevice& device, uint64_t service_id,
                      const wire::RdmaCmHeader& header);
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
  // Ids whose manager is iw_cm (rdma_ids_iwarp.cc).
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
  TimerQueue<uint32_t> neighbours_;               // by id: until when it waits for one
  const IdSpace handles_;
  uint32_t made_ = 0;
  uint32_t last_membership_ = 0;
  uint64_t last_attach_ = 0;
};

}  // namespace rdmaemu::cm
