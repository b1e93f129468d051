#include "tests/fuzz/scene.h"

#include <sys/mman.h>

#include "emulator/abi/slab.h"
#include "emulator/host/testing/cm_program.h"
#include "emulator/trace/json_lines.h"
#include "emulator/trace/pcapng.h"
#include "emulator/trace/text_timeline.h"

namespace rdmaemu::fuzz {
namespace {

using testing::Client;
using testing::Verb;

constexpr size_t kMostSent = 32;
// A correct host needs far fewer steps for its work at one time. More steps mean an endless loop.
constexpr int kMostSteps = 20000;

std::byte* Memory() {
  static std::byte* const memory = [] {
    void* const at = reinterpret_cast<void*>(kMemoryAt);
    void* const got = mmap(at, kMemoryBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(got == at);
    return static_cast<std::byte*>(got);
  }();
  return memory;
}

ibv_ah_attr AddressVector(const char* destination) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = 1;
  attr.grh.hop_limit = 64;
  attr.grh.dgid = NetAddress::Parse(destination)->ToGid();
  return attr;
}

}  // namespace

wire::TransportClass ClassOf(ibv_qp_type type) {
  return type == IBV_QPT_RC   ? wire::TransportClass::kRc
         : type == IBV_QPT_UC ? wire::TransportClass::kUc
                              : wire::TransportClass::kUd;
}

std::vector<std::byte> Build(wire::PacketHeaders headers, uint32_t payload_bytes, uint8_t fill) {
  headers.pad_bytes = static_cast<uint8_t>(-payload_bytes & 3);
  std::array<std::byte, wire::kMaxHeaderBytes> bytes{};
  const size_t header_bytes = wire::EmitHeaders(headers, bytes);
  std::vector<std::byte> datagram(bytes.begin(), bytes.begin() + header_bytes);
  datagram.resize(header_bytes + payload_bytes + headers.pad_bytes + wire::kIcrcBytes,
                  std::byte{fill});
  return datagram;
}

Scene::Scene() : host(world.AddHost("fuzz", kOwnAddress)) {
  std::memset(Memory(), 0x5a, kMemoryBytes);
  world.memory.holes = {{{0, kMemoryAt}},
                        {{kMemoryAt + kMemoryBytes, UINT64_MAX - kMemoryAt - kMemoryBytes}}};
  world.SetFilter([this](const testing::World::Datagram& datagram) {
    sent.push_back(datagram);
    if (sent.size() > kMostSent) sent.pop_front();
    return false;
  });
}

Scene::~Scene() {
  Deliver();
  WriteTrace();
  for (const auto& client : clients) {
    if (!world.memory.gone[client->process]) client->Kill();
  }
  REQUIRE(host.processes() == 0);
  REQUIRE(world.segments.live_segments() == 0);
  REQUIRE(world.counters.live() == 0);
  Rest();
}

Client& Scene::AddClient() {
  clients.push_back(std::make_unique<Client>(world, host));
  return *clients.back();
}

void Scene::Rest() {
  int steps = 0;
  while (world.Step()) REQUIRE(++steps < kMostSteps);
}

void Scene::Pass(Input& in) {
  const uint8_t kind = in.U8();
  const std::optional<Time> next = host.NextDeadline();
  if (kind < 192) {
    if (next) world.now = std::max(world.now, *next);
  } else {
    world.now += std::chrono::microseconds(uint64_t{1} << kind % 32);
  }
  host.Expire(world.now);
}

void Scene::Receive(const char* source, const char* destination, std::vector<std::byte> datagram,
                    bool sealed) {
  const wire::UdpFlow flow{*NetAddress::Parse(source), *NetAddress::Parse(destination),
                           wire::kRoceUdpPort, wire::kRoceUdpPort};
  if (sealed) wire::SealPacket(flow, datagram);
  if (!holding_) return host.Receive(world.now, flow, datagram);
  held_.push_back({flow, std::move(datagram)});
}

void Scene::Deliver() {
  holding_ = false;
  // A burst has only one flow.
  for (size_t begin = 0, end = 0; begin < held_.size(); begin = end) {
    std::vector<std::span<const std::byte>> burst;
    const auto is_same = [&](const wire::UdpFlow& flow) {
      return flow.source == held_[begin].flow.source &&
             flow.destination == held_[begin].flow.destination;
    };
    for (; end < held_.size() && is_same(held_[end].flow); ++end) burst.push_back(held_[end].bytes);
    host.Receive(world.now, held_[begin].flow, burst);
  }
  held_.clear();
}

void Scene::WriteTrace() {
  std::string out;
  const trace::JsonLines json("fuzz");
  const trace::TextTimeline text("fuzz");
  for (const trace::Record& record : world.trace.records) {
    json.Append(record, out);
    text.Append(record, out);
  }
  const trace::PcapngWriter pcap({}, "fuzz");
  for (const auto& packet : world.trace.packets) {
    pcap.AppendPacket(world.now, {}, packet, out);
  }
}

// ---- data

DataScene::DataScene()
    : client(AddClient()),
      verb(client),
      jobs(reinterpret_cast<DoorbellPage*>(client.At(client.hello.doorbells))->jobs) {
  world.memory.pids[client.process] = 1;
  MakeQueues();
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  regions.push_back(verb.Register(Memory(), kMemoryBytes / 4 * 3, kAll));
  regions.push_back(
      verb.Register(Memory() + kMemoryBytes / 4 * 3, kMemoryBytes / 4, IBV_ACCESS_REMOTE_READ));
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    REQUIRE(client.Call(CallOp::kAllocMw, AllocMwIn{verb.pd, type}, windows.emplace_back()) == 0);
  }
  for (const char* destination : {kPeerAddress, kOwnAddress, kGroupAddress}) {
    MakeAddressHandle(destination);
  }
  Connect(pairs[0], kPeerAddress, kPeerQpn);
  Connect(pairs[1], kPeerAddress, kPeerQpn + 1);
  Connect(pairs[2], kPeerAddress, kPeerQpn + 2);
  ReadyUd(pairs[3]);
  Connect(pairs[4], kOwnAddress, pairs[5].qp.made.qpn);
  Connect(pairs[5], kOwnAddress, pairs[4].qp.made.qpn);
  JoinGroup(pairs[3]);
  StartWork();
}

// Joins as rdma_join_multicast does: the device joins the group, and the queue pair is attached to
// it.
void DataScene::JoinGroup(const ScenePair& pair) {
  testing::CmProgram program(client);
  const uint32_t id = program.CreateId(RDMA_PS_UDP);
  program.Do(RDMA_USER_CM_CMD_BIND_IP,
             rdma_ucm_bind_ip{0, testing::Ipv4Socket(kOwnAddress, 0), id});
  rdma_ucm_join_ip_mcast join{};
  join.id = id;
  join.addr = testing::Ipv4Socket(kGroupAddress, 0);
  program.Do(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join);
  McastIn group{};
  group.qp = pair.qp.made.handle;
  group.gid = NetAddress::Parse(kGroupAddress)->ToGid();
  REQUIRE(client.Call(CallOp::kAttachMcast, group) == 0);
}

void DataScene::MakeQueues() {
  CreateChannelOut channel{};
  REQUIRE(client.Call(CallOp::kCreateChannel, HandleIn{verb.context, 0}, channel) == 0);
  // All pairs but one complete into a queue that raises events.
  CqOut cq{};
  REQUIRE(client.Call(CallOp::kCreateCq, CreateCqIn{verb.context, channel.handle, 31, 0, 78}, cq) ==
          0);
  REQUIRE(client.Call(CallOp::kCreateSrq, CreateSrqIn{verb.pd, 15, 2, 3, 79}, srq) == 0);
  srq_ring = Ring(client.At(srq.queue), srq.slots, srq.slot_bytes);
  for (const CqOut* each : {&verb.cq, &cq}) {
    cq_rings.emplace_back(client.At(each->queue) + sizeof(CqControl), each->slots, sizeof(CqEntry));
  }
  spans = {verb.cq.queue, cq.queue, channel.ring, srq.queue, client.hello.doorbells};
  SharedSpan row = client.hello.doorbells;
  row.offset += offsetof(DoorbellPage, jobs);
  spans.push_back(row);
  std::atomic_ref(jobs.polls).store(1);
  auto* const control = reinterpret_cast<CqControl*>(client.At(cq.queue));
  std::atomic_ref(control->armed).store(kCqArmedAny);
  pairs.push_back(MakePair(IBV_QPT_RC, 0));
  std::swap(verb.cq, cq);
  pairs.push_back(MakePair(IBV_QPT_RC, srq.handle));
  pairs.push_back(MakePair(IBV_QPT_UC, 0));
  pairs.push_back(MakePair(IBV_QPT_UD, 0));
  pairs.push_back(MakePair(IBV_QPT_RC, 0));
  std::swap(verb.cq, cq);
  pairs.push_back(MakePair(IBV_QPT_RC, 0));
}

ScenePair DataScene::MakePair(ibv_qp_type type, uint32_t srq_handle) {
  CreateQpIn in{};
  in.pd = verb.pd;
  in.send_cq = in.recv_cq = verb.cq.handle;
  in.srq = srq_handle;
  in.type = type;
  in.cap = {15, 15, 2, 2, 64};
  ScenePair pair{{}, type};
  CreateQpOut& made = pair.qp.made;
  REQUIRE(client.Call(CallOp::kCreateQp, in, made) == 0);
  pair.qp.send =
      Ring(client.At(made.send_queue) + sizeof(QpControl), made.send_slots, made.send_slot_bytes);
  spans.push_back(made.send_queue);
  if (srq_handle == 0) {
    pair.qp.recv = Ring(client.At(made.recv_queue), made.recv_slots, made.recv_slot_bytes);
    spans.push_back(made.recv_queue);
  }
  return pair;
}

void DataScene::Connect(const ScenePair& pair, const char* destination, uint32_t qpn) {
  const bool rc = pair.type == IBV_QPT_RC;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC;
  REQUIRE(verb.Modify(pair.qp, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                      attr) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qpn;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr = AddressVector(destination);
  REQUIRE(verb.Modify(pair.qp,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
                      attr) == 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 8;
  attr.retry_cnt = 3;
  attr.rnr_retry = 3;
  REQUIRE(verb.Modify(pair.qp,
                      IBV_QP_STATE | IBV_QP_SQ_PSN |
                          (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                    IBV_QP_MAX_QP_RD_ATOMIC
                              : 0),
                      attr) == 0);
}

void DataScene::ReadyUd(const ScenePair& pair) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  REQUIRE(verb.Modify(pair.qp, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
                      attr) == 0);
  attr.qp_state = IBV_QPS_RTR;
  REQUIRE(verb.Modify(pair.qp, IBV_QP_STATE, attr) == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(verb.Modify(pair.qp, IBV_QP_STATE | IBV_QP_SQ_PSN, attr) == 0);
}

void DataScene::MakeAddressHandle(const char* destination) {
  CreateAhIn in{};
  in.pd = verb.pd;
  in.attr = AddressVector(destination);
  HandleOut out{};
  REQUIRE(client.Call(CallOp::kCreateAh, in, out) == 0);
  address_handles.push_back(out.handle);
}

void DataScene::Post(size_t pair, ibv_wr_opcode opcode, uint32_t offset, uint32_t bytes) {
  if (pairs[pair].qp.send.Full()) return;
  verb.PostSend(pairs[pair].qp, opcode, opcode, Memory() + offset, bytes, regions[0].lkey,
                [&](testing::PlainSend& wqe) {
                  const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
                  (atomic ? wqe.wr.wr.atomic.remote_addr : wqe.wr.wr.rdma.remote_addr) =
                      kMemoryAt + 8192;
                  (atomic ? wqe.wr.wr.atomic.rkey : wqe.wr.wr.rdma.rkey) = regions[0].rkey;
                });
}

void DataScene::StartWork() {
  for (ScenePair& pair : pairs) {
    Ring& ring = pair.qp.recv ? pair.qp.recv : srq_ring;
    Verb::Qp into{{}, {}, ring};
    for (uint32_t i = 0; i < 2; ++i) {
      verb.PostRecv(into, i, Memory() + 4096 * i, 4096, regions[0].lkey);
    }
  }
  Post(0, IBV_WR_SEND, 0, 1500);
  Post(0, IBV_WR_RDMA_READ, 4096, 3000);
  Post(0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
  Post(1, IBV_WR_RDMA_WRITE, 0, 100);
  Post(2, IBV_WR_RDMA_WRITE, 0, 2000);
  Post(4, IBV_WR_SEND, 0, 1500);
  Post(4, IBV_WR_RDMA_WRITE, 0, 5000);
  Post(5, IBV_WR_RDMA_READ, 0, 1500);
  world.Step();
}

void DataScene::PostSend(Input& in) {
  ScenePair& pair = in.Pick(pairs);
  if (pair.qp.send.Full()) return;
  const auto opcode = static_cast<ibv_wr_opcode>(in.Below(12));
  const uint32_t offset = in.U16(), bytes = in.OneIn(8) ? in.Edge32() : in.Below(9000);
  const MrOut& local = in.Pick(regions);
  verb.PostSend(
      pair.qp, 1, opcode, Memory() + offset, bytes, local.lkey, [&](testing::PlainSend& wqe) {
        rxe_send_wr& wr = wqe.wr;
        wr.send_flags = in.U8();
        if (pair.type == IBV_QPT_UD) {
          wr.wr.ud.ah_num = in.Pick(address_handles);
          wr.wr.ud.remote_qpn = in.OneIn(4) ? in.Edge32() : pairs[3].qp.made.qpn;
          wr.wr.ud.remote_qkey = kQkey;
        } else if (opcode == IBV_WR_BIND_MW) {
          MwOut& window = in.Pick(windows);
          wr.wr.mw = {kMemoryAt + in.U16(), in.Edge32(),     local.lkey,
                      window.rkey,          window.rkey + 1, in.U8()};
          window.rkey += in.U8() & 1;
        } else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
          wr.wr.atomic.remote_addr = kMemoryAt + in.U16();
          wr.wr.atomic.rkey = in.Pick(regions).rkey;
          wr.wr.atomic.compare_add = in.U8();
        } else {
          wr.wr.rdma.remote_addr = kMemoryAt + in.U16();
          wr.wr.rdma.rkey = in.OneIn(4) ? in.Pick(windows).rkey : in.Pick(regions).rkey;
          if (opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_LOCAL_INV) {
            wr.ex.invalidate_rkey = wr.wr.rdma.rkey;
          }
        }
        if (in.OneIn(8)) wqe.num_sge = in.Edge32();
        if (in.OneIn(4)) wqe.state = kPayloadTaken;
      });
}

void DataScene::PostReceive(Input& in) {
  ScenePair& pair = in.Pick(pairs);
  Ring& ring = pair.qp.recv ? pair.qp.recv : srq_ring;
  if (ring.Full()) return;
  Verb::Qp into{{}, {}, ring};
  const uint32_t offset = in.U16(), bytes = in.OneIn(8) ? in.Edge32() : in.Below(5000);
  verb.PostRecv(into, 2, Memory() + offset, bytes, in.Pick(regions).lkey);
}

void DataScene::ReceiveSend(size_t index, uint8_t bytes) {
  // The last two are connected to each other.
  if (index >= 4) return Post(9 - index, IBV_WR_SEND, 0, bytes);
  ScenePair& pair = pairs[index];
  wire::PacketHeaders headers;
  headers.transport = ClassOf(pair.type);
  headers.operation = wire::Operation::kSendOnly;
  headers.ack_request = true;
  headers.destination_qpn = pair.qp.made.qpn;
  headers.psn = pair.next_psn++ & wire::kPsnMask;
  headers.qkey = kQkey;
  Receive(kPeerAddress, kOwnAddress, Build(headers, bytes, 0), true);
}

void DataScene::PollAll() {
  for (Ring& ring : cq_rings) ring.SetConsumer(ring.Producer());
  std::atomic_ref(jobs.polls).fetch_add(1);
}

void DataScene::TakeJobs(Input& in) {
  constexpr CopyJob::State kEnds[] = {CopyJob::kDone, CopyJob::kDone, CopyJob::kFailed,
                                      CopyJob::kTaken, CopyJob::kRefused};
  for (CopyJob& job : jobs.jobs) {
    if (job.Now() == CopyJob::kOffered && job.Claim(CopyJob::kTaken)) job.Set(in.Pick(kEnds));
  }
}

void DataScene::Change(Input& in) {
  const ScenePair& pair = in.Pick(pairs);
  const HandleIn qp{pair.qp.made.handle, 0};
  switch (in.Below(10)) {
    case 0:
      client.Call(CallOp::kDestroyQp, qp);
      return;
    case 1:
      client.Call(CallOp::kDeregMr, HandleIn{in.Pick(regions).handle, 0});
      return;
    case 2:
      client.Call(CallOp::kDeallocMw, HandleIn{in.Pick(windows).handle, 0});
      return;
    case 3:
      client.Call(CallOp::kDestroyAh, HandleIn{in.Pick(address_handles), 0});
      return;
    case 4: {
      CqOut cq{};
      if (client.Call(CallOp::kResizeCq, ResizeCqIn{verb.cq.handle, in.Edge32() % 1024}, cq) != 0) {
        return;
      }
      spans.push_back(cq.queue);
      cq_rings[0] = Ring(client.At(cq.queue) + sizeof(CqControl), cq.slots, sizeof(CqEntry));
      return;
    }
    case 5: {
      SrqOut resized{};
      const ModifySrqIn modify{srq.handle, static_cast<int32_t>(in.Below(4)), in.Below(64),
                               in.Below(16)};
      if (client.Call(CallOp::kModifySrq, modify, resized) != 0) return;
      spans.push_back(resized.queue);
      srq_ring = Ring(client.At(resized.queue), resized.slots, resized.slot_bytes);
      return;
    }
    case 6: {
      GetAsyncEventOut event;
      client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, event);
      return;
    }
    default: {
      ibv_qp_attr attr{};
      attr.qp_state = static_cast<ibv_qp_state>(in.Below(7));
      verb.Modify(pair.qp, IBV_QP_STATE, attr);
      return;
    }
  }
}

}  // namespace rdmaemu::fuzz
