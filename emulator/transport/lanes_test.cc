// Lanes (lanes.h): when hosts open and close them, what becomes of the messages in them, and how
// both hosts count. The tests act as the two programs.
#include "emulator/transport/lanes.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kLaneBuffer = 64 * 1024;
constexpr uint32_t kReceiveBytes = 512;
constexpr uint32_t kPosted = 8;

// The parameter says whether both QPs are on one host.
class LanesTest : public ::testing::TestWithParam<bool> {
 protected:
  LanesTest() : world(/*local=*/GetParam()) {
    world.PermitExecution();
    Make();
  }
  void Make(uint32_t depth = 63, uint32_t cq_entries = 255) {
    x = world.Make(world.a, IBV_QPT_RC, kLaneBuffer, depth, cq_entries);
    y = world.Make(world.b(), IBV_QPT_RC, kLaneBuffer, depth, cq_entries);
    world.Join(x, y);
    posted = 0;
    for (uint32_t i = 0; i < std::min(kPosted, depth); i++) PostOneReceive();
  }
  void PostOneReceive() {
    y.PostReceive(posted, {y.Sge((posted % 16) * kReceiveBytes, kReceiveBytes)});
    posted++;
  }
  static std::string TextOf(uint64_t wr_id) { return "message " + std::to_string(wr_id); }
  // Sends a message by the hosts, and receives it.
  void SendByHosts(uint64_t wr_id, ibv_wr_opcode opcode = IBV_WR_SEND, size_t sges = 1,
                   uint32_t bytes = 16) {
    std::memcpy(x.buffer.data(), TextOf(wr_id).data(), TextOf(wr_id).size());
    std::vector<rxe_sge> list;
    for (size_t i = 0; i < sges; i++) list.push_back(x.Sge(i * bytes, bytes));
    x.Post(SendWr(opcode, wr_id), list);
    world.Ring(x);
    world.Run();
    CarryOffers();
  }
  void CarryOffers() {
    for (; !world.a.offers.empty(); world.a.offers.pop_front()) {
      const auto offer = PermitOffer::Parse(world.a.offers.front().bytes);
      ASSERT_TRUE(offer);
      if (offer->is_lane == 0) continue;
      world.b().engine.TakeLaneOffer(
          world.now, world.a.offers.front().flow, *offer,
          [this](const JobReference& lane) -> Result<Segment> {
            opened++;
            if (!has_lane_memory) return Fail(EINVAL);
            return world.b().shared_memory.Adopt(
                world.a.shared_memory.Map(SegmentId{lane.segment}, lane.offset), sizeof(SendLane));
          });
    }
  }
  // Two messages by hosts: between two hosts, the first one leads to the offer.
  void Converse() {
    for (const uint64_t wr_id : {100, 101}) {
      SendByHosts(wr_id);
      EXPECT_EQ(x.Sent().size(), 1u);
      EXPECT_EQ(y.Received().size(), 1u);
      PostOneReceive();
    }
  }
  // Returns nothing but zeros if the sender's program has no permit.
  Permit Granted() {
    const Permit permit = x.qp->control->permit.Read();
    return permit.number == 0 ? Permit{} : permit;
  }
  LaneOffer Offered() { return y.qp->control->lane.Read(); }
  bool HasLane() { return Granted().lane != 0 && Offered().number == Granted().lane_number; }
  // The last lane that the sender's program had.
  SendLane& Lane() {
    if (const uint32_t lane = Granted().lane; lane != 0) last_lane = SegmentId{lane};
    return *reinterpret_cast<SendLane*>(world.a.shared_memory.Bytes(last_lane).data());
  }
  // Acts as the receiver's program, which says how many messages may come.
  void GiveRoom(uint32_t messages = kPosted) {
    Lane().SetRoom(Offered().number, messages, kMaxLaneBytes);
  }
  // Acts as the sender's program.
  bool Add(uint64_t wr_id, uint32_t flags = 0) {
    SendLane& lane = Lane();
    const LaneCount added = lane.Added();
    const std::string text = TextOf(wr_id);
    if (!lane.HasRoom(added.number, added.count, text.size())) return false;
    LaneMessage& message = lane.MessageAt(added.count);
    const uint64_t before = added.count == 0 ? 0 : lane.MessageAt(added.count - 1).bytes;
    message.length = static_cast<uint32_t>(text.size());
    message.flags = flags;
    message.immediate = 77;
    message.bytes = before + text.size();
    std::memcpy(message.payload, text.data(), text.size());
    return lane.Add(added.number, added.count);
  }
  // Acts as the receiver's program, which takes the next message.
  void Take() {
    SendLane& lane = Lane();
    const LaneCount taken = lane.Taken();
    ASSERT_TRUE(lane.Take(taken.number, taken.count));
    lane.HavePlaced(1);
    const uint32_t at = y.qp->recv_ring.Consumer();
    ASSERT_TRUE(y.qp->recv_ring.MoveConsumer(at, y.qp->recv_ring.Next(at)));
  }
  void ExpectReceived(const std::vector<uint64_t>& wr_ids, uint64_t first_receive) {
    const auto all = y.Received();
    ASSERT_EQ(all.size(), wr_ids.size());
    for (size_t i = 0; i < all.size(); i++) {
      EXPECT_EQ(all[i].status, IBV_WC_SUCCESS);
      EXPECT_EQ(all[i].wr_id, first_receive + i);
      EXPECT_EQ(all[i].opcode, IBV_WC_RECV);
      EXPECT_EQ(all[i].qp_num, y.qp->qpn);
    }
  }
  // The payload beside completion `index` of the CQ, or in memory.
  void PlaceAll() { world.b().engine.Quiesce(RegionPayloads{*y.mr, false}); }
  std::string TextAt(uint64_t receive, size_t bytes) {
    return {reinterpret_cast<const char*>(y.buffer.data()) + (receive % 16) * kReceiveBytes, bytes};
  }

  World world;
  Endpoint x, y;
  SegmentId last_lane = SegmentId::kNone;
  uint64_t posted = 0;
  int opened = 0;
  bool has_lane_memory = true;
};
INSTANTIATE_TEST_SUITE_P(Hosts, LanesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST_P(LanesTest, ACompletedSendOpensALane) {
  SendByHosts(1);
  EXPECT_EQ(HasLane(), GetParam()) << "two hosts need an offer first";
  SendByHosts(2);
  ASSERT_TRUE(HasLane());
  EXPECT_EQ(opened, GetParam() ? 0 : 1);
  const LaneOffer offer = Offered();
  EXPECT_EQ(offer.receive_index, 2u);
  EXPECT_TRUE(offer.region.Covers(y.mr->lkey, y.At(0), kLaneBuffer, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(offer.completion.qp_num, y.qp->qpn);
  EXPECT_EQ(offer.completion.opcode, IBV_WC_RECV);
  EXPECT_FALSE(Add(3)) << "the receiver's program has given no room";
}

TEST_P(LanesTest, MessagesThatNoProgramHasTakenPrecedeTheNextRequest) {
  Converse();
  GiveRoom();
  for (const uint64_t wr_id : {3, 4, 5}) ASSERT_TRUE(Add(wr_id));
  SendByHosts(6);
  PlaceAll();
  ExpectReceived({3, 4, 5, 6}, 2);
  for (const uint64_t i : {0, 1, 2}) EXPECT_EQ(TextAt(2 + i, 9), TextOf(3 + i));
  EXPECT_EQ(x.Sent().size(), 1u) << "the program has completed the others";
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

TEST_P(LanesTest, TakenMessagesCountAsIfTheHostsHadExecutedThem) {
  Converse();
  const auto all = [this] {
    const EngineCounters& from = world.a.engine.counters();
    const auto &sender = x.qp->device->counters, &receiver = y.qp->device->counters;
    std::vector<uint64_t> counted{from.messages_sent,  from.bytes_sent,    sender.rdma_sends,
                                  receiver.rdma_recvs, receiver.rcvd_pkts, sender.sent_pkts};
    world.b().engine.CountExecuted();
    return counted;
  };
  world.b().engine.CountExecuted();
  const auto before = all();
  for (uint64_t i = 0; i < 2; i++) SendByHosts(10 + i);
  const auto by_hosts = all();
  GiveRoom();
  // As long as those that the hosts have executed.
  for (uint64_t i = 0; i < 2; i++) ASSERT_TRUE(Add(1000000 + i));
  Take();
  Take();
  world.b().engine.CountExecuted();
  const auto by_lane = all();
  const auto hosts = Difference(by_hosts, before), lane = Difference(by_lane, by_hosts);
  for (const size_t i : {0, 2, 3, 4, 5}) EXPECT_EQ(hosts[i], lane[i]) << i;
  EXPECT_EQ(lane[1], 2 * TextOf(1000000).size());
  SendByHosts(12);
  PlaceAll();
  EXPECT_EQ(y.Received().back().wr_id, 6u);
  EXPECT_EQ(world.b().engine.counters().dropped_out_of_sequence, 0u);
  EXPECT_EQ(world.b().engine.counters().duplicates, 0u);
}

TEST_P(LanesTest, TheEndOfPermitsDeliversMessages) {
  for (const bool at_sender : {true, false}) {
    Make();
    Converse();
    GiveRoom();
    ASSERT_TRUE(Add(3));
    ASSERT_TRUE(Add(4));
    Take();
    (at_sender ? world.a : world.b()).engine.EndPermits();
    EXPECT_FALSE(Add(5)) << "closed";
    SendByHosts(6);
    ExpectReceived({4, 6}, 3);
  }
}

TEST_P(LanesTest, ImmediateDataArrives) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3, LaneMessage::kHasImmediate));
  world.b().engine.EndPermits();
  const auto all = y.Received();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].ex.imm_data, 77u);
  EXPECT_NE(all[0].wc_flags & IBV_WC_WITH_IMM, 0u);
}

TEST_P(LanesTest, MessagesPrecedeTheFlushOfAReceiver) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  world.SetState(y, IBV_QPS_ERR);
  const auto all = y.Received();
  ASSERT_EQ(all.size(), size_t{kPosted});
  EXPECT_EQ(all[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(all[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(LanesTest, AResetDropsReceives) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  world.SetState(y, IBV_QPS_RESET);
  EXPECT_TRUE(y.qp->recv_ring.Empty());
  EXPECT_EQ(Offered().number, 0u);
}

TEST_P(LanesTest, AMessageOutlivesItsSender) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, x.qp->handle));
  world.b().engine.EndPermits();
  ExpectReceived({3}, 2);
}

TEST_P(LanesTest, ThereIsNoLaneForOtherRequests) {
  Converse();
  SendByHosts(1, IBV_WR_SEND, 1, kMaxLaneBytes + 1);
  EXPECT_EQ(Granted().lane, 0u);
  SendByHosts(2, IBV_WR_SEND, 2);
  EXPECT_EQ(Granted().lane, 0u);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 3, y, 0), {x.Sge(0, 8)});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(Granted().lane, 0u);
  SendByHosts(4, IBV_WR_SEND_WITH_IMM);
  SendByHosts(5, IBV_WR_SEND_WITH_IMM);
  EXPECT_NE(Granted().lane, 0u);
}

// The answer to such a request must follow its acknowledgement.
TEST_P(LanesTest, ALongRequestOfThePeerEndsALane) {
  Converse();
  ASSERT_TRUE(HasLane());
  x.PostReceive(0, {x.Sge(0, kReceiveBytes)});
  y.Post(SendWr(IBV_WR_SEND, 7), {y.Sge(0, kMaxLaneBytes)});
  world.Ring(y);
  world.Run();
  EXPECT_TRUE(HasLane()) << "lanes take such requests";
  x.PostReceive(1, {x.Sge(0, kReceiveBytes)});
  y.Post(SendWr(IBV_WR_SEND, 8), {y.Sge(0, kMaxLaneBytes + 1)});
  world.Ring(y);
  world.Run();
  EXPECT_EQ(x.Received().size(), 2u);
  EXPECT_EQ(Granted().lane, 0u);
}

TEST_P(LanesTest, ThereIsNoLaneForAQueueThatRefusesIt) {
  y.recv_cq->control->refuses_lanes = 1;
  const size_t segments = world.b().shared_memory.live_segments();
  Converse();
  EXPECT_EQ(world.b().shared_memory.live_segments(), segments) << "memory for no lane";
  EXPECT_EQ(Granted().lane, 0u);
  EXPECT_EQ(Offered().number, 0u);
}

TEST_P(LanesTest, ThereIsNoLaneWhileAHostHasToSeeEachRequest) {
  for (Node* const node : {&world.a, &world.b()}) {
    world.a.permits_execution = world.b().permits_execution = true;
    Make();
    node->permits_execution = false;
    Converse();
    EXPECT_FALSE(HasLane());
  }
}

TEST_P(LanesTest, TheMessagesFitIntoTheQueue) {
  Make(/*depth=*/1, /*cq_entries=*/1);
  Converse();
  EXPECT_FALSE(HasLane());
  // A lane takes half of a queue.
  Make(/*depth=*/15, /*cq_entries=*/15);
  Converse();
  ASSERT_TRUE(HasLane());
  EXPECT_EQ(y.recv_cq->lane_room, 7u);
  GiveRoom();
  for (uint64_t i = 0; i < 7; i++) EXPECT_TRUE(Add(i));
  EXPECT_FALSE(Add(7));
  world.b().engine.EndPermits();
  EXPECT_EQ(y.recv_cq->lane_room, 0u);
  EXPECT_EQ(y.Received().size(), 7u);
  Make(/*depth=*/15, /*cq_entries=*/63);
  Converse();
  ASSERT_TRUE(HasLane());
  EXPECT_EQ(y.recv_cq->lane_room, 15u);
}

TEST_P(LanesTest, ACompletionFollowsTheMessagesThatWait) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  CqEntry other{};
  other.wc.wr_id = 99;
  ASSERT_TRUE(y.recv_cq->Push(other, false));
  const auto all = y.Received();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].wr_id, 2u);
  EXPECT_EQ(all[1].wr_id, 99u);
  EXPECT_FALSE(Add(4)) << "closed";
}

TEST_P(LanesTest, ACompletionLeavesALaneWithoutMessagesOpen) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  Take();
  ASSERT_TRUE(y.recv_cq->Push(CqEntry{}, false));
  EXPECT_TRUE(Add(4));
}

TEST_P(LanesTest, AThreadThatPlacesAMessageKeepsTheLaneClosed) {
  Converse();
  GiveRoom();
  ASSERT_TRUE(Add(3));
  SendLane& lane = Lane();
  ASSERT_TRUE(lane.Take(Offered().number, 0));
  world.b().engine.EndPermits();
  EXPECT_TRUE(y.Received().empty()) << "the thread has the message";
  SendByHosts(4);
  EXPECT_FALSE(HasLane());
  lane.HavePlaced(1);
  SendByHosts(5);
  SendByHosts(6);
  EXPECT_TRUE(HasLane());
}

TEST_P(LanesTest, FalseNumbersOfProgramsChangeOnlyTheirConnection) {
  const auto break_lane = [this](int how) {
    SendLane& lane = Lane();
    const uint32_t number = Offered().number;
    switch (how) {
      case 0:
        lane.added = LaneCount{number, 0x7fffffff}.word();
        break;
      case 1:
        lane.taken = LaneCount{number, 0x7fffffff}.word();
        break;
      case 2:
        lane.added = LaneCount{number, 40}.word();  // more than there are receives
        break;
      case 3:
        lane.MessageAt(0).length = UINT32_MAX;
        lane.added = LaneCount{number, 1}.word();
        break;
      case 4:
        lane.placed = 12345;
        break;
      case 5:
        lane.MessageAt(0).bytes = lane.MessageAt(0).extra_bytes = UINT64_MAX;
        lane.added = LaneCount{number, 1}.word();
        break;
      default:
        std::memset(static_cast<void*>(&lane), 0xff, sizeof lane);
        break;
    }
  };
  for (int how = 0; how <= 6; how++) {
    Make();
    Converse();
    ASSERT_TRUE(HasLane()) << how;
    break_lane(how);
    world.a.engine.CountExecuted();
    world.b().engine.CountExecuted();
    world.b().engine.EndPermits();
    world.a.engine.EndPermits();
    (void)y.Received();
    ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, x.qp->handle));
    ASSERT_TRUE(world.b().verbs.DestroyQp(world.now, kGroup, y.qp->handle));
  }
}

TEST_P(LanesTest, AWrongReferenceOpensNoLane) {
  if (GetParam()) GTEST_SKIP() << "needs two hosts";
  has_lane_memory = false;
  Converse();
  EXPECT_FALSE(HasLane());
  SendByHosts(3);
  EXPECT_EQ(y.Received().size(), 1u);
}

TEST_P(LanesTest, AHostOpensALimitedNumberOfLanes) {
  std::vector<std::pair<Endpoint, Endpoint>> all;
  for (size_t i = 0; i < Lanes::kMaxLanes + 2; i++) {
    Make();
    Converse();
    EXPECT_EQ(HasLane(), i < Lanes::kMaxLanes) << i;
    all.emplace_back(x, y);
  }
  x = all[0].first;
  y = all[0].second;
  ASSERT_TRUE(world.a.verbs.DestroyQp(world.now, kGroup, x.qp->handle));
  ASSERT_TRUE(world.b().verbs.DestroyQp(world.now, kGroup, y.qp->handle));
  Make();
  Converse();
  EXPECT_TRUE(HasLane());
}

}  // namespace
}  // namespace rdmaemu::transport::testing
