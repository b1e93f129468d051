// Connections of ids whose manager is the kernel's iw_cm (cma_connect_iw, cma_accept_iw,
// cma_iw_handler, iw_conn_req_handler; siw_cm.c). The device moves the QP. Each end gets
// ESTABLISHED at once. QP and connection end together. The hosts exchange IB CM messages.
#include <algorithm>
#include <utility>

#include "emulator/cm/counted_data.h"
#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

Status RdmaIds::ConnectIwarp(Time now, CmaId& id, const rdma_ucm_conn_param& parameters,
                             uint32_t outcome_channel) {
  if (id.IsUd()) return Fail(EOPNOTSUPP);
  const Status connectable = queue_pairs_.CheckConnectable(id.group, id.source().address, id.qpn);
  if (!connectable || by_qpn_.contains(id.qpn)) return Fail(EINVAL);
  // On this host, refuses a port without a listener at once, as TCP does.
  const CmDevice* peer = addresses_.DeviceOf(AddressOfGid(id.path->dgid));
  if (peer != nullptr && !Listens(*peer, id.ServiceId(id.destination().port))) {
    return Fail(ECONNREFUSED);
  }
  if (id.connection != 0) ib_cm_.Destroy(now, std::exchange(id.connection, 0));  // it was refused
  const Status sent = SendReq(now, id, parameters);
  if (!sent) return sent;
  id.initiator_depth = parameters.initiator_depth;
  id.responder_resources = parameters.responder_resources;
  by_qpn_[id.qpn] = id.handle;
  if (peer != nullptr || outcome_channel == 0) return {};
  id.outcome_channel = outcome_channel;
  return Fail(EINPROGRESS);
}

// Reports the outcome once to the program that waits in rdma_connect. Returns false when no program
// waits.
bool RdmaIds::TellOutcome(Time now, CmaId& id, int status) {
  const uint32_t channel = std::exchange(id.outcome_channel, 0);
  if (channel == 0) return false;
  PendingEvent event = MakeEvent(id, EventType::kEstablished, status);
  event.id = 0;  // no program acknowledges the event
  (void)channels_.Push(channel, std::move(event));
  // When TCP has not connected, the id and its QP are as before the call.
  if (status != 0) {
    ReleaseIwarpQp(now, id);
    id.state = IdState::kRouteResolved;
  }
  return true;
}

// Moves the QP to RTS, as siw_accept and siw_proc_mpareply do.
Status RdmaIds::StartIwarp(Time now, CmaId& id, const Connection& connection, uint32_t remote_qpn,
                           uint32_t sq_psn) {
  const QpConnection to{.local = connection.route.source,
                        .remote = connection.route.destination,
                        .traffic_class = connection.route.traffic_class,
                        .remote_qpn = remote_qpn,
                        .rq_psn = id.starting_psn,
                        .sq_psn = sq_psn,
                        .initiator_depth = id.initiator_depth,
                        .responder_resources = id.responder_resources};
  const Status connected = queue_pairs_.ConnectQp(now, id.group, id.qpn, to);
  if (!connected) return connected;
  by_qpn_[id.qpn] = id.handle;
  id.established = true;
  return {};
}

Status RdmaIds::AcceptIwarp(Time now, CmaId& id, Connection& connection,
                            const rdma_ucm_conn_param* parameters, uint64_t uid) {
  // iw_cm_accept looks up the QP before the driver checks the connection.
  if (parameters != nullptr && !id.established) {
    const Status found = queue_pairs_.CheckConnectable(id.group, connection.route.source, id.qpn);
    if (!found) return found;
  }
  if (id.reset_by_peer) return Fail(ECONNRESET);
  if (id.established || parameters == nullptr || by_qpn_.contains(id.qpn) ||
      connection.state != IbCmState::kMraReqSent) {
    return Fail(EINVAL);
  }
  const CmProfile& profile = id.device->local.profile;
  if (parameters->private_data_len > profile.max_reply_private_data) return Fail(EINVAL);
  wire::CmRep rep;
  CountedData data = CarryCounted(DataOf(*parameters), rep.private_data, 0);
  // siw's relaxed negotiation: at most as many READs as the peer accepts, and room for all READs
  // that the peer may send.
  id.initiator_depth = std::min(parameters->initiator_depth, id.initiator_depth);
  id.responder_resources = std::max(parameters->responder_resources, id.responder_resources);
  rep.local_qpn = id.qpn;
  rep.starting_psn = id.starting_psn;
  rep.initiator_depth = id.initiator_depth;
  rep.responder_resources = id.responder_resources;
  rep.rnr_retry_count = 7;
  const Status started = StartIwarp(now, id, connection, connection.remote_qpn, connection.sq_psn);
  if (!started) return started;
  id.uid = uid;
  const Status sent = ib_cm_.SendRep(now, connection, std::move(rep), data.attribute_modifier,
                                     std::move(data.rest));
  if (!sent) return sent;
  // The accept does not wait for the peer, because TCP delivers MPA's reply.
  Push(now, id, IwarpEstablished(id));
  return {};
}

// Each end gets the two depths in its own order (measured).
PendingEvent RdmaIds::IwarpEstablished(const CmaId& id) const {
  PendingEvent event = MakeEvent(id, EventType::kEstablished, 0);
  event.response.param.conn.responder_resources = id.initiator_depth;
  event.response.param.conn.initiator_depth = id.responder_resources;
  return event;
}

Status RdmaIds::RejectIwarp(Time now, CmaId& id, Connection& connection,
                            std::span<const uint8_t> private_data) {
  if (id.established) return Fail(EINVAL);
  wire::CmRej fields;
  CountedData data = CarryCounted(private_data, fields.private_data, 0);
  return ib_cm_.SendRej(now, connection, RejectReason::kConsumer, {}, fields.private_data,
                        data.attribute_modifier, std::move(data.rest));
}

Status RdmaIds::DisconnectIwarp(Time now, CmaId& id) {
  const bool was_connected = id.state == IdState::kConnect || id.state == IdState::kDisconnect;
  if (!was_connected || ib_cm_.Find(id.connection) == nullptr) return Fail(EINVAL);
  if (!id.established) return {};  // ended or refused (measured)
  EndIwarp(now, id);
  CloseIwarp(now, id);
  return {};
}

// Ends this side: flushes the QP and reports DISCONNECTED to the program.
void RdmaIds::EndIwarp(Time now, CmaId& id) {
  ReleaseIwarpQp(now, id);
  id.state = IdState::kDisconnect;
  Push(now, id, EventType::kDisconnected, 0);
}

// Notifies the peer. Before the RTU has arrived, a REJ is possible and a DREQ is not.
void RdmaIds::CloseIwarp(Time now, CmaId& id) {
  Connection* connection = ib_cm_.Find(id.connection);
  if (connection == nullptr || ib_cm_.SendDreq(now, *connection)) return;
  (void)ib_cm_.SendRej(now, *connection, RejectReason::kConsumer, {}, {});
}

void RdmaIds::ReleaseIwarpQp(Time now, CmaId& id) {
  const auto it = by_qpn_.find(id.qpn);
  if (it == by_qpn_.end() || it->second != id.handle) return;
  by_qpn_.erase(it);  // first, so that QpEnded finds no id
  if (!std::exchange(id.established, false)) return;
  queue_pairs_.DisconnectQp(now, id.group, id.source().address, id.qpn);
}

// An id whose peer is an id of the same device gets DISCONNECTED for that peer before its own
// DEVICE_REMOVAL (measured).
void RdmaIds::EndRemovedIwarpPeer(Time now, const CmaId& id) {
  const Connection* connection = ib_cm_.Find(id.connection);
  if (!id.established || connection == nullptr) return;
  const auto it = by_qpn_.find(connection->remote_qpn);
  if (it == by_qpn_.end() || it->second == id.handle) return;
  CmaId& peer = *Find(it->second);
  const Connection* back = ib_cm_.Find(peer.connection);
  if (peer.state != IdState::kRemoved || !peer.established || back == nullptr ||
      back->remote_qpn != id.qpn || peer.source().address != connection->route.destination) {
    return;
  }
  ReleaseIwarpQp(now, peer);
  Push(now, peer, EventType::kDisconnected, 0);
}

void RdmaIds::QpEnded(Time now, uint32_t qpn) {
  const auto it = by_qpn_.find(qpn);
  if (it == by_qpn_.end()) return;
  CmaId& id = *Find(it->second);
  by_qpn_.erase(it);
  if (std::exchange(id.established, false)) {
    id.state = IdState::kDisconnect;
    Push(now, id, EventType::kDisconnected, 0);
    return CloseIwarp(now, id);
  }
  // The connection was still being established (siw_qp_cm_drop).
  TellOutcome(now, id, 0);
  if (Connection* connection = ib_cm_.Find(id.connection)) ib_cm_.Withdraw(now, *connection);
  Push(now, id, EventType::kRejected, -ECONNRESET);
}

EventAnswer RdmaIds::IwarpReply(Time now, CmaId& id, const Connection& connection,
                                const wire::CmMessage& message) {
  const auto& rep = std::get<wire::CmRep>(message.body);
  // siw_proc_mpareply uses the peer's values, even above the requested ones (measured).
  id.initiator_depth = rep.responder_resources;
  id.responder_resources = rep.initiator_depth;
  if (!IsReceivable(message) || !StartIwarp(now, id, connection, rep.local_qpn, rep.starting_psn)) {
    ReleaseIwarpQp(now, id);
    Push(now, id, EventType::kConnectError, -EINVAL);
    return EventAnswer::kNo;
  }
  PendingEvent event = IwarpEstablished(id);
  TakeCounted(message, rep.private_data, 0, event.response.param.conn);
  Push(now, id, std::move(event));
  return EventAnswer::kYes;
}

EventAnswer RdmaIds::IwarpRejected(Time now, CmaId& id, const wire::CmMessage& message) {
  if (id.established) {
    EndIwarp(now, id);
    return EventAnswer::kLater;
  }
  const auto& rej = std::get<wire::CmRej>(message.body);
  const bool is_refused = rej.reason == static_cast<uint16_t>(RejectReason::kInvalidServiceId);
  if (TellOutcome(now, id, is_refused ? -ECONNREFUSED : 0) && is_refused)
    return EventAnswer::kLater;
  id.reset_by_peer = true;
  ReleaseIwarpQp(now, id);
  if (!IsReceivable(message)) {
    Push(now, id, EventType::kConnectError, -EINVAL);
    return EventAnswer::kLater;
  }
  PendingEvent event =
      MakeEvent(id, EventType::kRejected, is_refused ? -ECONNREFUSED : -ECONNRESET);
  // The CM's own REJs have no counted data.
  if (message.attribute_modifier != 0) {
    TakeCounted(message, rej.private_data, 0, event.response.param.conn);
  }
  Push(now, id, std::move(event));  // dropped for a request that is not accepted yet
  return EventAnswer::kLater;
}

EventAnswer RdmaIds::IwarpEvent(Time now, CmaId& id, const Connection& connection,
                                IbCmEventType type, const wire::CmMessage* message) {
  if (id.state != IdState::kConnect) {
    return type == IbCmEventType::kDreqReceived ? EventAnswer::kYes : EventAnswer::kLater;
  }
  switch (type) {
    case IbCmEventType::kMraReceived:
      TellOutcome(now, id, 0);
      return EventAnswer::kLater;
    case IbCmEventType::kReqError:
      if (TellOutcome(now, id, -connection.send_error)) return EventAnswer::kLater;
      ReleaseIwarpQp(now, id);
      Push(now, id, EventType::kUnreachable, -connection.send_error);
      return EventAnswer::kLater;
    case IbCmEventType::kRepReceived:
      TellOutcome(now, id, 0);
      return IwarpReply(now, id, connection, *message);
    case IbCmEventType::kDreqReceived:
      EndIwarp(now, id);
      return EventAnswer::kYes;
    case IbCmEventType::kRepError:
      EndIwarp(now, id);
      return EventAnswer::kLater;
    case IbCmEventType::kRejReceived:
      return IwarpRejected(now, id, *message);
    default:
      return EventAnswer::kLater;  // RTU: the connection exists already
  }
}

// iwcm_init_qp_init_attr and iwcm_init_qp_rts_attr (called by rdma_init_qp_attr), as measured.
ib_uverbs_qp_attr RdmaIds::IwarpQpAttr(const CmaId& id, bool is_connecting, ibv_qp_state state) {
  ib_uverbs_qp_attr out = {};
  out.qp_state = state;
  out.port_num = id.device->port;
  out.qp_attr_mask = IBV_QP_PORT;
  if (is_connecting && state == IBV_QPS_RTS) return out;
  out.qp_attr_mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
  if (is_connecting) out.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return out;
}

}  // namespace rdmaemu::cm
