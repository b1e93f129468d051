// Connecting, accepting, rejecting and disconnecting ids, and the events from the IB CM
// (cma_connect_ib, cma_accept_ib, cma_ib_req_handler, cma_ib_handler of the kernel).
#include <algorithm>
#include <cstring>

#include "emulator/cm/counted_data.h"
#include "emulator/cm/rdma_ids.h"

namespace rdmaemu::cm {

namespace {

constexpr uint8_t kMaxRetryCount = 7;  // 3 bits on the wire
constexpr uint32_t kQpnMask = 0xffffff;

// Writes rdma_cm's header, which precedes the user's private data.
template <size_t N>
void FillHeader(const CmaId& id, const PathRecord& path, wire::PrivateData<N>& out) {
  wire::RdmaCmHeader header;
  header.ip_version = id.source().family == AF_INET ? 4 : 6;
  header.source_port = id.source().port;
  header.source = id.source().address;
  header.destination = id.destination().IsAny() ? path.dgid : id.destination().address;
  wire::EmitRdmaCmHeader(header, out);
}

// Returns the offset of the user's private data in REQ and SIDR_REQ (cma_user_data_offset).
size_t UserDataOffset(const CmaId& id) { return id.IsAfIb() ? 0 : wire::RdmaCmHeader::kBytes; }

// Returns EINVAL when the user's private data do not fit after the header.
template <size_t N>
Status FillPrivateData(const CmaId& id, const PathRecord& path,
                       const rdma_ucm_conn_param& parameters, wire::PrivateData<N>& out) {
  const size_t offset = UserDataOffset(id);
  if (parameters.private_data_len > N - offset) return Fail(EINVAL);
  std::copy_n(parameters.private_data, parameters.private_data_len,
              out.begin() + static_cast<ptrdiff_t>(offset));
  if (offset != 0) {
    FillHeader(id, path, out);
  } else {
    out[0] = 0;  // cma_format_hdr writes its version, 0, over the first byte of the user's data
  }
  return {};
}

std::optional<ibv_qp_type> QpTypeOf(const wire::CmReq& req) {
  switch (req.transport) {
    case wire::CmTransport::kRc:
      return IBV_QPT_RC;
    case wire::CmTransport::kUc:
      return IBV_QPT_UC;
    default:
      return std::nullopt;  // XRC is not supported
  }
}

template <size_t N>
void CopyPrivateData(const wire::PrivateData<N>& from, size_t skip, rdma_ucm_conn_param& to) {
  std::copy(from.begin() + static_cast<ptrdiff_t>(skip), from.end(), to.private_data);
  to.private_data_len = static_cast<uint8_t>(N - skip);
}
template <size_t N>
void CopyPrivateData(const wire::PrivateData<N>& from, size_t skip, rdma_ucm_ud_param& to) {
  std::copy(from.begin() + static_cast<ptrdiff_t>(skip), from.end(), to.private_data);
  to.private_data_len = static_cast<uint8_t>(N - skip);
}

// cma_set_req_event_data.
void FillRequestEvent(const wire::CmReq& req, uint32_t ece_attr_mod, size_t user_data_at,
                      rdma_ucm_event_resp& out) {
  rdma_ucm_conn_param& conn = out.param.conn;
  CopyPrivateData(req.private_data, user_data_at, conn);
  conn.responder_resources = req.initiator_depth;
  conn.initiator_depth = req.responder_resources;
  conn.flow_control = req.end_to_end_flow_control ? 1 : 0;
  conn.retry_count = req.retry_count;
  conn.rnr_retry_count = req.rnr_retry_count;
  conn.srq = req.srq ? 1 : 0;
  conn.qp_num = req.local_qpn;
  out.ece = {req.vendor_id, ece_attr_mod};
}

}  // namespace

// ---- the active side

Status RdmaIds::Connect(Time now, CmaId& id, const rdma_ucm_conn_param& parameters,
                        const rdma_ucm_ece& ece, uint32_t outcome_channel) {
  if (id.state != IdState::kRouteResolved || !id.path) return Fail(EINVAL);
  id.ece = ece;
  id.qpn = parameters.qp_num & kQpnMask;
  id.srq = parameters.srq != 0;
  const Status sent = id.IsIwarp() ? ConnectIwarp(now, id, parameters, outcome_channel)
                      : id.IsUd()  ? SendSidrReq(now, id, parameters)
                                   : SendReq(now, id, parameters);
  if (sent || sent.error().code == EINPROGRESS) id.state = IdState::kConnect;
  return sent;
}

Status RdmaIds::SendReq(Time now, CmaId& id, const rdma_ucm_conn_param& parameters) {
  if (id.qp_type != IBV_QPT_RC && id.qp_type != IBV_QPT_UC) return Fail(EOPNOTSUPP);
  const PathRecord& path = *id.path;
  ConnectParameters connect{.owner = id.handle,
                            .local = id.device->local,
                            .route = {AddressOfGid(id.SourceGid()), AddressOfGid(path.dgid),
                                      path.traffic_class, path.pkey},
                            .req = {},
                            .packet_lifetime = path.packet_lifetime,
                            .ece_attr_mod = id.ece.attr_mod};
  wire::CmReq& req = connect.req;
  if (id.IsIwarp()) {
    FillHeader(id, path, req.private_data);
    CountedData data =
        CarryCounted(DataOf(parameters), req.private_data, wire::RdmaCmHeader::kBytes);
    connect.ece_attr_mod = data.attribute_modifier;
    connect.more_private_data = std::move(data.rest);
    const CmProfile& profile = id.device->local.profile;
    const bool stays = StaysInHost(id);
    connect.give_up_after = stays ? profile.reply_timeout : profile.connect_timeout;
    connect.reply_after_mra = stays ? Duration{} : profile.reply_timeout;
  } else if (const Status fits = FillPrivateData(id, path, parameters, req.private_data); !fits) {
    return fits;
  }
  req.service_id = id.ServiceId(id.destination());
  req.local_qpn = id.qpn;
  req.responder_resources = parameters.responder_resources;
  req.initiator_depth = parameters.initiator_depth;
  req.transport = id.qp_type == IBV_QPT_RC ? wire::CmTransport::kRc : wire::CmTransport::kUc;
  req.end_to_end_flow_control = parameters.flow_control != 0;
  req.starting_psn = id.starting_psn;
  req.retry_count = std::min(kMaxRetryCount, parameters.retry_count);
  req.rnr_retry_count = std::min(kMaxRetryCount, parameters.rnr_retry_count);
  req.pkey = path.pkey;
  req.path_mtu = path.mtu;
  req.srq = id.srq;
  req.vendor_id = id.ece.vendor_id & 0xffffff;
  req.primary.local_gid = path.sgid;
  req.primary.remote_gid = path.dgid;
  req.primary.flow_label = path.flow_label;
  req.primary.packet_rate = path.rate & 0x3f;
  req.primary.traffic_class = path.traffic_class;
  req.primary.hop_limit = path.dlid != 0 ? PathRecord{}.hop_limit : path.hop_limit;
  req.primary.service_level = path.service_level & 0xf;
  req.primary.subnet_local = path.hop_limit <= 1;
  const Result<uint64_t> connection = ib_cm_.SendReq(now, connect);
  if (!connection) return tl::make_unexpected(connection.error());
  id.connection = *connection;
  return {};
}

Status RdmaIds::SendSidrReq(Time now, CmaId& id, const rdma_ucm_conn_param& parameters) {
  const PathRecord& path = *id.path;
  SidrParameters sidr{.owner = id.handle,
                      .local = id.device->local,
                      .route = {AddressOfGid(id.SourceGid()), AddressOfGid(path.dgid),
                                path.traffic_class, path.pkey},
                      .req = {},
                      .flow_label = path.flow_label};
  if (const Status fits = FillPrivateData(id, path, parameters, sidr.req.private_data); !fits) {
    return fits;
  }
  sidr.req.service_id = id.ServiceId(id.destination());
  sidr.req.pkey = path.pkey;
  const Result<uint64_t> connection = ib_cm_.SendSidrReq(now, sidr);
  if (!connection) return tl::make_unexpected(connection.error());
  id.connection = *connection;
  return {};
}

// ---- the passive side

Status RdmaIds::Accept(Time now, CmaId& id, const rdma_ucm_conn_param* parameters,
                       const rdma_ucm_ece& ece, uint64_t uid) {
  if (id.state != IdState::kConnect) return Fail(EINVAL);
  id.ece = ece;
  Connection* connection = ib_cm_.Find(id.connection);
  if (connection == nullptr) return Fail(EINVAL);
  if (parameters != nullptr) {
    id.qpn = parameters->qp_num & kQpnMask;
    id.srq = parameters->srq != 0;
  }
  Status done;
  if (id.IsIwarp()) {
    done = AcceptIwarp(now, id, *connection, parameters, uid);
  } else if (id.IsUd()) {
    done = AcceptUd(now, id, *connection, parameters);
  } else if (parameters != nullptr) {
    done = AcceptRc(now, id, *connection, *parameters);
  } else {
    done = ib_cm_.SendRtu(now, *connection);
  }
  if (done && parameters != nullptr) id.uid = uid;
  // A failed accept rejects the peer's request (measured).
  if (!done) (void)Reject(now, id, RejectReason::kConsumer, {});
  return done;
}

Status RdmaIds::AcceptRc(Time now, CmaId& id, Connection& connection,
                         const rdma_ucm_conn_param& parameters) {
  wire::CmRep rep;
  if (parameters.private_data_len > rep.private_data.size()) return Fail(EINVAL);
  std::copy_n(parameters.private_data, parameters.private_data_len, rep.private_data.begin());
  rep.local_qpn = id.qpn;
  rep.starting_psn = id.starting_psn;
  rep.responder_resources = parameters.responder_resources;
  rep.initiator_depth = parameters.initiator_depth;
  rep.end_to_end_flow_control = parameters.flow_control != 0;
  rep.rnr_retry_count = std::min(kMaxRetryCount, parameters.rnr_retry_count);
  rep.srq = id.srq;
  rep.vendor_id = id.ece.vendor_id & 0xffffff;
  return ib_cm_.SendRep(now, connection, std::move(rep), id.ece.attr_mod);
}

Status RdmaIds::AcceptUd(Time now, CmaId& id, Connection& connection,
                         const rdma_ucm_conn_param* parameters) {
  wire::CmSidrRep rep;
  if (const Status set = SetDefaultQkey(id); !set) return set;
  rep.status = static_cast<uint8_t>(SidrStatus::kSuccess);
  rep.qpn = id.qpn;
  rep.qkey = id.qkey;
  rep.vendor_id = id.ece.vendor_id & 0xffffff;
  if (parameters != nullptr) {
    if (parameters->private_data_len > rep.private_data.size()) return Fail(EINVAL);
    std::copy_n(parameters->private_data, parameters->private_data_len, rep.private_data.begin());
  }
  return ib_cm_.SendSidrRep(now, connection, std::move(rep), id.ece.attr_mod);
}

Status RdmaIds::Reject(Time now, CmaId& id, RejectReason reason,
                       std::span<const uint8_t> private_data) {
  Connection* connection = ib_cm_.Find(id.connection);
  if (connection == nullptr) return Fail(EINVAL);
  if (id.IsIwarp()) return RejectIwarp(now, id, *connection, private_data);
  if (!id.IsUd()) return ib_cm_.SendRej(now, *connection, reason, {}, private_data);
  wire::CmSidrRep rep;
  if (private_data.size() > rep.private_data.size()) return Fail(EINVAL);
  rep.status = static_cast<uint8_t>(SidrStatus::kReject);
  std::ranges::copy(private_data, rep.private_data.begin());
  return ib_cm_.SendSidrRep(now, *connection, std::move(rep), 0);
}

Status RdmaIds::Disconnect(Time now, CmaId& id) {
  if (id.IsIwarp()) return DisconnectIwarp(now, id);
  // A listener with a device has a CM id in the kernel. Disconnecting that id has no effect.
  if (id.state == IdState::kListen) return {};
  Connection* connection = ib_cm_.Find(id.connection);
  if (connection == nullptr) return Fail(EINVAL);
  if (!ib_cm_.SendDreq(now, *connection)) (void)ib_cm_.SendDrep(now, *connection);
  return {};  // in every other state, too (measured)
}

Status RdmaIds::Notify(Time now, CmaId& id, uint32_t event) {
  Connection* connection = ib_cm_.Find(id.connection);
  if (id.IsIwarp()) {
    // Data cannot arrive before its connection, so no event has an effect.
    if (connection == nullptr && id.state != IdState::kListen) return Fail(EINVAL);
    return {};
  }
  if (connection == nullptr) return Fail(EINVAL);
  if (event == IBV_EVENT_COMM_EST) return ib_cm_.Establish(now, *connection);
  // cm_migrate: there is no alternate path. The kernel then uses an empty path and can send no more
  // messages of the connection. The emulator does not copy this defect.
  const bool is_migration = event == IBV_EVENT_PATH_MIG;
  return is_migration && connection->state == IbCmState::kEstablished ? Status() : Fail(EINVAL);
}

// ---- requests

bool RdmaIds::Listens(const CmDevice& device, uint64_t service_id) {
  const auto owners =
      ports_.Owners(static_cast<uint16_t>(service_id >> 16), static_cast<uint16_t>(service_id));
  if (service_id >> 32 != 0) return false;
  return std::ranges::any_of(owners, [&](const PortBinding* binding) {
    const CmaId* id = Find(binding->id);
    return id->state == IdState::kListen && (!id->device || id->device->index == device.index);
  });
}

// cma_find_listener. A listener on a sockaddr_ib matches every request on a port with LIDs.
CmaId* RdmaIds::FindListener(const CmDevice& device, uint64_t service_id,
                             const wire::RdmaCmHeader* header) {
  const uint16_t family = header == nullptr ? AF_IB : header->ip_version == 4 ? AF_INET : AF_INET6;
  for (const PortBinding* binding :
       ports_.Owners(static_cast<uint16_t>(service_id >> 16), static_cast<uint16_t>(service_id))) {
    CmaId* id = Find(binding->id);
    if (id->state != IdState::kListen) continue;
    if (id->device && id->device->index != device.index) continue;
    if (binding->source.family == AF_IB) return id;
    if (header == nullptr) continue;
    if (binding->source.IsAny() && !binding->af_only) return id;
    if (binding->source.family != family) continue;
    if (binding->source.IsAny() || binding->source.address == header->destination) return id;
  }
  return nullptr;
}

bool RdmaIds::IsReachable(const CmDevice& device, const wire::RdmaCmHeader& header) const {
  const CmDevice* owner = addresses_.DeviceOf(header.destination);
  return owner != nullptr && owner->index == device.index &&
         addresses_.FindRoute(header.source).kind != Reach::Kind::kNone;
}

// Sets the addresses and the device of a request's id (cma_save_net_info, cma_ib_acquire_dev).
// `req` is nullptr for a SIDR_REQ. Returns ENODEV when no device of the host has the address.
Status RdmaIds::TakeAddresses(CmaId& id, const CmaId& listener, const Connection& connection,
                              const wire::RdmaCmHeader* header, const wire::CmReq* req) {
  SocketAddress& source = id.binding.source;
  SocketAddress& destination = id.binding.destination;
  if (!listener.IsAfIb()) {
    const uint16_t family = header->ip_version == 4 ? AF_INET : AF_INET6;
    source = {family, header->destination, static_cast<uint16_t>(connection.service_id), 0, 0};
    destination = {family, header->source, header->source_port, 0, 0};
    return AttachDevice(id, header->destination);
  }
  // A SIDR_REQ has no GIDs. Its id gets the listener's address as source, and a destination without
  // an address.
  source = listener.source();
  destination.family = AF_IB;
  if (req != nullptr) {
    source.address = req->primary.remote_gid;
    destination.address = req->primary.local_gid;
    source.pkey = destination.pkey = req->pkey;
    source.flow_info = destination.flow_info = htonl(req->primary.flow_label);
  }
  source.port = static_cast<uint16_t>(connection.service_id);
  source.service_id = connection.service_id;
  source.service_id_mask = ~uint64_t{0};
  // The IPoIB interface received the request of an IP id, so the id gets the device of this
  // interface.
  if (header != nullptr) return AttachByGid(id, header->destination, source.pkey);
  return AttachByGid(id, source.address, source.pkey);
}

PathRecord RdmaIds::PathOfRequest(const CmaId& id, const wire::CmReq& req) const {
  PathRecord path;
  path.service_id = req.service_id;
  path.sgid = req.primary.remote_gid;
  path.dgid = req.primary.local_gid;
  AddLids(id, path);
  path.flow_label = req.primary.flow_label;
  path.traffic_class = req.primary.traffic_class;
  path.service_level = req.primary.service_level;
  path.mtu = req.path_mtu;
  path.number_of_paths = 1;
  path.rate = req.primary.packet_rate;
  path.pkey = req.pkey;
  path.packet_lifetime =
      static_cast<uint8_t>(std::max(req.primary.local_ack_timeout, uint8_t{1}) - 1);
  return path;
}

RequestVerdict RdmaIds::Request(Time now, Connection& connection, const CmDevice& device,
                                const wire::CmMessage& message) {
  const auto* req = std::get_if<wire::CmReq>(&message.body);
  const auto* sidr = std::get_if<wire::CmSidrReq>(&message.body);
  const auto private_data = req != nullptr ? std::span<const uint8_t>(req->private_data)
                                           : std::span<const uint8_t>(sidr->private_data);
  const std::optional<wire::RdmaCmHeader> header = wire::ParseRdmaCmHeader(private_data);
  // An AF_IB id's request has private data with the header's version and without an IP version
  // (cma_ib_id_from_event).
  const bool has_lids = device.profile->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  if (header ? !IsReachable(device, *header) : !has_lids || private_data[0] != 0) {
    return RequestVerdict::kRefused;
  }
  CmaId* listener = FindListener(device, connection.service_id, header ? &*header : nullptr);
  const std::optional<ibv_qp_type> qp_type = req != nullptr ? QpTypeOf(*req) : IBV_QPT_UD;
  if (listener == nullptr || !qp_type || listener->qp_type != *qp_type) {
    return RequestVerdict::kRefused;
  }
  // A listener on a GID is found, but has no device for an IP address (cma_ib_acquire_dev).
  if (listener->IsAfIb() && !has_lids) return RequestVerdict::kRefused;
  const bool is_iwarp = device.profile->cm.manager == ConnectionManager::kIwarp;
  if (is_iwarp && (!req || !IsReceivable(message))) return RequestVerdict::kRefused;
  if (listener->backlog_left == 0) {
    return is_iwarp ? RequestVerdict::kRefused : RequestVerdict::kDropped;
  }

  // The uid is 0 before the accept.
  const Result<CmaId*> made = Create(listener->group, listener->process, listener->channel, 0,
                                     listener->port_space, *qp_type);
  if (!made) return RequestVerdict::kDropped;
  CmaId& id = **made;
  const bool attached =
      TakeAddresses(id, *listener, connection, header ? &*header : nullptr, req).has_value();
  id.connection = connection.key;
  id.state = IdState::kConnect;
  PendingEvent event = MakeEvent(*listener, EventType::kConnectRequest, 0);
  event.new_id = event.response.id = id.handle;
  const size_t offset = UserDataOffset(*listener);
  if (is_iwarp) {
    rdma_ucm_conn_param& conn = event.response.param.conn;
    TakeCounted(message, req->private_data, offset, conn);
    conn.responder_resources = id.responder_resources = req->initiator_depth;
    conn.initiator_depth = id.initiator_depth = req->responder_resources;
  } else if (req != nullptr) {
    FillRequestEvent(*req, message.attribute_modifier, offset, event.response);
  } else {
    CopyPrivateData(sidr->private_data, offset, event.response.param.ud);
  }
  if (!attached || !Push(now, *listener, std::move(event))) {
    id.connection = 0;
    Erase(now, id);
    return attached ? RequestVerdict::kDropped : RequestVerdict::kRefused;
  }
  if (req != nullptr) id.path = PathOfRequest(id, *req);
  listener->backlog_left--;
  connection.owner = id.handle;
  return RequestVerdict::kTaken;
}

// ---- events from the IB CM

EventAnswer RdmaIds::Event(Time now, const Connection& connection, IbCmEventType type,
                           const wire::CmMessage* message) {
  CmaId* found = Find(connection.owner);
  if (found == nullptr) return EventAnswer::kLater;
  CmaId& id = *found;
  if (id.IsIwarp()) return IwarpEvent(now, id, connection, type, message);
  IbEvent(now, id, connection, type, message);
  return EventAnswer::kLater;  // the program or its library answers
}

void RdmaIds::IbEvent(Time now, CmaId& id, const Connection& connection, IbCmEventType type,
                      const wire::CmMessage* message) {
  const IdState wanted =
      type == IbCmEventType::kTimewaitExit ? IdState::kDisconnect : IdState::kConnect;
  if (id.state != wanted) return;
  switch (type) {
    case IbCmEventType::kMraReceived:
      return;
    case IbCmEventType::kReqError:
    case IbCmEventType::kRepError:
      Push(now, id, EventType::kUnreachable, -connection.send_error);
      return;
    case IbCmEventType::kRepReceived: {
      const auto& rep = std::get<wire::CmRep>(message->body);
      PendingEvent event = MakeEvent(id, EventType::kConnectResponse, 0);
      rdma_ucm_conn_param& conn = event.response.param.conn;
      CopyPrivateData(rep.private_data, 0, conn);
      conn.responder_resources = rep.initiator_depth;
      conn.initiator_depth = rep.responder_resources;
      conn.flow_control = rep.end_to_end_flow_control ? 1 : 0;
      conn.rnr_retry_count = rep.rnr_retry_count;
      conn.srq = rep.srq ? 1 : 0;
      conn.qp_num = rep.local_qpn;
      event.response.ece = {rep.vendor_id, message->attribute_modifier};
      Push(now, id, std::move(event));
      return;
    }
    case IbCmEventType::kRtuReceived:
    case IbCmEventType::kUserEstablished:
      Push(now, id, EventType::kEstablished, 0);
      return;
    case IbCmEventType::kDreqError:
    case IbCmEventType::kDreqReceived:
    case IbCmEventType::kDrepReceived:
      id.state = IdState::kDisconnect;
      Push(now, id, EventType::kDisconnected, type == IbCmEventType::kDreqError ? -ETIMEDOUT : 0);
      return;
    case IbCmEventType::kTimewaitExit:
      Push(now, id, EventType::kTimewaitExit, 0);
      return;
    case IbCmEventType::kRejReceived: {
      const auto& rej = std::get<wire::CmRej>(message->body);
      PendingEvent event = MakeEvent(id, EventType::kRejected, rej.reason);
      CopyPrivateData(rej.private_data, 0, event.response.param.conn);
      Push(now, id, std::move(event));
      return;
    }
    case IbCmEventType::kSidrReqError:
      Push(now, id, EventType::kUnreachable, -connection.send_error);
      return;
    case IbCmEventType::kSidrRepReceived:
      SidrReplied(now, id, connection, *message);
      return;
  }
}

void RdmaIds::SidrReplied(Time now, CmaId& id, const Connection& connection,
                          const wire::CmMessage& message) {
  const auto& rep = std::get<wire::CmSidrRep>(message.body);
  PendingEvent event = MakeEvent(id, EventType::kEstablished, 0);
  rdma_ucm_ud_param& ud = event.response.param.ud;
  CopyPrivateData(rep.private_data, 0, ud);
  if (rep.status != static_cast<uint8_t>(SidrStatus::kSuccess)) {
    event.response.event = static_cast<uint32_t>(EventType::kUnreachable);
    event.response.status = rep.status;
  } else if (rep.qkey == 0 || (id.qkey != 0 && id.qkey != rep.qkey)) {
    event.response.event = static_cast<uint32_t>(EventType::kAddrError);
    event.response.status = static_cast<uint32_t>(-EINVAL);
  } else {
    id.qkey = rep.qkey;
    ud.qp_num = rep.qpn;
    ud.qkey = rep.qkey;
    ud.ah_attr =
        AhOfPath(id, MakeAh(id, connection.route.source, id.path->dgid, id.path->flow_label,
                            id.path->hop_limit, id.path->traffic_class));
  }
  Push(now, id, std::move(event));
}

}  // namespace rdmaemu::cm
