#include "emulator/host/testing/world.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "emulator/abi/process_page.h"
#include "emulator/abi/slab.h"

namespace rdmaemu::testing {
// A host's interface to the world's network.
class World::Port final : public Network {
 public:
  explicit Port(World& world) : world_(world) {}
  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t, size_t bytes) override {
    if (world_.in_flight_.size() >= world_.network_room) return {};
    pending_ = {flow, std::vector<std::byte>(bytes)};
    return pending_.bytes;
  }
  void Commit() override { world_.in_flight_.push_back(std::move(pending_)); }
  Status Open(const HostAddress& address) override {
    if (world_.taken_addresses.contains(address.address)) return Fail(EADDRINUSE);
    addresses.insert(address.address);
    return {};
  }
  void Close(const NetAddress& address) override {
    addresses.erase(NetAddress(address));
    if (world_.on_close) world_.on_close(address);
  }
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override {
    world_.joined_groups.insert({local, group});
    return {};
  }
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override {
    world_.joined_groups.erase({local, group});
  }

  std::set<NetAddress> addresses;  // addresses that deliver datagrams to the host

 private:
  World& world_;
  Datagram pending_;
};

struct World::Node {
  Node(World& world, const HostConfig& config)
      : port(world),
        host(config, {world.memory, world.segments, world.counters, port, world.trace}) {
    for (const DeviceConfig& device : config.devices) {
      for (const HostAddress& own : device.addresses) port.addresses.insert(own.address);
    }
  }
  Port port;
  Host host;
};

World::World() = default;
World::~World() = default;

Host& World::AddHost(const std::string& name, const std::string& address, const Profile& profile,
                     uint64_t seed) {
  HostConfig config;
  config.name = name;
  config.seed = seed != 0 ? seed : nodes_.size() + 1;
  HostAddress own;
  own.address = *NetAddress::Parse(address);
  config.devices.push_back({"rxe0", profile, {own}});
  return AddHost(std::move(config));
}

Host& World::AddHost(HostConfig config) {
  nodes_.push_back(std::make_unique<Node>(*this, config));
  return nodes_.back()->host;
}

bool World::Step() {
  bool found = false;
  for (const auto& node : nodes_) {
    found |= node->host.PollDoorbells(now);
    found |= node->host.Work(now);
  }
  while (!in_flight_.empty()) {
    found = true;
    const Datagram datagram = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (filter_ && !filter_(datagram)) continue;
    for (const auto& node : nodes_) {
      const NetAddress& to = datagram.flow.destination;
      const std::set<NetAddress>& own = node->port.addresses;
      if (own.contains(to)) {
        node->host.Receive(now, datagram.flow, datagram.bytes, &to);
      } else if (to.IsMulticast() && !own.empty()) {
        node->host.Receive(now, datagram.flow, datagram.bytes, &*own.begin());
      }
    }
  }
  return found;
}

bool World::RunUntil(const std::function<bool()>& done, Duration limit) {
  const Time end = now + limit;
  for (;;) {
    Settle();
    if (done()) return true;
    std::optional<Time> next;
    for (const auto& node : nodes_) {
      const std::optional<Time> deadline = node->host.NextDeadline();
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
    if (!next || *next > end) return false;
    now = std::max(now, *next);
    for (const auto& node : nodes_) node->host.Expire(now);
  }
}

Client::Client(World& world, Host& host, const std::string& program)
    : Client(world, host, [&] {
        HelloIn in{};
        in.version = kCallVersion;
        program.copy(in.program, sizeof in.program - 1);
        return in;
      }()) {}

Client::Client(World& world, Host& host, const HelloIn& hello_in)
    : world(world), host(host), process(host.Attach(world.now, {1, "unnamed"})) {
  SayHello(hello_in);
}

void Client::SayHello(const HelloIn& in) {
  if (Call(CallOp::kHello, in, hello) != 0) throw std::runtime_error("Hello was refused");
}

uint32_t Client::CountFork() {
  return ++reinterpret_cast<ProcessPage*>(At(hello.process_page))->forks;
}

std::unique_ptr<Client> Client::Fork() { return Forked(CountFork()); }

std::unique_ptr<Client> Client::Forked(uint32_t fork) {
  HelloIn in{};
  in.version = kCallVersion;
  std::copy(std::begin(hello.group_token), std::end(hello.group_token), in.group_token);
  in.parent = hello.process;
  in.fork = fork;
  return std::unique_ptr<Client>(new Client(world, host, in));
}

void Client::End() {
  world.memory.ended.insert(process);
  host.ProcessEnded(world.now, process);
}

void Client::Kill() {
  world.memory.gone[process] = true;
  host.Detach(world.now, process);
}

Reply Client::CallBytes(uint32_t op, const void* in, size_t bytes, uint32_t caller) {
  std::vector<std::byte> message(sizeof(CallHeader) + bytes);
  const CallHeader header{op, static_cast<uint32_t>(bytes)};
  std::memcpy(message.data(), &header, sizeof header);
  if (bytes != 0) std::memcpy(message.data() + sizeof header, in, bytes);
  return host.Call(world.now, process, message, caller);
}

std::byte* Client::At(const SharedSpan& span) {
  return world.segments.Bytes(SegmentId{span.segment}).subspan(span.offset, span.length).data();
}

Verb::Verb(Client& owner, uint32_t cq_entries, uint32_t device_index) : client(owner) {
  OpenDeviceOut opened{};
  HandleOut made{};
  if (client.Call(CallOp::kOpenDevice, OpenDeviceIn{device_index, 0}, opened) != 0 ||
      client.Call(CallOp::kAllocPd, AllocPdIn{opened.context, 0}, made) != 0 ||
      client.Call(CallOp::kCreateCq, CreateCqIn{opened.context, 0, cq_entries, 0, 77}, cq) != 0) {
    throw std::runtime_error("the device did not open");
  }
  context = opened.context;
  pd = made.handle;
  cq_ring_ = Ring(client.At(cq.queue) + sizeof(CqControl), cq.slots, sizeof(CqEntry));
}

Verb::Qp Verb::CreateQp(ibv_qp_type type, uint32_t depth, uint32_t sges) {
  CreateQpIn in{};
  in.pd = pd;
  in.send_cq = in.recv_cq = cq.handle;
  in.type = type;
  in.cap = {depth, depth, sges, sges, 64};
  Qp qp;
  if (client.Call(CallOp::kCreateQp, in, qp.made) != 0) throw std::runtime_error("no QP");
  qp.send = Ring(client.At(qp.made.send_queue) + sizeof(QpControl), qp.made.send_slots,
                 qp.made.send_slot_bytes);
  qp.recv = Ring(client.At(qp.made.recv_queue), qp.made.recv_slots, qp.made.recv_slot_bytes);
  return qp;
}

int Verb::Modify(const Qp& qp, int mask, const ibv_qp_attr& attr) {
  ModifyQpIn in{};
  in.handle = qp.made.handle;
  in.mask = mask;
  in.attr = attr;
  return client.Call(CallOp::kModifyQp, in);
}

void Verb::ConnectRc(const Qp& qp, const std::string& peer_address, uint32_t peer_qpn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC;
  int failed =
      Modify(qp, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, attr);
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer_qpn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.dgid = NetAddress::Parse(peer_address)->ToGid();
  failed |= Modify(qp,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                   attr);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 5;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  failed |= Modify(qp,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                   attr);
  if (failed != 0) throw std::runtime_error("the QP did not reach RTS");
}

MrOut Verb::Register(void* address, size_t bytes, int access) {
  MrOut out{};
  const auto start = reinterpret_cast<uint64_t>(address);
  if (client.Call(CallOp::kRegMr, RegMrIn{pd, access, start, bytes, start}, out) != 0) {
    throw std::runtime_error("no MR");
  }
  return out;
}

void Verb::PostRecv(Qp& qp, uint64_t wr_id, void* address, uint32_t bytes, uint32_t lkey) {
  auto* wqe = qp.recv.SlotAs<rxe_recv_wqe>(qp.recv.Producer());
  std::memset(static_cast<void*>(wqe), 0, sizeof *wqe);
  wqe->wr_id = wr_id;
  wqe->dma.num_sge = 1;
  wqe->dma.length = wqe->dma.resid = bytes;
  wqe->dma.sge[0] = {reinterpret_cast<uint64_t>(address), bytes, lkey};
  qp.recv.SetProducer(qp.recv.Next(qp.recv.Producer()));
}

void Verb::PostSend(Qp& qp, uint64_t wr_id, ibv_wr_opcode opcode, void* address, uint32_t bytes,
                    uint32_t lkey, const std::function<void(PlainSend&)>& fill) {
  PlainSend send{};
  send.wr.wr_id = wr_id;
  send.wr.opcode = opcode;
  send.wr.send_flags = IBV_SEND_SIGNALED;
  send.num_sge = 1;
  send.length = bytes;
  if (fill) fill(send);
  const rxe_sge sge{reinterpret_cast<uint64_t>(address), bytes, lkey};
  send.WriteTo(qp.send, std::as_bytes(std::span(&sge, 1)));
  qp.send.SetProducer(qp.send.Next(qp.send.Producer()));
  RingDoorbell(*reinterpret_cast<DoorbellPage*>(client.At(client.hello.doorbells)),
               qp.made.doorbell);
}

bool Verb::Poll(ib_uverbs_wc& wc) {
  if (cq_ring_.Empty()) return false;
  const uint32_t at = cq_ring_.Consumer();
  const CqEntry& entry = *cq_ring_.SlotAs<CqEntry>(at);
  wc = entry.wc;
  if (entry.payload == kPayloadWaits) PlacePayload(at);
  cq_ring_.SetConsumer(cq_ring_.Next(cq_ring_.Consumer()));
  return true;
}

// Places a payload as the library does, in accessible memory.
void Verb::PlacePayload(uint32_t index) {
  auto* slots = reinterpret_cast<ReceiveSlot*>(client.At(cq.queue) + sizeof(CqControl) +
                                               SlabOffset(cq.slots, sizeof(CqEntry)));
  ReceiveSlot& slot = slots[index];
  if (!slot.Claim()) return;
  const std::byte* from = slot.payload;
  for (uint32_t i = 0; i < slot.pieces; i++) {
    std::memcpy(reinterpret_cast<void*>(slot.to[i].address), from, slot.to[i].length);
    from += slot.to[i].length;
  }
  slot.SetState(ReceiveSlot::kPlaced);
}

}  // namespace rdmaemu::testing
