// Permits for programs whose peer is on another host of the same user: what each of the two hosts
// permits, and how both count what was executed.
#include "emulator/transport/lent_permits.h"

#include <set>
#include <stdexcept>
#include <tuple>

#include "emulator/transport/copy_jobs_for_test.h"
#include "emulator/transport/packets_of.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kRequestBytes =
    2501;  // three packets of 1024 bytes, the last one with 3 pad bytes
constexpr uint32_t kPeersPid = 4711;

class LentPermitsTest : public ::testing::Test {
 protected:
  LentPermitsTest() : world(/*local=*/false) {
    world.PermitExecution();
    world.a.memory.pids[kProcess] = 815;
    world.b().memory.pids[kProcess] = kPeersPid;
    jobs = &world.a.verbs.Doorbells(kGroup).jobs;
    Make({});
  }
  void Make(const Link& link) {
    x = world.Make(world.a, IBV_QPT_RC, 4 * kSize);
    y = world.Make(world.b(), IBV_QPT_RC, 4 * kSize);
    world.Join(x, y, link);
    FillPattern(x.buffer, 1);
  }
  void Send(Endpoint& from, const rxe_send_wr& wr, uint32_t bytes = kRequestBytes) {
    from.Post(wr, {from.Sge(0, bytes)});
    world.Ring(from);
    world.Run();
  }
  void Send(ibv_wr_opcode opcode, uint64_t wr_id = 1) { Send(x, RdmaWr(opcode, wr_id, y, 0)); }
  void SendMessage() {
    y.PostReceive(7, {y.Sge(0, 4 * kSize)});
    Send(x, SendWr(IBV_WR_SEND, 9));
  }
  // The other host receives the offers. Its memory is this process's, too.
  void Carry() {
    for (; !world.a.offers.empty(); world.a.offers.pop_front()) {
      const auto offer = PermitOffer::Parse(world.a.offers.front().bytes);
      ASSERT_TRUE(offer);
      world.b().engine.TakeOffer(world.a.offers.front().flow, *offer, Open());
    }
  }
  Engine::OpenJobPage Open() {
    return [this](const JobReference& page) {
      opened.push_back(page);
      return has_page ? std::shared_ptr<JobPage>(std::shared_ptr<JobPage>(), jobs) : nullptr;
    };
  }
  // The first offer, which the other host has not received.
  PermitOffer Offered() {
    Send(IBV_WR_RDMA_WRITE);
    if (world.a.offers.size() != 1) throw std::runtime_error("no offer");
    return *PermitOffer::Parse(world.a.offers.front().bytes);
  }
  bool Lends(const PermitOffer& offer) {
    world.b().engine.EndPermits();
    world.b().engine.TakeOffer(world.a.offers.front().flow, offer, Open());
    return Slot().permit.Number() == offer.number;
  }
  // The program's half, and that of the other host.
  Permit Own(Endpoint& endpoint) { return endpoint.qp->control->permit.Read(); }
  Permit Own() { return Own(x); }
  LentPermit& Slot(uint32_t index) { return jobs->lent[index]; }
  LentPermit& Slot() { return Slot(slot); }
  Permit Lent() { return Slot().Read(); }
  bool MayExecute() {
    const Permit own = Own(), lent = Lent();
    return own.number != 0 && own.index == x.qp->send_ring.Producer() &&
           own.lent_slot == slot + 1 && lent.number != 0 && own.lent_number == lent.number;
  }
  void Granted() {
    Send(IBV_WR_RDMA_WRITE);
    Carry();
    ASSERT_NE(Own().lent_slot, 0u);
    slot = Own().lent_slot - 1;
    ASSERT_TRUE(MayExecute());
  }
  // Acts as a program that executes requests of kRequestBytes.
  void Execute(ibv_wr_opcode opcode, uint64_t count) {
    for (Executed* const all : {&x.qp->control->executed, &Slot().executed}) {
      Executed::Requests& kind = opcode == IBV_WR_RDMA_READ ? all->reads : all->writes;
      for (uint64_t i = 0; i < count; i++) kind.Add(kRequestBytes, 1024);
    }
  }
  void ExpectNoTrouble() {
    for (Node* const node : {&world.a, &world.b()}) {
      EXPECT_EQ(node->engine.counters().retransmissions, 0u);
      EXPECT_EQ(node->engine.counters().naks, 0u);
      EXPECT_EQ(node->engine.counters().duplicates, 0u);
    }
    for (const auto& wc : x.Sent()) EXPECT_EQ(wc.status, uint32_t{IBV_WC_SUCCESS});
  }

  World world;
  JobPage* jobs;
  Endpoint x, y;
  std::vector<JobReference> opened;
  bool has_page = true;
  uint32_t slot = 0;  // of the QP's permit
};

TEST_F(LentPermitsTest, ACompletedRequestIsOfferedAndTheOtherHostLends) {
  const PermitOffer offer = Offered();
  EXPECT_NE(Own().number, 0u);
  EXPECT_FALSE(MayExecute()) << "the other host has not lent it";
  Carry();
  EXPECT_TRUE(MayExecute());
  const Permit lent = Lent();
  EXPECT_EQ(lent.number, offer.number);
  EXPECT_EQ(lent.pid, kPeersPid);
  EXPECT_TRUE(lent.other.Covers(y.mr->rkey, y.At(0), 4 * kSize,
                                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  EXPECT_FALSE(lent.other.Covers(y.mr->rkey, y.At(0), 4 * kSize + 1, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_EQ(Own().other.key, 0u);
  EXPECT_TRUE(Own().own.Covers(x.mr->lkey, x.At(0), 4 * kSize, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_GE(opened[0].fd, 0);
  EXPECT_EQ(opened[0].slot, 0u);
}

TEST_F(LentPermitsTest, AFurtherRequestOfTheHostNeedsNoFurtherOffer) {
  Granted();
  const Permit before = Own();
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_TRUE(world.a.offers.empty());
  EXPECT_TRUE(MayExecute());
  EXPECT_NE(Own().number, before.number);
  EXPECT_EQ(Own().lent_number, before.lent_number);
}

TEST_F(LentPermitsTest, WithoutSharedMemoryThereIsNoOffer) {
  world.a.shared_memory.has_descriptors = false;
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_EQ(Own().number, 0u);
  world.a.shared_memory.has_descriptors = true;
  world.a.memory.pids[kProcess] = 0;  // another pid namespace
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_EQ(Own().number, 0u);
  world.a.permits_execution = false;
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_TRUE(world.a.offers.empty());
}

TEST_F(LentPermitsTest, TheOtherHostChecksTheOffer) {
  const PermitOffer good = Offered();
  ASSERT_TRUE(Lends(good));
  const auto refuses = [&](const char* what, auto change) {
    PermitOffer offer = good;
    change(offer);
    EXPECT_FALSE(Lends(offer)) << what;
  };
  refuses("another QP", [](PermitOffer& o) { o.destination_qpn++; });
  refuses("another sender", [](PermitOffer& o) { o.source_qpn++; });
  refuses("an old request", [](PermitOffer& o) { o.psn = PsnAdd(o.psn, wire::kPsnMask); });
  refuses("another MTU", [](PermitOffer& o) { o.mtu_bytes = 4096; });
  refuses("another key", [](PermitOffer& o) { o.rkey++; });
  wire::UdpFlow& flow = world.a.offers.front().flow;
  std::swap(flow.source, flow.destination);
  EXPECT_FALSE(Lends(good)) << "another address";
  std::swap(flow.source, flow.destination);
  has_page = false;
  EXPECT_FALSE(Lends(good)) << "a false reference";
  has_page = true;
  world.b().permits_execution = false;
  EXPECT_FALSE(Lends(good)) << "rules, or a clock that is not real";
  world.b().permits_execution = true;
  world.b().trace.keep_packets = true;
  EXPECT_FALSE(Lends(good)) << "a capture";
  world.b().trace.keep_packets = false;
  world.b().memory.pids[kProcess] = 0;
  EXPECT_FALSE(Lends(good)) << "the system denies access";
  world.b().memory.pids[kProcess] = kPeersPid;
  EXPECT_TRUE(Lends(good));
}

TEST_F(LentPermitsTest, TheRightsAreThoseOfBothEnds) {
  const auto rights = [&](const Link& link) {
    Make(link);
    Send(IBV_WR_RDMA_WRITE);
    const uint32_t slot = Own().lent_slot;
    Carry();
    return Slot(slot - 1).permit.other.access;
  };
  const uint32_t writes = IBV_ACCESS_REMOTE_WRITE, both = writes | IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(rights({}), both);
  EXPECT_EQ(rights({.access = IBV_ACCESS_REMOTE_WRITE}), writes);
  EXPECT_EQ(rights({.rd_atomic = 0}), writes);
}

TEST_F(LentPermitsTest, BothHostsCountAsIfTheyHadExecutedTheRequests) {
  const auto all = [this] {
    std::vector<uint64_t> out;
    for (Node* const node : {&world.a, &world.b()}) {
      const EngineCounters& engine = node->engine.counters();
      const PortCounters& port = (node == &world.a ? x : y).qp->device->counters;
      out.insert(out.end(),
                 {engine.messages_sent, engine.bytes_sent, engine.packets_sent,
                  engine.packets_received, engine.local_packets, port.sent_pkts, port.rcvd_pkts});
    }
    return out;
  };
  Granted();
  const auto begin = all();
  uint64_t bytes_there = 0, bytes_back = 0;
  world.fate = [&](const wire::Packet& packet) {
    const wire::OpcodeInfo& info = packet.headers.info();
    (info.request ? bytes_there : bytes_back) += DatagramBytes(info, packet.payload.size());
    return Fate::kDeliver;
  };
  for (int i = 0; i < 3; i++) Send(IBV_WR_RDMA_WRITE);
  for (int i = 0; i < 2; i++) Send(IBV_WR_RDMA_READ);
  const auto by_hosts = all();
  ASSERT_TRUE(MayExecute());
  Execute(IBV_WR_RDMA_WRITE, 3);
  Execute(IBV_WR_RDMA_READ, 2);
  const auto by_program = all();
  EXPECT_EQ(Difference(by_program, by_hosts), Difference(by_hosts, begin));
  for (const auto& [node, there, back] :
       {std::tuple(&world.a.exchanged, bytes_there, bytes_back),
        std::tuple(&world.b().exchanged, bytes_back, bytes_there)}) {
    EXPECT_EQ(node->sent_bytes, there);
    EXPECT_EQ(node->received_bytes, back);
    EXPECT_EQ(node->sent_packets + node->received_packets, 3u * 4 + 2u * 4);
  }
  // The connection goes on behind them.
  Send(IBV_WR_RDMA_WRITE);
  Send(IBV_WR_RDMA_READ);
  SendMessage();
  EXPECT_EQ(y.Received().size(), 1u);
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, ARequestMayBeCountedInParts) {
  Granted();
  for (Executed* const all : {&x.qp->control->executed, &Slot().executed}) {
    all->reads.count++;
    for (Node* const node : {&world.a, &world.b()}) node->engine.CountExecuted();
    all->reads.packets += 3;
    for (Node* const node : {&world.a, &world.b()}) node->engine.CountExecuted();
    all->reads.bytes += kRequestBytes;
  }
  SendMessage();
  EXPECT_EQ(y.Received().size(), 1u);
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, AMessageEndsThePermitUntilTheNextOffer) {
  Granted();
  Execute(IBV_WR_RDMA_WRITE, 5);
  SendMessage();
  EXPECT_EQ(Lent().number, 0u);
  EXPECT_EQ(Own().number, 0u);
  Granted();
  Execute(IBV_WR_RDMA_WRITE, 1);
  SendMessage();
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, AProgramThatUsesNoPermitGetsFewOffers) {
  size_t offers = 0;
  for (int i = 0; i < 1000 && !HasFailure(); i++) {
    Send(IBV_WR_RDMA_WRITE);
    offers += world.a.offers.size();
    Carry();
    SendMessage();
    EXPECT_EQ(x.Sent().size(), 2u);
    EXPECT_EQ(y.Received().size(), 1u);
  }
  EXPECT_GT(offers, 2u);
  EXPECT_LT(offers, 20u);
  for (int i = 0; i < 2000 && !MayExecute(); i++) {
    Send(IBV_WR_RDMA_WRITE);
    Carry();
    EXPECT_EQ(x.Sent().size(), 1u);
  }
  Execute(IBV_WR_RDMA_WRITE, 1);
  SendMessage();
  Granted();
  ExpectNoTrouble();
}

// ---- the end of a permit

TEST_F(LentPermitsTest, WhatRevokesARightAtTheOtherHostEndsThePermit) {
  const auto ends = [this](const char* what, const std::function<void()>& change) {
    Granted();
    Execute(IBV_WR_RDMA_WRITE, 2);
    change();
    EXPECT_EQ(Lent().number, 0u) << what;
    EXPECT_FALSE(MayExecute()) << what;
  };
  Endpoint unrelated = world.Make(world.b(), IBV_QPT_RC, kSize);
  ends("the end of a region",
       [&] { EXPECT_TRUE(world.b().verbs.DeregMr(kGroup, unrelated.mr->handle)); });
  ends("attributes", [&] {
    ibv_qp_attr attr{};
    attr.min_rnr_timer = 3;
    world.Modify(y, attr, IBV_QP_MIN_RNR_TIMER);
  });
  ends("a rule, a capture or a changed device", [&] { world.b().engine.EndPermits(); });
  ends("a paused host", [&] { world.b().engine.StopCopies(); });
  ExpectNoTrouble();
  ends("an error", [&] { world.SetState(y, IBV_QPS_ERR); });
}

TEST_F(LentPermitsTest, ASecondProcessOfTheProgramEndsThePermit) {
  Granted();
  world.a.verbs.ProcessJoined(kGroup, ProcessId{9});
  EXPECT_FALSE(MayExecute());
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_TRUE(world.a.offers.empty());
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, ASecondProcessOfTheOtherProgramEndsThePermit) {
  Granted();
  world.b().verbs.ProcessJoined(kGroup, ProcessId{9});
  EXPECT_FALSE(MayExecute());
  Send(IBV_WR_RDMA_WRITE);
  Carry();
  EXPECT_FALSE(MayExecute());
  ExpectNoTrouble();
}

// The other host may have lent rights that the QP has no more.
TEST_F(LentPermitsTest, AfterTheEndAtTheProgramsHostAnotherPermitIsOffered) {
  Granted();
  const uint32_t number = Own().lent_number;
  Execute(IBV_WR_RDMA_WRITE, 4);
  world.a.engine.EndPermits();
  EXPECT_EQ(Own().number, 0u);
  EXPECT_EQ(world.a.engine.counters().messages_sent, 5u);
  Send(IBV_WR_RDMA_WRITE);
  EXPECT_FALSE(MayExecute());
  EXPECT_NE(Own().lent_number, number);
  Carry();
  EXPECT_TRUE(MayExecute());
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, TheOtherHostAwaitsACopyThatHasBegun) {
  Granted();
  jobs->busy = 4712;
  jobs->executes = 1;
  int moments = 0;
  world.b().memory.meanwhile = [&] {
    if (++moments != 3) return;
    Execute(IBV_WR_RDMA_WRITE, 1);
    jobs->executes = jobs->busy = 0;
  };
  world.b().engine.EndPermits();
  EXPECT_EQ(moments, 3);
  EXPECT_EQ(y.qp->device->counters.rcvd_pkts, 6u) << "it counts, too";
}

TEST_F(LentPermitsTest, AStoppedThreadBeginsNoCopyAfterTheEnd) {
  Granted();
  jobs->busy = 4712;
  jobs->executes = 1;
  world.b().memory.threads = CopyState::kElsewhere;
  const uint32_t recalls = jobs->recalls;
  world.b().engine.EndPermits();
  EXPECT_NE(jobs->recalls, recalls);
  EXPECT_EQ(world.b().memory.looked_at, std::vector<uint32_t>{4712});
}

TEST_F(LentPermitsTest, AThreadThatWasStoppedBehindItsCopyCountsLater) {
  for (Node* const node : {&world.b(), &world.a}) {
    Granted();
    jobs->busy = 4712;
    jobs->executes = 1;
    node->memory.threads = CopyState::kElsewhere;
    node->engine.EndPermits();
    Execute(IBV_WR_RDMA_WRITE, 1);
    jobs->executes = jobs->busy = 0;
    Send(IBV_WR_RDMA_READ);
  }
  SendMessage();
  EXPECT_EQ(y.Received().size(), 1u);
  ExpectNoTrouble();
}

TEST_F(LentPermitsTest, WhatWasExecutedInAFormerLifeOfTheQpDoesNotCount) {
  Granted();
  for (Endpoint* each : {&x, &y}) world.SetState(*each, IBV_QPS_RESET);
  Execute(IBV_WR_RDMA_WRITE, 1);
  world.Join(x, y);
  Granted();
  Execute(IBV_WR_RDMA_WRITE, 1);
  SendMessage();
  ExpectNoTrouble();
}

// ---- slots

TEST_F(LentPermitsTest, EachQpHasItsSlotAndThereAreSoMany) {
  std::vector<Endpoint> from, to;
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i <= JobPage::kLentPermits; i++) {
    from.push_back(world.Make(world.a, IBV_QPT_RC, 64, 3, 3));
    to.push_back(world.Make(world.b(), IBV_QPT_RC, 64, 3, 3));
    world.Join(from[i], to[i]);
    Send(from[i], RdmaWr(IBV_WR_RDMA_WRITE, 1, to[i], 0), 64);
    if (Own(from[i]).number != 0) slots.insert(Own(from[i]).lent_slot);
  }
  EXPECT_EQ(slots.size(), JobPage::kLentPermits);
  EXPECT_EQ(Own(from.back()).number, 0u);
  EXPECT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, from[0].qp->handle));
  Send(from.back(), RdmaWr(IBV_WR_RDMA_WRITE, 1, to.back(), 0), 64);
  EXPECT_EQ(Own(from.back()).lent_slot, 1u) << "that of the destroyed one";
}

TEST_F(LentPermitsTest, AnotherQpsRequestsDoNotCountForTheOneThatHadItsSlot) {
  Granted();
  const uint64_t received = y.qp->device->counters.rcvd_pkts;
  EXPECT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, x.qp->handle));
  Slot().owner++;
  Slot().executed.writes.Add(kRequestBytes, 1024);
  world.b().engine.CountExecuted();
  EXPECT_EQ(y.qp->device->counters.rcvd_pkts, received);
}

TEST_F(LentPermitsTest, AMixtureOfTwoHostsPermitsIsNone) {
  Granted();
  const Permit lent = Lent();
  Permit other = lent;
  other.pid++;
  Slot().Publish(other);
  Slot().permit.Publish(lent);
  EXPECT_EQ(Lent().number, 0u);
  Slot().Publish(lent);
  EXPECT_EQ(Lent().number, lent.number);
}

TEST_F(LentPermitsTest, FalseNumbersHarmOnlyTheConnectionOfTheirProgram) {
  Granted();
  Slot().executed.writes = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  Slot().executed.reads = {7, 0, UINT64_MAX, 3, UINT64_MAX};
  EXPECT_LT(world.b().engine.counters().packets_received, uint64_t{1} << 42);
  Endpoint u = world.Make(world.a, IBV_QPT_RC, kSize), v = world.Make(world.b(), IBV_QPT_RC, kSize);
  world.Join(u, v);
  Send(u, RdmaWr(IBV_WR_RDMA_WRITE, 1, v, 0));
  ASSERT_EQ(u.Sent().size(), 1u);
}

TEST_F(LentPermitsTest, BytesThatAreNoOfferAreRefused) {
  const PermitOffer good = Offered();
  EXPECT_TRUE(PermitOffer::Parse(good.bytes()));
  EXPECT_FALSE(PermitOffer::Parse(good.bytes().first(good.bytes().size() - 1)));
  EXPECT_FALSE(PermitOffer::Parse({}));
  const auto refuses = [&](auto change) {
    PermitOffer offer = good;
    change(offer);
    EXPECT_FALSE(PermitOffer::Parse(offer.bytes()));
  };
  refuses([](PermitOffer& o) { o.page.slot = JobPage::kLentPermits; });
  refuses([](PermitOffer& o) { o.number = 0; });
  refuses([](PermitOffer& o) { o.psn = wire::kPsnMask + 1; });
}

}  // namespace
}  // namespace rdmaemu::transport::testing
