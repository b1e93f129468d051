// The environment of the transport tests: verbs and transports of two hosts in one thread. The wire
// between them drops and duplicates packets as the test requests. Time is virtual.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emulator/transport/engine.h"
#include "emulator/transport/train_form.h"
#include "emulator/verbs/testing/fakes.h"
#include "emulator/verbs/testing/plain_send.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu::transport::testing {

inline constexpr GroupId kGroup{1};
inline constexpr ProcessId kProcess{1};

struct Datagram {
  wire::UdpFlow flow;
  std::vector<std::byte> bytes;
  // Nothing for a datagram. Otherwise the state of a train's form.
  enum class Form : uint8_t { kFilled, kUnfilled, kLost, kPlaced };
  std::shared_ptr<Form> form = nullptr;
};

// A form in a Node's `out`. Its bytes stay where they are while the datagram is moved. They are
// freed when the receiver has them.
class FormInOut final : public UnfilledForm {
 public:
  // Refer writes to `referred`.
  FormInOut(std::span<std::byte> payload, std::shared_ptr<Datagram::Form> form,
            std::vector<JobReference>& referred)
      : payload_(payload), form_(std::move(form)), referred_(referred) {}
  bool takes_references() const override { return true; }
  void Refer(const JobReference& job) override { referred_.push_back(job); }
  std::span<std::byte> payload() const override { return payload_; }
  std::byte* mark() const override { return reinterpret_cast<std::byte*>(form_.get()); }
  std::byte filled_mark() const override { return std::byte(Datagram::Form::kFilled); }
  bool IsFilled() const override {
    return *form_ == Datagram::Form::kFilled || *form_ == Datagram::Form::kPlaced;
  }
  void Finish(bool filled) override {
    if (filled && IsFilled()) return;
    *form_ = filled ? Datagram::Form::kFilled : Datagram::Form::kLost;
  }
  void Abandon() override { Finish(false); }

 private:
  std::span<std::byte> payload_;
  std::shared_ptr<Datagram::Form> form_;
  std::vector<JobReference>& referred_;
};

// One host: verbs, an engine, and the datagrams that it sends.
class Node final : public DatagramSink {
 public:
  explicit Node(const std::string& address, bool payload_shortcuts = true)
      : random(7),
        address(*NetAddress::Parse(address)),
        verbs({shared_memory, counters, memory, random, trace, {}, payload_shortcuts}),
        engine({verbs, memory, random, *this, trace, nullptr, nullptr, nullptr,
                [this] { return permits_execution; }, &shared_memory}) {
    verbs.SetTransport(&engine);
    Profile profile = *BuiltInProfile("rxe");
    verbs.AddDevice(DeviceConfig{"rxe0", profile, {{this->address, 9000}}});
    context = *verbs.Open(kGroup, 0);
    pd = *verbs.AllocPd(kGroup, context->handle);
  }

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t, size_t bytes) override {
    pending = {flow, std::vector<std::byte>(bytes), nullptr};
    return pending.bytes;
  }
  std::optional<std::span<std::byte>> AllocateForm(const Train& train, bool may_wait) override {
    if (!sends_forms) return std::nullopt;
    if (is_full && !may_wait) return std::span<std::byte>();
    pending = {{train.source, train.destination, wire::kRoceUdpPort, wire::kRoceUdpPort},
               std::vector<std::byte>(FormBytes(train)),
               std::make_shared<Datagram::Form>(Datagram::Form::kFilled)};
    return pending.bytes;
  }
  void Commit(Time) override {
    if (pending.form == nullptr) wire::SealPacket(pending.flow, pending.bytes);
    out.push_back(std::move(pending));
  }
  std::unique_ptr<UnfilledForm> CommitUnfilled(Time, size_t payload_bytes) override {
    *pending.form = Datagram::Form::kUnfilled;
    auto form = std::make_unique<FormInOut>(std::span(pending.bytes).last(payload_bytes),
                                            pending.form, referred);
    out.push_back(std::move(pending));
    return form;
  }
  bool takes_unfilled() const override { return sends_forms; }
  bool OfferPermit(const wire::UdpFlow& flow, std::span<const std::byte> offer) override {
    if (!shared_memory.has_descriptors) return false;
    offers.push_back({flow, {offer.begin(), offer.end()}, nullptr});
    return true;
  }
  void CountExchanged(const Exchanged& more) override {
    exchanged.sent_packets += more.sent_packets;
    exchanged.sent_bytes += more.sent_bytes;
    exchanged.received_packets += more.received_packets;
    exchanged.received_bytes += more.received_bytes;
  }

  std::vector<JobReference> referred;  // the copy jobs of forms, if shared memory has a descriptor
  bool permits_execution = false;
  bool sends_forms = false;
  bool is_full = false;  // there is no room for forms

  rdmaemu::testing::FakeSharedMemory shared_memory;
  rdmaemu::testing::FakeCounters counters;
  rdmaemu::testing::FakeMemory memory;
  rdmaemu::testing::FakeTrace trace;
  Random random;
  NetAddress address;
  Verbs verbs;
  Engine engine;
  Context* context;
  ProtectionDomain* pd;
  Datagram pending;
  std::deque<Datagram> out;
  std::deque<Datagram> offers;  // of permits, to the other node
  Exchanged exchanged{};        // of requests that programs have executed
};

// The fate of a packet on the wire. A held packet arrives when the test calls Release.
enum class Fate { kDeliver, kDrop, kDuplicate, kHold };

// A packet that was sent over the wire, whether it arrived or not.
struct Seen {
  wire::PacketHeaders headers;
  size_t payload_bytes;
  Time when;
};

// Writes a receive into a QP's or an SRQ's ring.
inline void PostReceiveTo(Ring& ring, uint64_t wr_id, const std::vector<rxe_sge>& sges) {
  ASSERT_FALSE(ring.Full());
  auto* wqe = ring.SlotAs<rxe_recv_wqe>(ring.Producer());
  std::memset(static_cast<void*>(wqe), 0, sizeof *wqe);
  wqe->wr_id = wr_id;
  wqe->dma.num_sge = static_cast<uint32_t>(sges.size());
  for (const rxe_sge& sge : sges) wqe->dma.length += sge.length;
  if (!sges.empty()) {
    std::memcpy(reinterpret_cast<std::byte*>(wqe) + sizeof *wqe, sges.data(),
                sges.size() * sizeof(rxe_sge));
  }
  ring.SetProducer(ring.Next(ring.Producer()));
}

// A QP with its queues and one region over `buffer`.
struct Endpoint {
  Node* node;
  CompletionQueue* send_cq;
  CompletionQueue* recv_cq;
  QueuePair* qp;
  MemoryRegion* mr;
  std::vector<std::byte> buffer;

  uint64_t At(size_t offset) const { return reinterpret_cast<uint64_t>(buffer.data()) + offset; }
  rxe_sge Sge(size_t offset, uint32_t length) const { return {At(offset), length, mr->lkey}; }

  // Posts the request `wr` with these SGEs.
  void Post(rxe_send_wr wr, std::vector<rxe_sge> sges) {
    Ring& ring = qp->send_ring;
    ASSERT_FALSE(ring.Full());
    rdmaemu::testing::PlainSend send{wr};
    if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
      std::vector<std::byte> data;
      for (const rxe_sge& sge : sges) {
        const auto* const from = reinterpret_cast<const std::byte*>(sge.addr);
        data.insert(data.end(), from, from + sge.length);
      }
      send.length = static_cast<uint32_t>(data.size());
      send.WriteTo(ring, data);
    } else {
      send.num_sge = static_cast<uint32_t>(sges.size());
      send.WriteTo(ring, std::as_bytes(std::span(sges)));
    }
    ring.SetProducer(ring.Next(ring.Producer()));
  }
  void PostReceive(uint64_t wr_id, const std::vector<rxe_sge>& sges) {
    PostReceiveTo(qp->recv_ring, wr_id, sges);
  }
  static std::vector<ib_uverbs_wc> Poll(CompletionQueue& cq) {
    std::vector<ib_uverbs_wc> all;
    for (; !cq.ring.Empty(); cq.ring.SetConsumer(cq.ring.Next(cq.ring.Consumer()))) {
      all.push_back(cq.ring.SlotAs<CqEntry>(cq.ring.Consumer())->wc);
    }
    return all;
  }
  std::vector<ib_uverbs_wc> Sent() { return Poll(*send_cq); }
  std::vector<ib_uverbs_wc> Received() { return Poll(*recv_cq); }
};

struct Link {
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t psn_a = 100, psn_b = 500;
  uint8_t timeout = 14, retry_count = 3, rnr_retry = 3, min_rnr_timer = 1;
  uint8_t rd_atomic = 4;
  int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  bool to_rts_b = true;
};

class World {
 public:
  explicit World(bool local) : a("10.1.0.1"), other(local ? nullptr : new Node("10.1.0.2")) {}

  Node& b() { return other ? *other : a; }

  // Lets the programs of both hosts have permits and lanes.
  void PermitExecution() {
    for (Node* const node : {&a, &b()}) {
      node->shared_memory.has_descriptors = true;
      EXPECT_TRUE(node->verbs.DoorbellSpan(kGroup));
      node->verbs.ProcessJoined(kGroup, kProcess);
      node->permits_execution = true;
    }
  }
  // Brings the lane offers of `a` to `b`.
  void CarryLaneOffers() {
    for (; !a.offers.empty(); a.offers.pop_front()) {
      const auto offer = PermitOffer::Parse(a.offers.front().bytes);
      ASSERT_TRUE(offer);
      if (offer->is_lane == 0) continue;
      b().engine.TakeLaneOffer(
          now, a.offers.front().flow, *offer, [this](const JobReference& lane) {
            return b().shared_memory.Adopt(
                a.shared_memory.Map(SegmentId{lane.segment}, lane.offset), sizeof(SendLane));
          });
    }
  }
  Endpoint Make(Node& node, ibv_qp_type type, size_t buffer_bytes, uint32_t depth = 63,
                uint32_t cq_entries = 255, Handle srq = 0) {
    Endpoint e{&node, nullptr, nullptr, nullptr, nullptr, std::vector<std::byte>(buffer_bytes)};
    e.send_cq = *node.verbs.CreateCq(kGroup, {node.context->handle, 0, cq_entries, 0, 1});
    e.recv_cq = *node.verbs.CreateCq(kGroup, {node.context->handle, 0, cq_entries, 0, 2});
    e.qp = *node.verbs.CreateQp(kGroup, {node.pd->handle,
                                         e.send_cq->handle,
                                         e.recv_cq->handle,
                                         srq,
                                         type,
                                         false,
                                         {.max_send_wr = depth,
                                          .max_recv_wr = depth,
                                          .max_send_sge = 8,
                                          .max_recv_sge = 8,
                                          .max_inline_data = 256},
                                         3});
    e.mr = *node.verbs.RegMr(kGroup, kProcess,
                             {node.pd->handle,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
                              e.At(0), buffer_bytes, e.At(0)});
    return e;
  }
  // Makes an RC endpoint whose receive CQ is on the channel.
  Endpoint MakeWithChannel(Node& node, const CompletionChannel& channel, size_t buffer_bytes,
                           uint32_t cq_entries = 63) {
    Endpoint e = Make(node, IBV_QPT_RC, buffer_bytes);
    e.recv_cq =
        *node.verbs.CreateCq(kGroup, {node.context->handle, channel.handle, cq_entries, 0, 0x77});
    return MakeRcQp(std::move(e));
  }
  // Makes an RC endpoint with the CQs of another one.
  Endpoint MakeSibling(const Endpoint& other_one, size_t buffer_bytes) {
    Endpoint e = Make(*other_one.node, IBV_QPT_RC, buffer_bytes);
    e.send_cq = other_one.send_cq;
    e.recv_cq = other_one.recv_cq;
    return MakeRcQp(std::move(e));
  }
  // Gives the endpoint another QP, with its present CQs.
  static Endpoint MakeRcQp(Endpoint e) {
    Node& node = *e.node;
    e.qp = *node.verbs.CreateQp(kGroup, {node.pd->handle,
                                         e.send_cq->handle,
                                         e.recv_cq->handle,
                                         0,
                                         IBV_QPT_RC,
                                         false,
                                         {.max_send_wr = 31,
                                          .max_recv_wr = 31,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = 0},
                                         3});
    return e;
  }
  void Modify(Endpoint& e, const ibv_qp_attr& attr, int mask) {
    const Status done = e.node->verbs.ModifyQp(now, kGroup, e.qp->handle, mask, attr);
    ASSERT_TRUE(done.has_value()) << "state " << attr.qp_state << " errno " << done.error().code;
  }
  void SetState(Endpoint& e, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    Modify(e, attr, IBV_QP_STATE);
  }
  static ibv_ah_attr AddressOf(const Endpoint& e) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = e.node->address.ToGid();
    attr.grh.sgid_index = 1;
    attr.grh.hop_limit = 64;
    return attr;
  }
  void Connect(Endpoint& e, const Endpoint& peer, const Link& link, uint32_t own_psn,
               uint32_t peer_psn, bool to_rts) {
    const bool rc = e.qp->type == IBV_QPT_RC;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned>(link.access);
    Modify(e, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = link.mtu;
    attr.dest_qp_num = peer.qp->qpn;
    attr.rq_psn = peer_psn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = link.rd_atomic;
    attr.min_rnr_timer = link.min_rnr_timer;
    attr.ah_attr = AddressOf(peer);
    Modify(e, attr,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    if (!to_rts) return;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = own_psn;
    attr.timeout = link.timeout;
    attr.retry_cnt = link.retry_count;
    attr.rnr_retry = link.rnr_retry;
    Modify(e, attr,
           IBV_QP_STATE | IBV_QP_SQ_PSN |
               (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                   : 0));
  }
  void Join(Endpoint& x, Endpoint& y, const Link& link = {}) {
    Connect(x, y, link, link.psn_a, link.psn_b, true);
    Connect(y, x, link, link.psn_b, link.psn_a, link.to_rts_b);
  }
  void ReadyUd(Endpoint& e, uint32_t qkey) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = qkey;
    Modify(e, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    SetState(e, IBV_QPS_RTR);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 9;
    Modify(e, attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }

  void Ring(Endpoint& e) { e.node->engine.Doorbell(now, *e.qp); }
  // Runs until no work is left. Advances time to the next deadline, at most `limit` from now.
  void Run(Duration limit = std::chrono::seconds(10)) {
    const Time end = now + limit;
    for (int steps = 0; steps < 1'000'000; ++steps) {
      if (Step()) continue;
      const auto next = EarliestDeadline();
      if (!next || *next > end) return;
      now = std::max(now, *next);
      a.engine.Expire(now);
      if (other) other->engine.Expire(now);
    }
    ADD_FAILURE() << "the world does not come to rest";
  }

  // Decides on each packet on the wire, in order.
  std::function<Fate(const wire::Packet&)> fate = [](const wire::Packet&) {
    return Fate::kDeliver;
  };
  Time now{};
  Node a;
  std::unique_ptr<Node> other;
  std::vector<std::string> seen;  // names of the packets sent over the wire
  std::vector<Seen> packets;      // and their contents

  // Delivers the held packets, in the order of sending.
  void Release() {
    for (const auto& [to, datagram] : std::exchange(held_, {})) {
      to->engine.Receive(now, datagram.flow, *wire::Parse(datagram.bytes));
    }
  }

  // Does all work that needs no time.
  void Settle() {
    while (Step()) {
    }
  }

 private:
  bool Step() {
    bool busy = a.engine.Work(now);
    if (other) {
      busy |= other->engine.Work(now);
      busy |= Carry(a, *other);
      busy |= Carry(*other, a);
    }
    return busy;
  }
  bool Carry(Node& from, Node& to) {
    if (from.out.empty()) return false;
    if (const auto& form = from.out.front().form; form != nullptr) return CarryForm(from, to);
    const Datagram datagram = std::move(from.out.front());
    from.out.pop_front();
    EXPECT_TRUE(wire::VerifyIcrc(datagram.flow, datagram.bytes).has_value());
    const auto packet = wire::Parse(datagram.bytes);
    EXPECT_TRUE(packet.has_value());
    if (!packet) return true;
    seen.push_back(packet->headers.info().name);
    packets.push_back({packet->headers, packet->payload.size(), now});
    const Fate what = fate(*packet);
    if (what == Fate::kDrop) return true;
    if (what == Fate::kHold) {
      held_.emplace_back(&to, datagram);
      return true;
    }
    to.engine.Receive(now, datagram.flow, *packet);
    if (what == Fate::kDuplicate) to.engine.Receive(now, datagram.flow, *packet);
    return true;
  }
  bool CarryForm(Node& from, Node& to) {
    if (*from.out.front().form == Datagram::Form::kUnfilled) return false;
    Datagram datagram = std::move(from.out.front());
    from.out.pop_front();
    if (*datagram.form == Datagram::Form::kLost) {
      lost_forms_.push_back(std::move(datagram));
      return true;
    }
    Train train;
    EXPECT_TRUE(ParseForm(datagram.flow, datagram.bytes, train));
    std::vector<wire::Packet> all;
    AppendPackets(train, all);
    std::deque<Train> arriving;  // a train for each packet, or the whole one
    for (uint32_t i = 0; i < all.size(); i++) {
      const wire::Packet& packet = all[i];
      seen.push_back(packet.headers.info().name);
      packets.push_back({packet.headers, packet.payload.size(), now});
      if (fate(packet) != Fate::kDeliver) continue;
      Train& part = arriving.emplace_back(train);
      if (i > 0) part.DropFront(i);
      if (part.packets > 1) part.KeepFront(1);
    }
    if (arriving.size() == all.size()) arriving = {train};
    const auto next = [&, at = size_t{0}]() mutable {
      return at == arriving.size() ? nullptr : &arriving[at++];
    };
    to.engine.ReceiveTrains(now, next, *datagram.form == Datagram::Form::kPlaced);
    return true;
  }
  std::optional<Time> EarliestDeadline() {
    std::optional<Time> first = a.engine.NextDeadline();
    if (other) {
      const auto second = other->engine.NextDeadline();
      if (!first || (second && *second < *first)) first = second;
    }
    return first;
  }

  std::deque<std::pair<Node*, Datagram>> held_;
  std::vector<Datagram> lost_forms_;  // their bytes stay, because a stopped thread may write them
};

// Returns to[i] - from[i] for each counter.
inline std::vector<uint64_t> Difference(const std::vector<uint64_t>& to,
                                        const std::vector<uint64_t>& from) {
  std::vector<uint64_t> out;
  for (size_t i = 0; i < to.size(); i++) out.push_back(to[i] - from[i]);
  return out;
}

inline void FillPattern(std::span<std::byte> bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 131 + seed * 7 + (i >> 8)) & 0xff);
  }
}

inline rxe_send_wr SendWr(ibv_wr_opcode opcode, uint64_t wr_id,
                          uint32_t flags = IBV_SEND_SIGNALED) {
  rxe_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}
inline rxe_send_wr RdmaWr(ibv_wr_opcode opcode, uint64_t wr_id, const Endpoint& peer, size_t offset,
                          uint32_t flags = IBV_SEND_SIGNALED) {
  rxe_send_wr wr = SendWr(opcode, wr_id, flags);
  wr.wr.rdma.remote_addr = peer.At(offset);
  wr.wr.rdma.rkey = peer.mr->rkey;
  return wr;
}
inline rxe_send_wr AtomicWr(ibv_wr_opcode opcode, uint64_t wr_id, const Endpoint& peer,
                            size_t offset, uint64_t compare_add, uint64_t swap = 0) {
  rxe_send_wr wr = SendWr(opcode, wr_id);
  wr.wr.atomic.remote_addr = peer.At(offset);
  wr.wr.atomic.rkey = peer.mr->rkey;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  return wr;
}

}  // namespace rdmaemu::transport::testing
