#include "emulator/cm/ib_cm.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "emulator/base/id_space.h"

namespace rdmaemu::cm {

using wire::CmMessageType;

namespace {

bool IsRequesting(const Connection& connection) {
  return connection.state == IbCmState::kReqSent || connection.state == IbCmState::kMraReqReceived;
}

}  // namespace

uint8_t AckTimeoutExponent(uint8_t ack_delay, uint8_t packet_lifetime) {
  int exponent = packet_lifetime + 1;
  if (exponent >= ack_delay) {
    exponent += ack_delay >= exponent - 1 ? 1 : 0;
  } else {
    exponent = ack_delay + (exponent >= ack_delay - 1 ? 1 : 0);
  }
  return static_cast<uint8_t>(std::min(exponent, 31));
}

NetAddress AddressOfGid(const NetAddress& gid) {
  return gid.IsLinkLocal() ? AddressOfLinkLocal(gid).value_or(gid) : gid;
}

// ---- connections and their tables

Connection* IbCm::Find(uint64_t key) {
  const auto it = connections_.find(key);
  return it == connections_.end() ? nullptr : &it->second;
}

std::vector<const Connection*> IbCm::All() const {
  std::vector<const Connection*> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(&connection);
  std::ranges::sort(all, {}, &Connection::key);
  return all;
}

Connection* IbCm::Create() {
  if (connections_.size() >= kMaxConnections) return nullptr;
  Connection& connection = connections_[++last_key_];
  connection.key = last_key_;
  do {
    connection.local_id = random_.Next32();
  } while (connection.local_id == 0 || by_local_id_.contains(connection.local_id));
  by_local_id_[connection.local_id] = &connection;
  connection.transaction_id = uint64_t{random_.Next32()} << 32 | connection.local_id;
  return &connection;
}

void IbCm::Forget(Connection& connection) {
  StopRepeating(connection);
  timers_.Cancel(connection.key);
  RemoveRemote(connection);
  by_local_id_.erase(connection.local_id);
  connections_.erase(connection.key);
}

void IbCm::DropIfOver(Connection& connection) {
  if (connection.owner == 0 && connection.state == IbCmState::kIdle) Forget(connection);
}

Connection* IbCm::Acquire(uint32_t local_id, uint32_t remote_id) {
  const auto it = by_local_id_.find(local_id);
  if (it == by_local_id_.end()) return nullptr;
  return it->second->remote_id == remote_id ? it->second : nullptr;
}

bool IbCm::InsertRemoteId(Connection& connection, uint64_t guid, uint32_t remote_id) {
  if (!by_remote_id_.try_emplace({guid, remote_id}, connection.key).second) return false;
  connection.remote_id_key = {guid, remote_id};
  return true;
}

bool IbCm::InsertRemoteQpn(Connection& connection, uint64_t guid, uint32_t qpn) {
  if (!by_remote_qpn_.try_emplace({guid, qpn}, connection.key).second) return false;
  connection.remote_qpn_key = {guid, qpn};
  return true;
}

void IbCm::RemoveRemote(Connection& connection) {
  if (connection.remote_id_key) by_remote_id_.erase(*connection.remote_id_key);
  if (connection.remote_qpn_key) by_remote_qpn_.erase(*connection.remote_qpn_key);
  if (connection.sidr_key) by_sidr_.erase(*connection.sidr_key);
  connection.remote_id_key.reset();
  connection.remote_qpn_key.reset();
  connection.sidr_key.reset();
}

// ---- sending

Status IbCm::Send(Time now, const CmRoute& route, uint32_t owner, const wire::CmMessage& message) {
  statistics_.messages_sent++;
  Trace(now, "cm.send", owner, message);
  return transport_.Send(now, route, message);
}

// A MAD whose send fails is not retransmitted (cm_send_handler, cm_process_send_error).
void IbCm::SendOutstanding(Time now, Connection& connection) {
  const Status sent = Send(now, connection.route, connection.owner, *connection.outstanding);
  if (!sent) GiveUpNow(now, connection, sent.error().code);
}

// The next Expire notifies the owner.
void IbCm::GiveUpNow(Time now, Connection& connection, int error) {
  connection.send_error = error;
  connection.retries_left = 0;
  if (connection.give_up_at) connection.give_up_at = now;
  timers_.Arm(connection.key, now);
}

void IbCm::Refused(Time now, const NetAddress& local, const NetAddress& remote) {
  for (auto& [key, connection] : connections_) {
    const bool awaits_tcp =
        connection.state == IbCmState::kReqSent && connection.reply_after_mra > Duration{};
    if (awaits_tcp && connection.route.source == local && connection.route.destination == remote) {
      GiveUpNow(now, connection, ECONNREFUSED);
    }
  }
}

void IbCm::SendOn(Time now, const Connection& connection, wire::CmBody body) {
  Send(now, connection.route, connection.owner, {connection.transaction_id, 0, std::move(body)});
}

void IbCm::SendUntilAnswered(Time now, Connection& connection, wire::CmMessage message,
                             IbCmState state) {
  StopRepeating(connection);
  connection.state = state;
  connection.repeat_after = connection.response_timeout;
  connection.retries_left = connection.max_retries;
  connection.outstanding = std::move(message);
  ArmRepeat(now, connection);
  SendOutstanding(now, connection);
}

void IbCm::ArmRepeat(Time now, Connection& connection) {
  Time due = now + connection.repeat_after;
  if (IsRequesting(connection) && connection.give_up_at)
    due = std::min(due, *connection.give_up_at);
  timers_.Arm(connection.key, due);
}

void IbCm::StopRepeating(Connection& connection) {
  if (!connection.outstanding) return;
  connection.outstanding.reset();
  timers_.Cancel(connection.key);
}

void IbCm::EnterTimewait(Time now, Connection& connection) {
  StopRepeating(connection);
  RemoveRemote(connection);
  connection.state = IbCmState::kTimewait;
  const Duration length =
      std::max(CmTimeout(connection.ack_timeout), connection.local.profile.timewait_floor);
  timers_.Arm(connection.key, now + length);
  if (connection.owner == 0) BoundOwnerlessTimewait(connection);
}

void IbCm::BoundOwnerlessTimewait(Connection& connection) {
  ownerless_timewait_.push_back(connection.key);
  while (ownerless_timewait_.size() > kMaxTimewaitEntries) {
    Connection* oldest = Find(ownerless_timewait_.front());
    ownerless_timewait_.pop_front();
    if (oldest != nullptr && oldest != &connection) Forget(*oldest);
  }
}

void IbCm::ResetToIdle(Connection& connection) {
  StopRepeating(connection);
  RemoveRemote(connection);
  connection.state = IbCmState::kIdle;
}

// Returns ENOENT when the path's partition is not in the device's table (cm_init_av_by_path).
Result<uint64_t> IbCm::SendReq(Time now, const ConnectParameters& parameters) {
  const auto pkey_index = addresses_.FindPkey(parameters.route.source, parameters.req.pkey);
  if (!pkey_index) return Fail(ENOENT);
  Connection* made = Create();
  if (made == nullptr) return Fail(ENOMEM);
  Connection& connection = *made;
  const CmProfile& profile = parameters.local.profile;
  connection.owner = parameters.owner;
  connection.local = parameters.local;
  connection.route = parameters.route;
  connection.pkey_index = *pkey_index;
  wire::CmReq req = parameters.req;
  connection.ack_timeout = static_cast<uint8_t>(parameters.packet_lifetime + 1);
  req.local_comm_id = connection.local_id;
  req.local_ca_guid = be64toh(parameters.local.node_guid_be);
  req.remote_cm_response_timeout = req.local_cm_response_timeout = profile.response_timeout;
  req.max_cm_retries = profile.max_retries;
  req.primary.local_ack_timeout =
      AckTimeoutExponent(parameters.local.ack_delay, parameters.packet_lifetime);
  connection.service_id = req.service_id;
  connection.transport = req.transport;
  connection.local_qpn = req.local_qpn;
  connection.rq_psn = req.starting_psn;
  connection.responder_resources = req.responder_resources;
  connection.initiator_depth = req.initiator_depth;
  connection.retry_count = req.retry_count;
  connection.path_mtu = req.path_mtu;
  connection.flow_label = req.primary.flow_label;
  connection.hop_limit = req.primary.hop_limit;
  connection.max_retries = profile.max_retries;
  connection.response_timeout =
      2 * CmTimeout(parameters.packet_lifetime) + CmTimeout(profile.response_timeout);
  if (parameters.give_up_after > Duration{}) {
    connection.give_up_at = now + parameters.give_up_after;
    connection.reply_after_mra = parameters.reply_after_mra;
  }
  SendUntilAnswered(now, connection,
                    {connection.transaction_id, parameters.ece_attr_mod, std::move(req),
                     parameters.more_private_data},
                    IbCmState::kReqSent);
  return connection.key;
}

Result<uint64_t> IbCm::SendSidrReq(Time now, const SidrParameters& parameters) {
  if (!addresses_.FindPkey(parameters.route.source, parameters.req.pkey)) return Fail(ENOENT);
  Connection* made = Create();
  if (made == nullptr) return Fail(ENOMEM);
  Connection& connection = *made;
  connection.owner = parameters.owner;
  connection.local = parameters.local;
  connection.route = parameters.route;
  connection.flow_label = parameters.flow_label;
  connection.service_id = parameters.req.service_id;
  connection.max_retries = parameters.local.profile.max_retries;
  connection.response_timeout = CmTimeout(parameters.local.profile.response_timeout);
  wire::CmSidrReq req = parameters.req;
  req.request_id = connection.local_id;
  SendUntilAnswered(now, connection, {connection.transaction_id, 0, std::move(req)},
                    IbCmState::kSidrReqSent);
  return connection.key;
}

Status IbCm::SendRep(Time now, Connection& connection, wire::CmRep rep, uint32_t ece_attr_mod,
                     std::vector<uint8_t> more_private_data) {
  if (connection.state != IbCmState::kReqReceived && connection.state != IbCmState::kMraReqSent) {
    return Fail(EINVAL);
  }
  rep.local_comm_id = connection.local_id;
  rep.remote_comm_id = connection.remote_id;
  rep.target_ack_delay = connection.local.ack_delay;
  rep.local_ca_guid = be64toh(connection.local.node_guid_be);
  connection.initiator_depth = rep.initiator_depth;
  connection.responder_resources = rep.responder_resources;
  connection.rq_psn = rep.starting_psn;
  connection.local_qpn = rep.local_qpn;
  SendUntilAnswered(
      now, connection,
      {connection.transaction_id, ece_attr_mod, std::move(rep), std::move(more_private_data)},
      IbCmState::kRepSent);
  return {};
}

Status IbCm::SendRtu(Time now, Connection& connection) {
  if (connection.state != IbCmState::kRepReceived && connection.state != IbCmState::kMraRepSent) {
    return Fail(EINVAL);
  }
  connection.state = IbCmState::kEstablished;
  SendOn(now, connection, wire::CmRtu{connection.local_id, connection.remote_id, {}});
  return {};
}

wire::CmRej IbCm::MakeRej(const Connection& connection, RejectReason reason) const {
  wire::CmRej rej;
  rej.remote_comm_id = connection.remote_id;
  rej.local_comm_id = connection.local_id;
  rej.reason = static_cast<uint16_t>(reason);
  switch (connection.state) {
    case IbCmState::kReqReceived:
      rej.local_comm_id = 0;
      rej.message = CmMessageType::kReq;
      break;
    case IbCmState::kMraReqSent:
      rej.message = CmMessageType::kReq;
      break;
    case IbCmState::kRepReceived:
    case IbCmState::kMraRepSent:
      rej.message = CmMessageType::kRep;
      break;
    default:
      rej.message = CmMessageType::kOther;
      break;
  }
  return rej;
}

Status IbCm::SendRej(Time now, Connection& connection, RejectReason reason,
                     std::span<const uint8_t> additional_info,
                     std::span<const uint8_t> private_data, uint32_t attribute_modifier,
                     std::vector<uint8_t> more_private_data) {
  wire::CmRej rej = MakeRej(connection, reason);
  if (private_data.size() > rej.private_data.size() ||
      additional_info.size() > rej.additional_info.size()) {
    return Fail(EINVAL);
  }
  std::ranges::copy(private_data, rej.private_data.begin());
  std::ranges::copy(additional_info, rej.additional_info.begin());
  rej.additional_info_bytes = static_cast<uint8_t>(additional_info.size());
  switch (connection.state) {
    case IbCmState::kReqSent:
    case IbCmState::kMraReqReceived:
    case IbCmState::kReqReceived:
    case IbCmState::kMraReqSent:
    case IbCmState::kRepReceived:
    case IbCmState::kMraRepSent:
      ResetToIdle(connection);
      break;
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
      EnterTimewait(now, connection);
      break;
    default:
      return Fail(EINVAL);
  }
  Send(now, connection.route, connection.owner,
       {connection.transaction_id, attribute_modifier, std::move(rej),
        std::move(more_private_data)});
  return {};
}

void IbCm::Withdraw(Time now, Connection& connection) {
  std::array<uint8_t, sizeof connection.local.node_guid_be> guid;
  std::memcpy(guid.data(), &connection.local.node_guid_be, guid.size());
  (void)SendRej(now, connection, RejectReason::kTimeout, guid, {});
}

Status IbCm::SendDreq(Time now, Connection& connection) {
  if (connection.state != IbCmState::kEstablished) return Fail(EINVAL);
  wire::CmDreq dreq{connection.local_id, connection.remote_id, connection.remote_qpn, {}};
  // The DREQ gets a new transaction id, because the peer's tables may still hold the handshake's
  // id.
  const uint64_t transaction = uint64_t{random_.Next32()} << 32 | connection.local_id;
  SendUntilAnswered(now, connection, {transaction, 0, std::move(dreq)}, IbCmState::kDreqSent);
  return {};
}

Status IbCm::SendDrep(Time now, Connection& connection) {
  if (connection.state != IbCmState::kDreqReceived) return Fail(EINVAL);
  EnterTimewait(now, connection);
  SendOn(now, connection, wire::CmDrep{connection.local_id, connection.remote_id, {}});
  return {};
}

Status IbCm::SendSidrRep(Time now, Connection& connection, wire::CmSidrRep rep,
                         uint32_t ece_attr_mod) {
  if (connection.state != IbCmState::kSidrReqReceived) return Fail(EINVAL);
  rep.request_id = connection.remote_id;
  rep.service_id = connection.service_id;
  RemoveRemote(connection);
  connection.state = IbCmState::kIdle;
  Send(now, connection.route, connection.owner,
       {connection.transaction_id, ece_attr_mod, std::move(rep)});
  return {};
}

Status IbCm::Establish(Time now, Connection& connection) {
  if (connection.state == IbCmState::kEstablished) return Fail(EISCONN);
  if (connection.state != IbCmState::kRepSent && connection.state != IbCmState::kMraRepReceived) {
    return Fail(EINVAL);
  }
  connection.state = IbCmState::kEstablished;
  StopRepeating(connection);
  TellOwner(now, connection, IbCmEventType::kUserEstablished, nullptr);
  return {};
}

// Shortens the interval between DREQs. A peer may have asked for an interval of hours, but the
// connection of a destroyed id must not remain for hours.
void IbCm::HurryDreq(Time now, Connection& connection) {
  const CmProfile& profile = connection.local.profile;
  const Duration ours =
      2 * CmTimeout(profile.packet_lifetime) + CmTimeout(profile.response_timeout);
  if (connection.repeat_after <= ours) return;
  connection.repeat_after = ours;
  ArmRepeat(now, connection);
}

void IbCm::Destroy(Time now, uint64_t key) {
  Connection* found = Find(key);
  if (found == nullptr) return;
  Connection& connection = *found;
  switch (connection.state) {
    case IbCmState::kSidrReqReceived:
      (void)SendSidrRep(now, connection,
                        {.status = static_cast<uint8_t>(SidrStatus::kReject),
                         .additional_info = {},
                         .private_data = {}},
                        0);
      break;
    case IbCmState::kReqSent:
    case IbCmState::kMraReqReceived:
      Withdraw(now, connection);
      break;
    case IbCmState::kReqReceived:
    case IbCmState::kMraReqSent:
    case IbCmState::kRepReceived:
    case IbCmState::kMraRepSent:
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
      (void)SendRej(now, connection, RejectReason::kConsumer, {}, {});
      break;
    case IbCmState::kEstablished:
      (void)SendDreq(now, connection);
      break;
    case IbCmState::kDreqReceived:
      (void)SendDrep(now, connection);
      break;
    default:
      break;
  }
  connection.owner = 0;
  if (connection.state == IbCmState::kTimewait) {
    BoundOwnerlessTimewait(connection);
  } else if (connection.state == IbCmState::kDreqSent) {
    HurryDreq(now, connection);
  } else {
    Forget(connection);
  }
}

// ---- time

// Records until when the peer retransmits its message: until the peer's retries end.
void IbCm::GiveToApplication(Time now, Connection& connection, IbCmState state) {
  connection.state = state;
  connection.held_until = now + (connection.max_retries + 1) * connection.response_timeout;
}

bool IbCm::AwaitsApplication(Time now) const {
  return std::ranges::any_of(connections_, [&](const auto& each) {
    const Connection& connection = each.second;
    if (connection.owner == 0) return false;
    switch (connection.state) {
      case IbCmState::kReqReceived:
      case IbCmState::kMraReqSent:
      case IbCmState::kSidrReqReceived:
        return true;
      case IbCmState::kRepReceived:
      case IbCmState::kMraRepSent:
      case IbCmState::kDreqReceived:
        return now < connection.held_until;
      default:
        return false;
    }
  });
}

void IbCm::TellOwner(Time now, Connection& connection, IbCmEventType type,
                     const wire::CmMessage* message) {
  if (connection.owner != 0) {
    const EventAnswer answer = user_.Event(now, connection, type, message);
    if (answer == EventAnswer::kNo) {
      (void)SendRej(now, connection, RejectReason::kConsumer, {}, {});
    } else if (answer == EventAnswer::kYes && type == IbCmEventType::kRepReceived) {
      (void)SendRtu(now, connection);
    } else if (answer == EventAnswer::kYes) {
      (void)SendDrep(now, connection);
    }
    return;
  }
  // The connection has no owner that could answer a DREQ.
  if (connection.state == IbCmState::kDreqReceived) (void)SendDrep(now, connection);
  DropIfOver(connection);
}

void IbCm::Expire(Time now) {
  while (const std::optional<uint64_t> key = timers_.PopExpired(now)) {
    Connection* connection = Find(*key);
    if (connection == nullptr) continue;
    if (connection->outstanding) {
      RetransmitOrGiveUp(now, *connection);
    } else if (connection->state == IbCmState::kTimewait) {
      connection->state = IbCmState::kIdle;
      TellOwner(now, *connection, IbCmEventType::kTimewaitExit, nullptr);
    }
  }
  while (!ownerless_timewait_.empty() && Find(ownerless_timewait_.front()) == nullptr) {
    ownerless_timewait_.pop_front();
  }
}

void IbCm::RetransmitOrGiveUp(Time now, Connection& connection) {
  const bool has_limit = IsRequesting(connection) && connection.give_up_at;
  const bool goes_on = has_limit ? now < *connection.give_up_at : connection.retries_left > 0;
  if (goes_on) {
    if (connection.retries_left > 0) connection.retries_left--;
    statistics_.retransmissions++;
    ArmRepeat(now, connection);
    SendOutstanding(now, connection);
    return;
  }
  switch (connection.state) {
    case IbCmState::kReqSent:
    case IbCmState::kMraReqReceived:
      // At give_up_at this side stops retransmitting the REQ. A later accept would be too late, so
      // this side withdraws the REQ.
      if (connection.give_up_at) Withdraw(now, connection);
      ResetToIdle(connection);
      TellOwner(now, connection, IbCmEventType::kReqError, nullptr);
      break;
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
      ResetToIdle(connection);
      TellOwner(now, connection, IbCmEventType::kRepError, nullptr);
      break;
    case IbCmState::kDreqSent:
      EnterTimewait(now, connection);
      TellOwner(now, connection, IbCmEventType::kDreqError, nullptr);
      break;
    case IbCmState::kSidrReqSent:
      ResetToIdle(connection);
      TellOwner(now, connection, IbCmEventType::kSidrReqError, nullptr);
      break;
    default:
      StopRepeating(connection);
      break;
  }
}

// ---- trace

uint32_t IbCm::OwnerOf(const wire::CmMessage& message) {
  uint32_t ours = 0;
  std::visit(
      [&ours](const auto& body) {
        if constexpr (requires { body.remote_comm_id; }) ours = body.remote_comm_id;
        if constexpr (std::is_same_v<std::decay_t<decltype(body)>, wire::CmSidrRep>) {
          ours = body.request_id;
        }
      },
      message.body);
  const auto it = by_local_id_.find(ours);
  return it == by_local_id_.end() ? 0 : it->second->owner;
}

void IbCm::Trace(Time now, std::string_view kind, uint32_t owner, const wire::CmMessage& message) {
  if (!trace_.wants_records()) return;
  trace::Record record{now, ProcessId::kNone, kind, {}, wire::CmName(message.body), {}};
  if (owner != 0) record.object = "id " + std::to_string(owner & IdSpace::Part(0).last());
  std::visit(
      [&record](const auto& body) {
        if constexpr (requires { body.local_comm_id; }) {
          record.fields.push_back({"local_comm_id", uint64_t{body.local_comm_id}});
        }
        if constexpr (requires { body.remote_comm_id; }) {
          record.fields.push_back({"remote_comm_id", uint64_t{body.remote_comm_id}});
        }
        if constexpr (requires { body.request_id; }) {
          record.fields.push_back({"request_id", uint64_t{body.request_id}});
        }
        if constexpr (requires { body.service_id; }) {
          record.fields.push_back({"service_id", uint64_t{body.service_id}});
        }
        if constexpr (requires { body.reason; }) {
          record.fields.push_back({"reason", uint64_t{body.reason}});
        }
      },
      message.body);
  trace_.Write(record);
}

}  // namespace rdmaemu::cm
