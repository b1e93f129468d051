// The IB CM's handling of each received message (the handlers of the kernel's cm.c).
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "emulator/cm/ib_cm.h"

namespace rdmaemu::cm {

using wire::CmMessageType;

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // clang before 17 does not deduce this itself

}  // namespace

void IbCm::Receive(Time now, const CmRoute& route, const CmDevice& device,
                   const wire::CmMessage& message) {
  statistics_.messages_received++;
  if (trace_.wants_records()) Trace(now, "cm.receive", OwnerOf(message), message);
  std::visit(Overloaded{
                 [&](const wire::CmReq& m) { OnReq(now, route, device, message, m); },
                 [&](const wire::CmMra& m) { OnMra(now, m); },
                 [&](const wire::CmRej& m) { OnRej(now, message, m); },
                 [&](const wire::CmRep& m) { OnRep(now, route, message, m); },
                 [&](const wire::CmRtu& m) { OnRtu(now, message, m); },
                 [&](const wire::CmDreq& m) { OnDreq(now, route, message, m); },
                 [&](const wire::CmDrep& m) { OnDrep(now, message, m); },
                 [&](const wire::CmSidrReq& m) { OnSidrReq(now, route, device, message, m); },
                 [&](const wire::CmSidrRep& m) { OnSidrRep(now, message, m); },
             },
             message.body);
}

void IbCm::IssueRej(Time now, const CmRoute& received, const wire::CmMessage& message,
                    RejectReason reason) {
  wire::CmRej rej;
  if (const auto* rep = std::get_if<wire::CmRep>(&message.body)) {
    // The peer finds its connection by both ids.
    rej.message = CmMessageType::kRep;
    rej.remote_comm_id = rep->local_comm_id;
    rej.local_comm_id = rep->remote_comm_id;
  } else {
    rej.message = CmMessageType::kReq;
    rej.remote_comm_id = std::get<wire::CmReq>(message.body).local_comm_id;
  }
  rej.reason = static_cast<uint16_t>(reason);
  Send(now, {received.destination, received.source, received.traffic_class, received.pkey}, 0,
       {message.transaction_id, 0, std::move(rej)});
}

void IbCm::EndStale(Time now, uint64_t key) {
  if (Connection* stale = Find(key)) (void)SendDreq(now, *stale);
}

void IbCm::TakeRequest(const wire::CmReq& req, const CmDevice& device, Connection& connection) {
  connection.local = {device.node_guid, device.ack_delay, device.profile->cm};
  connection.remote_id = req.local_comm_id;
  connection.service_id = req.service_id;
  connection.transport = req.transport;
  connection.remote_qpn = req.local_qpn;
  connection.sq_psn = req.starting_psn;
  connection.initiator_depth = req.responder_resources;
  connection.responder_resources = req.initiator_depth;
  connection.path_mtu = req.path_mtu;
  connection.retry_count = req.retry_count;
  connection.rnr_retry_count = req.rnr_retry_count;
  connection.flow_label = req.primary.flow_label;
  connection.response_timeout = CmTimeout(req.local_cm_response_timeout);
  connection.max_retries = req.max_cm_retries;
  // The peer's value includes the peer's ack delay.
  connection.ack_timeout = std::max(req.primary.local_ack_timeout, uint8_t{1});
}

bool IbCm::AddressesAreValid(Time now, Connection& connection, const CmDevice& device,
                             const wire::CmReq& req) {
  const NetAddress ours = AddressOfGid(req.primary.remote_gid);
  const CmDevice* owner = addresses_.DeviceOf(ours);
  const std::optional<uint16_t> pkey_index = addresses_.FindPkey(ours, req.pkey);
  if (req.primary.local_gid.IsZero() || owner == nullptr || owner->index != device.index ||
      !pkey_index) {
    (void)SendRej(now, connection, RejectReason::kInvalidGid, connection.route.source.bytes, {});
    return false;
  }
  connection.pkey_index = *pkey_index;
  connection.route = {ours, AddressOfGid(req.primary.local_gid), req.primary.traffic_class,
                      req.pkey};
  if (req.alternate.local_lid != 0) {
    (void)SendRej(now, connection, RejectReason::kInvalidAlternateGid, ours.bytes, {});
    return false;
  }
  return true;
}

// cm_init_av_for_response: without a route to the sender there is no address handle for an answer.
bool IbCm::CanAnswer(const CmRoute& received) {
  if (addresses_.FindRoute(received.source).kind != Reach::Kind::kNone) return true;
  statistics_.dropped_no_route++;
  return false;
}

void IbCm::OnReq(Time now, const CmRoute& route, const CmDevice& device,
                 const wire::CmMessage& message, const wire::CmReq& req) {
  if (!CanAnswer(route)) return;
  if (const auto known = by_remote_id_.find({req.local_ca_guid, req.local_comm_id});
      known != by_remote_id_.end()) {
    OnDuplicateReq(now, known->second);
    return;
  }
  if (const auto live = by_remote_qpn_.find({req.local_ca_guid, req.local_qpn});
      live != by_remote_qpn_.end()) {
    IssueRej(now, route, message, RejectReason::kStaleConnection);
    EndStale(now, live->second);
    return;
  }
  if (!user_.Listens(device, req.service_id)) {
    IssueRej(now, route, message, RejectReason::kInvalidServiceId);
    return;
  }
  Connection* made = Create();
  if (made == nullptr) {  // as when the kernel is out of memory: a retransmission may succeed
    statistics_.dropped_no_room++;
    return;
  }
  Connection& connection = *made;
  connection.transaction_id = message.transaction_id;
  connection.route = {route.destination, route.source, req.primary.traffic_class, route.pkey};
  TakeRequest(req, device, connection);
  (void)InsertRemoteId(connection, req.local_ca_guid, req.local_comm_id);
  (void)InsertRemoteQpn(connection, req.local_ca_guid, req.local_qpn);
  connection.state = IbCmState::kReqReceived;
  if (!AddressesAreValid(now, connection, device, req)) {
    Forget(connection);
    return;
  }
  switch (user_.Request(now, connection, device, message)) {
    case RequestVerdict::kTaken:
      connection.state = IbCmState::kMraReqSent;
      // TCP would report at once that a program listens. A peer on another host waits for this MRA
      // instead.
      if (device.profile->cm.manager == ConnectionManager::kIwarp &&
          addresses_.DeviceOf(connection.route.destination) == nullptr) {
        SendMra(now, connection, CmMessageType::kReq);
      }
      return;
    case RequestVerdict::kRefused:
      (void)SendRej(now, connection, RejectReason::kConsumer, {}, {});
      break;
    case RequestVerdict::kDropped:
      statistics_.dropped_backlog_full++;
      break;
  }
  Forget(connection);
}

void IbCm::OnDuplicateReq(Time now, uint64_t key) {
  statistics_.duplicates++;
  Connection* connection = Find(key);
  if (connection == nullptr || connection->state != IbCmState::kMraReqSent) return;
  SendMra(now, *connection, CmMessageType::kReq);
}

void IbCm::SendMra(Time now, const Connection& connection, CmMessageType message) {
  SendOn(now, connection,
         wire::CmMra{connection.local_id,
                     connection.remote_id,
                     message,
                     connection.local.profile.mra_service_timeout,
                     {}});
}

void IbCm::OnMra(Time now, const wire::CmMra& mra) {
  // Before the peer has answered the REQ, the connection has no remote id.
  Connection* connection = mra.message == CmMessageType::kReq
                               ? Acquire(mra.remote_comm_id, 0)
                               : Acquire(mra.remote_comm_id, mra.local_comm_id);
  if (connection == nullptr) {
    statistics_.dropped_no_match++;
    return;
  }
  IbCmState next;
  if (connection->state == IbCmState::kReqSent && mra.message == CmMessageType::kReq) {
    next = IbCmState::kMraReqReceived;
  } else if (connection->state == IbCmState::kRepSent && mra.message == CmMessageType::kRep) {
    next = IbCmState::kMraRepReceived;
  } else {
    statistics_.duplicates++;
    return;
  }
  connection->state = next;
  connection->repeat_after = CmTimeout(mra.service_timeout) + CmTimeout(connection->ack_timeout);
  if (connection->reply_after_mra > Duration{}) {
    connection->give_up_at = now + connection->reply_after_mra;
  }
  ArmRepeat(now, *connection);
  TellOwner(now, *connection, IbCmEventType::kMraReceived, nullptr);
}

Connection* IbCm::FindRejected(const wire::CmRej& rej) {
  if (rej.reason == static_cast<uint16_t>(RejectReason::kTimeout)) {
    // A peer that timed out before our answer does not have our id. The peer's GUID identifies the
    // connection.
    uint64_t guid_be;
    std::memcpy(&guid_be, rej.additional_info.data(), sizeof guid_be);
    const auto it = by_remote_id_.find({be64toh(guid_be), rej.local_comm_id});
    return it == by_remote_id_.end() ? nullptr : Find(it->second);
  }
  return Acquire(rej.remote_comm_id, rej.message == CmMessageType::kReq ? 0 : rej.local_comm_id);
}

void IbCm::OnRej(Time now, const wire::CmMessage& message, const wire::CmRej& rej) {
  Connection* connection = FindRejected(rej);
  if (connection == nullptr) {
    statistics_.dropped_no_match++;
    return;
  }
  switch (connection->state) {
    case IbCmState::kReqSent:
    case IbCmState::kMraReqReceived:
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
    case IbCmState::kReqReceived:
    case IbCmState::kMraReqSent:
      if (rej.reason == static_cast<uint16_t>(RejectReason::kStaleConnection)) {
        EnterTimewait(now, *connection);
      } else {
        ResetToIdle(*connection);
      }
      break;
    case IbCmState::kDreqSent:
    case IbCmState::kRepReceived:
    case IbCmState::kMraRepSent:
    case IbCmState::kEstablished:
      EnterTimewait(now, *connection);
      break;
    default:
      statistics_.duplicates++;
      return;
  }
  TellOwner(now, *connection, IbCmEventType::kRejReceived, &message);
}

void IbCm::OnRep(Time now, const CmRoute& route, const wire::CmMessage& message,
                 const wire::CmRep& rep) {
  Connection* found = Acquire(rep.remote_comm_id, 0);
  if (found == nullptr) {
    OnDuplicateRep(now, rep);
    return;
  }
  Connection& connection = *found;
  if (connection.state != IbCmState::kReqSent && connection.state != IbCmState::kMraReqReceived) {
    statistics_.dropped_no_match++;
    return;
  }
  if (!InsertRemoteId(connection, rep.local_ca_guid, rep.local_comm_id)) {
    statistics_.dropped_id_in_use++;
    return;
  }
  if (const auto live = by_remote_qpn_.find({rep.local_ca_guid, rep.local_qpn});
      live != by_remote_qpn_.end()) {
    const uint64_t stale = live->second;
    RemoveRemote(connection);
    IssueRej(now, route, message, RejectReason::kStaleConnection);
    EndStale(now, stale);
    return;
  }
  (void)InsertRemoteQpn(connection, rep.local_ca_guid, rep.local_qpn);
  StopRepeating(connection);
  connection.remote_id = rep.local_comm_id;
  connection.remote_qpn = rep.local_qpn;
  connection.initiator_depth = rep.responder_resources;
  connection.responder_resources = rep.initiator_depth;
  connection.sq_psn = rep.starting_psn;
  connection.rnr_retry_count = rep.rnr_retry_count;
  connection.ack_timeout = AckTimeoutExponent(
      rep.target_ack_delay, static_cast<uint8_t>(std::max(connection.ack_timeout, uint8_t{1}) - 1));
  // The application decides about the REP. Until then an MRA answers each repeat.
  GiveToApplication(now, connection, IbCmState::kMraRepSent);
  TellOwner(now, connection, IbCmEventType::kRepReceived, &message);
}

void IbCm::OnDuplicateRep(Time now, const wire::CmRep& rep) {
  Connection* connection = Acquire(rep.remote_comm_id, rep.local_comm_id);
  if (connection == nullptr) {
    statistics_.dropped_no_match++;
    return;
  }
  statistics_.duplicates++;
  if (connection->state == IbCmState::kEstablished) {
    SendOn(now, *connection, wire::CmRtu{connection->local_id, connection->remote_id, {}});
  } else if (connection->state == IbCmState::kMraRepSent) {
    SendMra(now, *connection, CmMessageType::kRep);
  }
}

void IbCm::OnRtu(Time now, const wire::CmMessage& message, const wire::CmRtu& rtu) {
  Connection* connection = Acquire(rtu.remote_comm_id, rtu.local_comm_id);
  if (connection == nullptr) {
    statistics_.dropped_no_match++;
    return;
  }
  if (connection->state != IbCmState::kRepSent && connection->state != IbCmState::kMraRepReceived) {
    statistics_.duplicates++;
    return;
  }
  StopRepeating(*connection);
  connection->state = IbCmState::kEstablished;
  TellOwner(now, *connection, IbCmEventType::kRtuReceived, &message);
}

void IbCm::OnDreq(Time now, const CmRoute& route, const wire::CmMessage& message,
                  const wire::CmDreq& dreq) {
  Connection* connection = Acquire(dreq.remote_comm_id, dreq.local_comm_id);
  if (connection == nullptr) {
    // The connection ended long ago. Our earlier DREP was lost, and the peer still waits for a
    // DREP.
    statistics_.duplicates++;
    Send(now, {route.destination, route.source, route.traffic_class, route.pkey}, 0,
         {message.transaction_id, 0, wire::CmDrep{dreq.remote_comm_id, dreq.local_comm_id, {}}});
    return;
  }
  if (connection->local_qpn != dreq.remote_qpn) {
    statistics_.dropped_no_match++;
    return;
  }
  switch (connection->state) {
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
    case IbCmState::kDreqSent:
    case IbCmState::kEstablished:
      StopRepeating(*connection);
      break;
    case IbCmState::kTimewait:
      statistics_.duplicates++;
      SendOn(now, *connection, wire::CmDrep{connection->local_id, connection->remote_id, {}});
      return;
    default:
      statistics_.duplicates++;
      return;
  }
  GiveToApplication(now, *connection, IbCmState::kDreqReceived);
  connection->transaction_id = message.transaction_id;
  TellOwner(now, *connection, IbCmEventType::kDreqReceived, &message);
}

void IbCm::OnDrep(Time now, const wire::CmMessage& message, const wire::CmDrep& drep) {
  Connection* connection = Acquire(drep.remote_comm_id, drep.local_comm_id);
  if (connection == nullptr || (connection->state != IbCmState::kDreqSent &&
                                connection->state != IbCmState::kDreqReceived)) {
    statistics_.dropped_no_match++;
    return;
  }
  EnterTimewait(now, *connection);
  TellOwner(now, *connection, IbCmEventType::kDrepReceived, &message);
}

void IbCm::OnSidrReq(Time now, const CmRoute& route, const CmDevice& device,
                     const wire::CmMessage& message, const wire::CmSidrReq& req) {
  if (!CanAnswer(route)) return;
  const std::pair key{route.source, req.request_id};
  if (by_sidr_.contains(key)) {
    statistics_.duplicates++;
    return;
  }
  const CmRoute back{route.destination, route.source, route.traffic_class, route.pkey};
  if (!user_.Listens(device, req.service_id)) {
    wire::CmSidrRep rep;
    rep.request_id = req.request_id;
    rep.service_id = req.service_id;
    rep.status = static_cast<uint8_t>(SidrStatus::kUnsupported);
    Send(now, back, 0, {message.transaction_id, 0, std::move(rep)});
    return;
  }
  Connection* made = Create();
  if (made == nullptr) {
    statistics_.dropped_no_room++;
    return;
  }
  Connection& connection = *made;
  connection.local = {device.node_guid, device.ack_delay, device.profile->cm};
  connection.transaction_id = message.transaction_id;
  connection.route = back;
  connection.remote_id = req.request_id;
  connection.service_id = req.service_id;
  connection.state = IbCmState::kSidrReqReceived;
  connection.sidr_key = key;
  by_sidr_[key] = connection.key;
  switch (user_.Request(now, connection, device, message)) {
    case RequestVerdict::kTaken:
      return;
    case RequestVerdict::kDropped:  // unlike for a REQ, the kernel answers a SIDR_REQ
      statistics_.dropped_backlog_full++;
      [[fallthrough]];
    case RequestVerdict::kRefused:
      Destroy(now, connection.key);
      return;
  }
}

void IbCm::OnSidrRep(Time now, const wire::CmMessage& message, const wire::CmSidrRep& rep) {
  Connection* connection = Acquire(rep.request_id, 0);
  if (connection == nullptr || connection->state != IbCmState::kSidrReqSent) {
    statistics_.dropped_no_match++;
    return;
  }
  ResetToIdle(*connection);
  TellOwner(now, *connection, IbCmEventType::kSidrRepReceived, &message);
}

}  // namespace rdmaemu::cm
