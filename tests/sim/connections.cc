#include "tests/sim/connections.h"

#include <algorithm>

#include "emulator/abi/user_qp_attr.h"
#include "tests/sim/private_data.h"
#include "tests/sim/socket_addresses.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kChannels = 2;

}  // namespace

// ---- ids and channels

std::string Connections::NameOf(const CmId& id) const {
  return id.program->name() + " id " + std::to_string(id.handle) + " (cm #" +
         std::to_string(id.number) + ")";
}

void Connections::Say(const CmId& id, const std::string& what) {
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), id.program->name(), NameOf(id) + " " + what);
  }
}

std::vector<Connections::Channel>& Connections::ChannelsOf(Program& program) {
  std::vector<Channel>& channels = channels_[&program];
  while (channels.size() < kChannels) {
    CmChannelOut made{};
    if (program.process().Call(CallOp::kCmCreateChannel, Nothing{}, made) != 0) {
      world_.verdict().Complain("cm", program.name() + " gets no event channel");
      made = {};
    }
    channels.push_back({made.channel, program.process().TakeCounter().value_or(CounterId{})});
  }
  return channels;
}

CmId* Connections::NewId(Program& program, uint16_t port_space, ibv_qp_type type) {
  auto id = std::make_unique<CmId>();
  id->number = static_cast<uint32_t>(ids_.size() + 1);
  id->program = &program;
  id->port_space = port_space;
  id->type = type;
  id->channel = world_.random().Below(kChannels);
  id->ipv6 = world_.random().Below(4) == 0;
  rdma_ucm_create_id create{};
  create.uid = id->number;
  create.ps = port_space;
  create.qp_type = static_cast<uint8_t>(type);
  rdma_ucm_create_id_resp made{};
  const uint32_t channel = ChannelsOf(program)[id->channel].handle;
  if (program.process().Cm(channel, RDMA_USER_CM_CMD_CREATE_ID, create, made) != 0) {
    world_.verdict().Complain("cm", program.name() + " gets no id");
    return nullptr;
  }
  id->handle = made.id;
  by_handle_[{&program, made.id}] = id.get();
  checker_.Created(id->number, NameOf(*id), type == IBV_QPT_UD);
  if (!world_.network().perfect()) checker_.Disturbed(id->number);
  ids_.push_back(std::move(id));
  return ids_.back().get();
}

CmId* Connections::Any(Program& program, bool (*fits)(const CmId&)) {
  std::vector<CmId*> found;
  for (const auto& id : ids_) {
    if (id->program == &program && !id->ended && fits(*id)) found.push_back(id.get());
  }
  return found.empty() ? nullptr
                       : found[world_.random().Below(static_cast<uint32_t>(found.size()))];
}

void Connections::Step(Program& program) {
  if (!program.Runs()) return;
  Random& random = world_.random();
  const auto any = [](const CmId&) { return true; };
  const auto connected = [](const CmId& id) { return !id.listens && id.partner != nullptr; };
  switch (random.Below(12)) {
    case 0:
    case 1:
      return Listen(program);
    case 2:
      if (CmId* id = Any(program, connected)) Disconnect(*id);
      return;
    case 3:
      if (CmId* id = Any(program, any); id != nullptr && random.Below(2) == 0) Destroy(*id);
      return;
    case 4:
      if (CmId* id = Any(program, any)) Migrate(*id);
      return;
    case 5:
      if (CmId* id = Any(program, connected); id != nullptr && !id->passive) ConnectAgain(*id);
      return;
    default:
      return BeginConnect(program);
  }
}

void Connections::Migrate(CmId& id) {
  const std::vector<Channel>& channels = ChannelsOf(*id.program);
  const uint32_t to = (id.channel + 1) % kChannels;
  rdma_ucm_migrate_id command{};
  command.id = id.handle;
  command.fd = channels[to].handle;
  if (Call(id, RDMA_USER_CM_CMD_MIGRATE_ID, command) == 0) {
    id.channel = to;
    world_.tally().Count("cm.migrate");
  }
}

void Connections::Destroy(CmId& id) {
  if (id.ended || !id.program->Runs()) return;
  Say(id, "is destroyed");
  world_.tally().Count("cm.destroy_id");
  rdma_ucm_destroy_id command{};
  command.id = id.handle;
  checker_.Called(id.number, CmCallKind::kDestroy);
  id.ended = true;
  by_handle_.erase({id.program, id.handle});
  if (Call(id, RDMA_USER_CM_CMD_DESTROY_ID, command) != 0) {
    world_.verdict().Complain("cm", NameOf(id) + " cannot be destroyed");
  }
}

// ---- the start of connections

void Connections::Listen(Program& program) {
  Random& random = world_.random();
  if (ids_.size() >= kMaxIds) return;
  const uint32_t kind = random.Below(4);
  CmId* id = kind == 0   ? NewId(program, RDMA_PS_UDP, IBV_QPT_UD)
             : kind == 1 ? NewId(program, RDMA_PS_IB, IBV_QPT_UC)
                         : NewId(program, RDMA_PS_TCP, IBV_QPT_RC);
  if (id == nullptr) return;
  Machine& machine = program.machine();
  const NetAddress& address = id->ipv6 ? machine.ipv6() : machine.ipv4();
  id->port = static_cast<uint16_t>(kFirstPort + random.Below(kPorts));
  rdma_ucm_bind bind{};
  bind.id = id->handle;
  const bool any = random.Below(3) == 0;
  bind.addr_size = FillAddress(bind.addr, any ? AnyOf(address) : address, id->port);
  rdma_ucm_listen listen{};
  listen.id = id->handle;
  listen.backlog = random.Below(2) == 0 ? 0 : 1 + random.Below(4);
  // Another id may have the port.
  if (Call(*id, RDMA_USER_CM_CMD_BIND, bind) != 0) return Destroy(*id);
  checker_.Called(id->number, CmCallKind::kListen);
  if (Call(*id, RDMA_USER_CM_CMD_LISTEN, listen) != 0) return Destroy(*id);
  id->listens = true;
  world_.tally().Count("cm.listen");
  Say(*id, "listens at port " + std::to_string(id->port));
}

void Connections::BeginConnect(Program& program) {
  Random& random = world_.random();
  if (ids_.size() >= kMaxIds) return;
  std::vector<CmId*> listeners;
  for (const auto& id : ids_) {
    if (id->listens && !id->ended) listeners.push_back(id.get());
  }
  CmId* id = nullptr;
  Machine* machine = world_.machines()[random.Below(world_.plan().machines)].get();
  uint16_t port = static_cast<uint16_t>(kFirstPort + random.Below(kPorts));
  if (!listeners.empty() && random.Below(8) != 0) {
    const CmId& to = *listeners[random.Below(static_cast<uint32_t>(listeners.size()))];
    id = NewId(program, to.port_space, to.type);
    if (id == nullptr) return;
    id->ipv6 = to.ipv6;
    machine = &to.program->machine();
    port = to.port;
  } else {
    id = NewId(program, RDMA_PS_TCP, IBV_QPT_RC);
    if (id == nullptr) return;
  }
  const NetAddress& address = id->ipv6 ? machine->ipv6() : machine->ipv4();
  rdma_ucm_resolve_addr resolve{};
  resolve.id = id->handle;
  resolve.timeout_ms = 2000;
  resolve.dst_size = FillAddress(resolve.dst_addr, address, port);
  checker_.Called(id->number, CmCallKind::kResolveAddress);
  Say(*id, "looks for " + machine->name() + " port " + std::to_string(port));
  if (Call(*id, RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve) != 0) {
    world_.verdict().Complain("cm", NameOf(*id) + " cannot resolve an address of the network");
  }
}

// The other side keeps the old connection, as after a crash that it has not detected.
void Connections::ConnectAgain(CmId& id) {
  if (id.endpoint == nullptr || id.type != IBV_QPT_RC || ids_.size() >= kMaxIds) return;
  CmId* again = NewId(*id.program, id.port_space, id.type);
  if (again == nullptr) return;
  CmId* to = nullptr;
  for (const auto& other : ids_) {
    if (other->listens && !other->ended && other->type == IBV_QPT_RC &&
        &other->program->machine() == &id.partner->program->machine()) {
      to = other.get();
    }
  }
  if (to == nullptr) return Destroy(*again);
  again->lent_qpn = id.endpoint->qpn;
  again->ipv6 = to->ipv6;
  checker_.MayBeStale(id.number);
  checker_.MayBeStale(again->number);
  const NetAddress& address =
      again->ipv6 ? to->program->machine().ipv6() : to->program->machine().ipv4();
  rdma_ucm_resolve_addr resolve{};
  resolve.id = again->handle;
  resolve.timeout_ms = 2000;
  resolve.dst_size = FillAddress(resolve.dst_addr, address, to->port);
  checker_.Called(again->number, CmCallKind::kResolveAddress);
  world_.tally().Count("cm.qp_number_used_again");
  Say(*again, "will name the QP of " + NameOf(id));
  (void)Call(*again, RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve);
}

// ---- queue pairs

Endpoint* Connections::MakeEndpoint(CmId& id) {
  if (traffic_.endpoints().size() >= 60) return nullptr;
  Endpoint* endpoint = traffic_.Create(*id.program, id.type, false);
  if (endpoint == nullptr) return nullptr;
  id.endpoint = endpoint;
  // Refused when the other side has aborted the connection meanwhile.
  if (!MoveTo(id, IBV_QPS_INIT)) return nullptr;
  traffic_.PostReceives(*endpoint, world_.random().Below(10));
  return endpoint;
}

bool Connections::MoveTo(CmId& id, ibv_qp_state state) {
  rdma_ucm_init_qp_attr command{};
  command.id = id.handle;
  command.qp_state = state;
  ib_uverbs_qp_attr said{};
  const uint32_t channel = ChannelsOf(*id.program)[id.channel].handle;
  if (id.program->process().Cm(channel, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, said) != 0) {
    return false;
  }
  ibv_qp_attr attr = ToUserQpAttr(said);
  attr.qp_state = state;
  Endpoint& endpoint = *id.endpoint;
  if (state == IBV_QPS_INIT) endpoint.rights = attr.qp_access_flags;
  if (state == IBV_QPS_RTS) {
    endpoint.link.timeout = attr.timeout;
    endpoint.link.retry_count = attr.retry_cnt;
    endpoint.link.rnr_retry = attr.rnr_retry;
    endpoint.link.reads = attr.max_rd_atomic;
    endpoint.link.ipv6 = id.ipv6;
  }
  const bool moved = traffic_.Modify(endpoint, ToUserQpAttrMask(said.qp_attr_mask), attr) == 0;
  if (moved) endpoint.in_reset = false;
  return moved;
}

void Connections::FillParameters(CmId& id, rdma_ucm_conn_param& out, std::vector<uint8_t>& said,
                                 size_t most_private_data) {
  Random& random = world_.random();
  out.valid = 1;
  out.qp_num = id.endpoint != nullptr ? id.endpoint->qpn : id.lent_qpn;
  out.responder_resources = out.initiator_depth = static_cast<uint8_t>(1 + random.Below(16));
  if (id.passive) {
    out.responder_resources = id.responder_resources;
    out.initiator_depth = id.initiator_depth;
  }
  out.retry_count = static_cast<uint8_t>(random.Below(8));
  out.rnr_retry_count = static_cast<uint8_t>(random.Below(2) == 0 ? 7 : random.Below(7));
  said.resize(sizeof id.number +
              random.Below(static_cast<uint32_t>(most_private_data) - sizeof id.number + 1));
  for (uint8_t& byte : said) byte = static_cast<uint8_t>(1 + random.Below(255));
  std::memcpy(said.data(), &id.number, sizeof id.number);
  std::copy(said.begin(), said.end(), out.private_data);
  out.private_data_len = static_cast<uint8_t>(said.size());
}

// ---- the active side

void Connections::Connect(CmId& id) {
  if (id.lent_qpn == 0 && MakeEndpoint(id) == nullptr) return Destroy(id);
  rdma_ucm_connect command{};
  command.id = id.handle;
  std::vector<uint8_t> said;
  const bool datagram = id.type == IBV_QPT_UD;
  FillParameters(id, command.conn_param, said, datagram ? kMostInDatagramRequest : kMostInRequest);
  checker_.Called(id.number, CmCallKind::kConnect, said);
  world_.tally().Count(datagram                ? "cm.connect.UD"
                       : id.type == IBV_QPT_UC ? "cm.connect.UC"
                                               : "cm.connect.RC");
  Say(id, "connects");
  if (Call(id, RDMA_USER_CM_CMD_CONNECT, command) != 0) {
    world_.verdict().Complain("cm", NameOf(id) + " is refused its connect");
  }
}

void Connections::Establish(CmId& id) {
  if (id.endpoint != nullptr && id.endpoint->stage == Stage::kMade) {
    if (!MoveTo(id, IBV_QPS_INIT) || !MoveTo(id, IBV_QPS_RTR) || !MoveTo(id, IBV_QPS_RTS)) {
      // The other side may have aborted the connection meanwhile.
      return Reject(id);
    }
    if (id.partner != nullptr && id.partner->endpoint != nullptr) {
      id.endpoint->peer = id.partner->endpoint;
      id.endpoint->stage = Stage::kReady;
      if (id.endpoint->peer->stage == Stage::kGone) id.endpoint->disturbed = true;
    }
  } else if (id.lent_qpn == 0) {
    return Reject(id);  // its QP was destroyed
  }
  checker_.Called(id.number, CmCallKind::kEstablish);
  rdma_ucm_accept command{};
  command.id = id.handle;
  command.uid = id.number;
  if (Call(id, RDMA_USER_CM_CMD_ACCEPT, command) == 0) {
    world_.tally().Count("cm.established");
    Say(id, "is ready");
  }
}

// ---- the passive side

void Connections::Requested(Program& program, const rdma_ucm_event_resp& event, CmId& listener) {
  const bool datagram = listener.type == IBV_QPT_UD;
  const uint8_t* bytes = datagram ? event.param.ud.private_data : event.param.conn.private_data;
  const size_t length =
      datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  auto made = std::make_unique<CmId>();
  CmId& id = *made;
  ids_.push_back(std::move(made));
  id.number = static_cast<uint32_t>(ids_.size());
  id.program = &program;
  id.handle = event.id;
  id.channel = listener.channel;
  id.port_space = listener.port_space;
  id.type = listener.type;
  id.ipv6 = listener.ipv6;
  id.passive = true;
  if (!datagram) {
    id.responder_resources = event.param.conn.responder_resources;
    id.initiator_depth = event.param.conn.initiator_depth;
  }
  by_handle_[{&program, id.handle}] = &id;
  uint32_t active = 0;
  if (length >= sizeof active) std::memcpy(&active, bytes, sizeof active);
  checker_.Requested(listener.number, id.number, NameOf(id), active, {bytes, length});
  world_.tally().Count("cm.event.RDMA_CM_EVENT_CONNECT_REQUEST");
  if (active == 0 || active >= ids_.size()) return;
  id.partner = ids_[active - 1].get();
  id.lent_qpn = id.partner->lent_qpn != 0 ? 1 : 0;
  Random& random = world_.random();
  // Most programs answer soon. Some answer so late that the active side repeats its request.
  const uint32_t most = calm_ ? 1'000'000 : random.Below(8) == 0 ? UINT32_MAX : 2'000'000;
  const int64_t times = most == UINT32_MAX ? 5 : 1;
  world_.After(times * Duration(random.Below(most)), [this, &id] { AnswerRequest(id); });
}

void Connections::AnswerRequest(CmId& id) {
  if (id.ended || !id.program->Lives()) return;
  if (!id.program->Runs()) {
    world_.After(std::chrono::milliseconds(1), [this, &id] { AnswerRequest(id); });
    return;
  }
  switch (world_.random().Below(8)) {
    case 0:
      return Reject(id);
    case 1:
      return Destroy(id);
    default:
      return Accept(id);
  }
}

void Connections::Accept(CmId& id) {
  const bool datagram = id.type == IBV_QPT_UD;
  if (id.lent_qpn == 0) {
    if (MakeEndpoint(id) == nullptr) return Reject(id);
    if (!datagram) {
      // Refused when the other side has aborted the connection meanwhile.
      if (!MoveTo(id, IBV_QPS_INIT) || !MoveTo(id, IBV_QPS_RTR) || !MoveTo(id, IBV_QPS_RTS)) {
        return Reject(id);
      }
      Endpoint* other = id.partner->endpoint;
      id.endpoint->peer = other;
      if (other != nullptr && other->stage == Stage::kMade && other->peer == nullptr) {
        other->peer = id.endpoint;
      } else {
        id.endpoint->disturbed = true;
      }
    }
  }
  rdma_ucm_accept command{};
  command.id = id.handle;
  command.uid = id.number;
  std::vector<uint8_t> said;
  FillParameters(id, command.conn_param, said, datagram ? kMostInDatagramReply : kMostInReply);
  checker_.Called(id.number, CmCallKind::kAccept, said);
  world_.tally().Count("cm.accept");
  Say(id, "accepts");
  if (Call(id, RDMA_USER_CM_CMD_ACCEPT, command) != 0) {
    // As above: the other side has aborted the connection.
    checker_.Called(id.number, CmCallKind::kReject);
    Destroy(id);
  }
}

void Connections::Reject(CmId& id) {
  rdma_ucm_reject command{};
  command.id = id.handle;
  std::vector<uint8_t> said(world_.random().Below(
      static_cast<uint32_t>((id.type == IBV_QPT_UD ? kMostInDatagramReply : kMostInReject) + 1)));
  for (uint8_t& byte : said) byte = static_cast<uint8_t>(1 + world_.random().Below(255));
  std::copy(said.begin(), said.end(), command.private_data);
  command.private_data_len = static_cast<uint8_t>(said.size());
  checker_.Called(id.number, CmCallKind::kReject, said);
  world_.tally().Count("cm.reject");
  Say(id, "rejects");
  (void)Call(id, RDMA_USER_CM_CMD_REJECT, command);
  Destroy(id);
}

void Connections::Disconnect(CmId& id) {
  if (id.endpoint != nullptr && id.endpoint->stage == Stage::kReady) {
    traffic_.ToError(*id.endpoint);
  }
  rdma_ucm_disconnect command{};
  command.id = id.handle;
  checker_.Called(id.number, CmCallKind::kDisconnect);
  world_.tally().Count("cm.disconnect");
  Say(id, "disconnects");
  (void)Call(id, RDMA_USER_CM_CMD_DISCONNECT, command);
}

// ---- the end of connections

void Connections::Abandon(Program& program) {
  channels_.erase(&program);
  for (const auto& id : ids_) {
    if (id->program != &program || id->ended) continue;
    id->ended = true;
    checker_.Called(id->number, CmCallKind::kDestroy);
  }
}

void Connections::Disturb(Machine&) {
  for (const auto& id : ids_) checker_.Disturbed(id->number);
}

bool Connections::IsWaiting() const {
  return std::ranges::any_of(ids_, [this](const auto& id) {
    return !id->ended && id->program->Runs() && checker_.IsWaiting(id->number);
  });
}

// Sixteen sends, each of which an MRA may extend to its service timeout (IBTA 12.9.8.7). They count
// once for the request, once for the reply and once for the disconnect.
Duration Connections::Bound() const {
  constexpr auto kSend = std::chrono::milliseconds(6144);
  constexpr auto kMra = std::chrono::milliseconds(65536 + 4096);
  return 3 * 16 * (kSend + kMra);
}

}  // namespace rdmaemu::sim
