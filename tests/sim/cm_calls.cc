#include "tests/sim/cm_calls.h"

#include <algorithm>

#include "tests/sim/private_data.h"
#include "tests/sim/socket_addresses.h"

namespace rdmaemu::sim {
namespace {

constexpr uint16_t kFirstPort = 7000, kPorts = 3;
constexpr size_t kMostInAll = 255;  // the largest value of private_data_len

const NetAddress& AnyAddress(const Machine& machine, bool ipv6, Random& random) {
  if (ipv6) return machine.ipv6();
  return random.Below(3) == 0 ? machine.second_ipv4() : machine.ipv4();
}

}  // namespace

std::string CmCalls::NameOf(const Id& id) {
  return id.caller->name + " id " + std::to_string(id.handle) + " (#" + std::to_string(id.number) +
         ")";
}

void CmCalls::Say(const Id& id, const std::string& what) {
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), id.caller->name, NameOf(id) + " " + what);
  }
}

// ---- programs

void CmCalls::StartCaller(Machine& machine) {
  if (callers_.size() >= kMaxCallers) return;
  Caller& caller = callers_.emplace_back();
  caller.number = static_cast<uint32_t>(callers_.size());
  caller.machine = &machine;
  caller.name = machine.name() + "." + std::to_string(callers_.size());
  caller.memory.resize(1);
  const uint64_t base = 0x100000000ull * callers_.size();
  caller.process = std::make_unique<Process>(world_, machine, caller.name, base, caller.memory,
                                             [](uint64_t, uint64_t) {});
  for (Channel& channel : caller.channels) {
    CmChannelOut made{};
    if (caller.process->Call(CallOp::kCmCreateChannel, Nothing{}, made) != 0) {
      world_.verdict().Complain("cm", caller.name + " gets no event channel");
    }
    channel = {made.channel, caller.process->TakeCounter().value_or(CounterId{})};
  }
  MachineDevices& devices = devices_.try_emplace(&machine, machine).first->second;
  if (devices.life() != machine.life()) devices.Start(*caller.process, device_numbers_);
}

void CmCalls::End(Id& id) {
  id.ended = true;
  id.listens = false;
  causes_.Called(id.number, CmCallKind::kDestroy);
  groups_.IdGone(id.number);
}

void CmCalls::KillOne() {
  Caller& caller = callers_[world_.random().Below(static_cast<uint32_t>(callers_.size()))];
  if (!caller.process->Runs()) return;
  world_.tally().Count("fault.kill");
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), caller.name, "is killed");
  }
  caller.process->Kill();
  for (Id& id : ids_) {
    if (id.caller != &caller || id.ended) continue;
    End(id);
    model_.Lost(id.number);
  }
  StartCaller(*caller.machine);
}

void CmCalls::Crashed(Machine& machine) {
  for (Id& id : ids_) {
    if (id.caller->machine != &machine || id.ended) continue;
    End(id);
    model_.Lost(id.number);
  }
}

void CmCalls::EndAll() {
  const bool orderly = world_.random().Below(2) == 0;
  for (Id& id : ids_) {
    if (orderly && !id.ended && id.caller->process->Runs()) Destroy(id);
  }
  if (orderly) {
    // Destroying the listeners has destroyed their pending requests.
    for (const auto& machine : world_.machines()) world_.ExpectNone(*machine, {"ids"});
    world_.tally().Count("end.orderly");
  }
  for (Caller& caller : callers_) caller.process->Kill();
}

// ---- the programs' calls

CmCalls::Id& CmCalls::Remember(Caller& caller, uint32_t handle, uint32_t channel,
                               uint16_t port_space, bool datagram) {
  Id& id = ids_.emplace_back();
  id.number = static_cast<uint32_t>(ids_.size());
  id.caller = &caller;
  id.handle = handle;
  id.channel = channel;
  id.port_space = port_space;
  id.datagram = datagram;
  DrawQpn(id);
  return id;
}

// The ids here have no queue pairs, only QP numbers. Sometimes an id uses the number of another id
// of its machine. The CM may then take its connection for stale, or end the other connection.
void CmCalls::DrawQpn(Id& id) {
  Random& random = world_.random();
  id.qpn = 0x10000 + id.number;
  if (id.number == 1 || random.Below(12) != 0) return;
  const uint32_t again = ids_[random.Below(id.number - 1)].qpn;
  bool same_machine = false;
  for (const Id& other : ids_) {
    if (other.qpn != again || other.caller->machine != id.caller->machine) continue;
    causes_.MayBeStale(other.number);
    same_machine = true;
  }
  if (!same_machine) return;
  id.qpn = again;
  world_.tally().Count("api.qp_number_used_again");
}

CmCalls::Id* CmCalls::NewId(Caller& caller) {
  Random& random = world_.random();
  if (ids_.size() >= kMaxIds) return nullptr;
  static constexpr std::pair<uint16_t, ibv_qp_type> kKinds[] = {{RDMA_PS_TCP, IBV_QPT_RC},
                                                                {RDMA_PS_TCP, IBV_QPT_RC},
                                                                {RDMA_PS_UDP, IBV_QPT_UD},
                                                                {RDMA_PS_IB, IBV_QPT_UC}};
  auto [port_space, type] = kKinds[random.Below(std::size(kKinds))];
  const Id* to = random.Below(8) == 0 ? nullptr : Any([](const Id& id) { return id.listens; });
  const bool will_listen = random.Below(to == nullptr ? 2 : 8) == 0;
  if (to != nullptr && !will_listen) {
    port_space = to->port_space;
    type = to->datagram ? IBV_QPT_UD : to->port_space == RDMA_PS_IB ? IBV_QPT_UC : IBV_QPT_RC;
  }
  const uint32_t channel = random.Below(kChannels);
  rdma_ucm_create_id create{};
  create.uid = ids_.size() + 1;
  create.ps = port_space;
  create.qp_type = static_cast<uint8_t>(type);
  rdma_ucm_create_id_resp made{};
  if (caller.process->Cm(caller.channels[channel].handle, RDMA_USER_CM_CMD_CREATE_ID, create,
                         made) != 0) {
    world_.verdict().Complain("cm", caller.name + " gets no id");
    return nullptr;
  }
  Id& id = Remember(caller, made.id, channel, port_space, type == IBV_QPT_UD);
  id.ipv6 = to != nullptr ? to->ipv6 : random.Below(4) == 0;
  id.to = to;
  id.next = will_listen ? CmApi::kBind : CmApi::kResolveAddress;
  model_.Created(id.number, NameOf(id), id.datagram);
  causes_.Created(id.number, NameOf(id), id.datagram);
  // The passive side may leave a request without an answer.
  causes_.Disturbed(id.number);
  if (id.qpn != 0x10000 + id.number) causes_.MayBeStale(id.number);
  return &id;
}

CmCalls::Id* CmCalls::Any(bool (*fits)(const Id&)) {
  std::vector<Id*> found;
  for (Id& id : ids_) {
    if (fits(id) && id.caller->process->Runs()) found.push_back(&id);
  }
  return found.empty() ? nullptr
                       : found[world_.random().Below(static_cast<uint32_t>(found.size()))];
}

void CmCalls::Step() {
  Random& random = world_.random();
  Caller& caller = callers_[random.Below(static_cast<uint32_t>(callers_.size()))];
  if (!caller.process->Runs()) return;
  const uint32_t what = random.Below(100);
  if (what < 20) {
    NewId(caller);
  } else if (what < 30) {
    Drain(caller);
  } else if (what < 32) {
    if (Id* id = Any([](const Id& any) { return any.ended; })) Call(*id, AnyCall());
  } else if (what < 34) {
    LeaveGroup();
  } else {
    const bool sensible = what < 80;
    Id* id = sensible ? Any([](const Id& any) { return !any.ended && any.next != CmApi::kQuery; })
                      : nullptr;
    if (id == nullptr) id = Any([](const Id& any) { return !any.ended; });
    if (id == nullptr) return;
    if (!sensible) return Call(*id, AnyCall());
    Drain(*id->caller);  // the event may change the next call
    Call(*id, id->next);
  }
}

CmApi CmCalls::AnyCall() {
  return static_cast<CmApi>(world_.random().Below(static_cast<uint32_t>(CmApi::kDestroy) + 1));
}

void CmCalls::Call(Id& id, CmApi call) {
  switch (call) {
    case CmApi::kBind:
      return Bind(id);
    case CmApi::kResolveAddress:
      return ResolveAddress(id);
    case CmApi::kResolveRoute:
      Do(id, call, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id.handle, 2000});
      return;
    case CmApi::kListen: {
      const uint32_t backlog = world_.random().Below(3);
      if (Do(id, call, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id.handle, backlog}) == 0) {
        id.backlog = backlog;
      }
      return;
    }
    case CmApi::kConnect:
      return Connect(id);
    case CmApi::kAccept:
      return Accept(id);
    case CmApi::kEstablish: {
      rdma_ucm_accept command{};
      command.id = id.handle;
      Do(id, call, RDMA_USER_CM_CMD_ACCEPT, command);
      return;
    }
    case CmApi::kReject:
      return Reject(id);
    case CmApi::kDisconnect:
      Do(id, call, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id.handle});
      return;
    case CmApi::kNotify:
      Do(id, call, RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id.handle, IBV_EVENT_COMM_EST});
      return;
    case CmApi::kSetTypeOfService:
    case CmApi::kSetReuseAddress:
    case CmApi::kSetAfOnly:
    case CmApi::kSetAckTimeout:
      return SetOption(id, call);
    case CmApi::kSetPath:
      return SetPath(id);
    case CmApi::kInitQpAttr:
    case CmApi::kReadyQpAttr:
      return InitQpAttr(id, call);
    case CmApi::kJoin:
      return JoinGroup(id);
    case CmApi::kMigrate:
      return Migrate(id);
    case CmApi::kQuery:
      return Query(id);
    case CmApi::kDestroy:
      return Destroy(id);
  }
}

void CmCalls::Judge(Id& id, CmApi call, int error, bool well_formed, int due) {
  const std::string name = sim::NameOf(call);
  world_.tally().Count("api." + name + (error == 0 ? ".works" : ".refused"));
  Say(id, name + (error == 0 ? "" : ": errno " + std::to_string(error)));
  if (causes_.CouldBeStale(id.number)) model_.MayBeStale(id.number);
  const bool taken_back = model_.Answered(id.number, call, error, well_formed, due);
  if (error != 0) {
    if (taken_back) causes_.Called(id.number, CmCallKind::kReject);
    return;
  }
  switch (call) {
    case CmApi::kBind:
      id.next = CmApi::kListen;
      return;
    case CmApi::kResolveAddress:
      return causes_.Called(id.number, CmCallKind::kResolveAddress);
    case CmApi::kResolveRoute:
    case CmApi::kSetPath:
      return causes_.Called(id.number, CmCallKind::kResolveRoute);
    case CmApi::kListen:
      id.next = CmApi::kQuery;
      id.listens = true;
      return causes_.Called(id.number, CmCallKind::kListen);
    case CmApi::kEstablish:
      id.next = CmApi::kDisconnect;
      return causes_.Called(id.number, id.datagram ? CmCallKind::kAccept : CmCallKind::kEstablish);
    case CmApi::kDisconnect:
      return causes_.Called(id.number, CmCallKind::kDisconnect);
    case CmApi::kNotify:
      return causes_.Called(id.number, CmCallKind::kNotify);
    default:
      return;
  }
}

void CmCalls::Bind(Id& id) {
  Random& random = world_.random();
  const Machine& machine = *id.caller->machine;
  const NetAddress& own = AnyAddress(machine, id.ipv6, random);
  const bool wildcard = random.Below(3) == 0;
  rdma_ucm_bind bind{};
  bind.id = id.handle;
  const auto port = static_cast<uint16_t>(kFirstPort + random.Below(kPorts));
  bind.addr_size = FillAddress(bind.addr, wildcard ? AnyOf(own) : own, port);
  const uint32_t device = DevicesOf(id).DeviceOf(own);
  const int due = wildcard || device != 0 ? 0 : DevicesOf(id).Has(own) ? ENODEV : EADDRNOTAVAIL;
  if (Do(id, CmApi::kBind, RDMA_USER_CM_CMD_BIND, bind, true, due) != 0) return;
  id.port = port;
  if (wildcard) return;
  id.local = own;
  model_.Attached(id.number, device);
}

void CmCalls::ResolveAddress(Id& id) {
  Random& random = world_.random();
  const Machine& to = id.to != nullptr ? *id.to->caller->machine
                                       : *world_.machines()[random.Below(world_.plan().machines)];
  const auto port =
      id.to != nullptr ? id.to->port : static_cast<uint16_t>(kFirstPort + random.Below(kPorts));
  rdma_ucm_resolve_addr resolve{};
  resolve.id = id.handle;
  resolve.timeout_ms = 2000;
  const NetAddress destination =
      id.to != nullptr && id.to->local ? *id.to->local : AnyAddress(to, id.ipv6, random);
  resolve.dst_size = FillAddress(resolve.dst_addr, destination, port);
  const bool has_device = model_.DeviceOf(id.number) != 0;
  const std::optional<NetAddress> source =
      DevicesOf(id).SourceFor(destination, has_device ? id.local : std::nullopt);
  if (Do(id, CmApi::kResolveAddress, RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve, true,
         source ? 0 : ENETUNREACH) != 0) {
    return;
  }
  id.destination = destination;
  if (model_.DeviceOf(id.number) != 0 || !source) return;
  const uint32_t device = DevicesOf(id).DeviceOf(*source);
  if (device == 0) return model_.ExpectAddressError(id.number);
  id.local = source;
  model_.Attached(id.number, device);
}

// Returns false when the private data is larger than the message allows.
bool CmCalls::FillParameters(Id& id, rdma_ucm_conn_param& out, std::vector<uint8_t>& said,
                             size_t most) {
  Random& random = world_.random();
  const bool too_much = random.Below(16) == 0;
  const size_t least = too_much ? most + 1 : sizeof id.number;
  const size_t length =
      least + random.Below(static_cast<uint32_t>((too_much ? kMostInAll : most) - least + 1));
  said.resize(length);
  for (uint8_t& byte : said) byte = static_cast<uint8_t>(1 + random.Below(255));
  std::memcpy(said.data(), &id.number, sizeof id.number);
  out.valid = 1;
  out.qp_num = id.qpn;
  out.responder_resources = static_cast<uint8_t>(random.Below(16));
  out.initiator_depth = static_cast<uint8_t>(random.Below(16));
  std::ranges::copy(said, out.private_data);
  out.private_data_len = static_cast<uint8_t>(length);
  return !too_much;
}

void CmCalls::Connect(Id& id) {
  rdma_ucm_connect command{};
  command.id = id.handle;
  std::vector<uint8_t> said;
  const bool fits = FillParameters(id, command.conn_param, said,
                                   id.datagram ? kMostInDatagramRequest : kMostInRequest);
  if (Do(id, CmApi::kConnect, RDMA_USER_CM_CMD_CONNECT, command, fits) == 0) {
    causes_.Called(id.number, CmCallKind::kConnect, said);
    id.next = CmApi::kQuery;
  }
}

void CmCalls::Accept(Id& id) {
  rdma_ucm_accept command{};
  command.id = id.handle;
  command.uid = id.number;
  std::vector<uint8_t> said;
  const bool fits = FillParameters(id, command.conn_param, said,
                                   id.datagram ? kMostInDatagramReply : kMostInReply);
  if (Do(id, CmApi::kAccept, RDMA_USER_CM_CMD_ACCEPT, command, fits) == 0) {
    causes_.Called(id.number, CmCallKind::kAccept, said);
    id.next = world_.random().Below(8) == 0 ? CmApi::kNotify : CmApi::kQuery;
  }
}

void CmCalls::Reject(Id& id) {
  Random& random = world_.random();
  const size_t most = id.datagram ? kMostInDatagramReply : kMostInReject;
  const bool fits = random.Below(16) != 0;
  std::vector<uint8_t> said(fits ? random.Below(static_cast<uint32_t>(most) + 1)
                                 : most + 1 + random.Below(8));
  for (uint8_t& byte : said) byte = static_cast<uint8_t>(1 + random.Below(255));
  rdma_ucm_reject command{};
  command.id = id.handle;
  std::ranges::copy(said, command.private_data);
  command.private_data_len = static_cast<uint8_t>(said.size());
  if (Do(id, CmApi::kReject, RDMA_USER_CM_CMD_REJECT, command, fits) == 0) {
    causes_.Called(id.number, CmCallKind::kReject, said);
    id.next = CmApi::kDestroy;
  }
}

// ---- calls that are allowed in every place; events may be queued meanwhile

void CmCalls::Migrate(Id& id) {
  const uint32_t to = (id.channel + 1) % kChannels;
  rdma_ucm_migrate_id command{};
  command.id = id.handle;
  command.fd = id.caller->channels[to].handle;
  rdma_ucm_migrate_resp answer{};
  const int error = id.caller->process->Cm(id.caller->channels[id.channel].handle,
                                           RDMA_USER_CM_CMD_MIGRATE_ID, command, answer);
  Judge(id, CmApi::kMigrate, error, true);
  if (error != 0) return;
  id.channel = to;
  if (answer.events_reported != model_.EventsOf(id.number)) {
    world_.verdict().Complain(
        "cm", NameOf(id) + ": it has had " + std::to_string(model_.EventsOf(id.number)) +
                  " events, and its migration says " + std::to_string(answer.events_reported));
  }
}

void CmCalls::Query(Id& id) {
  rdma_ucm_query command{};
  command.id = id.handle;
  command.option = RDMA_USER_CM_QUERY_ADDR;
  rdma_ucm_query_addr_resp answer{};
  const int error = Ask(id, CmApi::kQuery, RDMA_USER_CM_CMD_QUERY, command, answer);
  Process& process = *id.caller->process;
  const uint32_t device = answer.node_guid == 0 ? 0 : DevicesOf(id).NumberOf(answer.ibdev_index);
  if (error == 0 && device != model_.DeviceOf(id.number)) {
    world_.verdict().Complain("cm", NameOf(id) + " is of another device than its address");
  }
  // A query works only on the id's own channel.
  const int elsewhere = process.Cm(id.caller->channels[(id.channel + 1) % kChannels].handle,
                                   RDMA_USER_CM_CMD_QUERY, command, answer);
  if (elsewhere != (id.ended ? ENOENT : EINVAL)) {
    world_.verdict().Complain("cm", NameOf(id) + " answers errno " + std::to_string(elsewhere) +
                                        " on a channel that is not its own");
  }
}

void CmCalls::Destroy(Id& id) {
  rdma_ucm_destroy_id command{};
  command.id = id.handle;
  rdma_ucm_destroy_id_resp answer{};
  const int error = id.caller->process->Cm(id.caller->channels[id.channel].handle,
                                           RDMA_USER_CM_CMD_DESTROY_ID, command, answer);
  Judge(id, CmApi::kDestroy, error, true);
  if (error != 0) return;
  End(id);
  if (answer.events_reported != model_.EventsOf(id.number)) {
    world_.verdict().Complain(
        "cm", NameOf(id) + ": it has had " + std::to_string(model_.EventsOf(id.number)) +
                  " events, and its end says " + std::to_string(answer.events_reported));
  }
}

}  // namespace rdmaemu::sim
