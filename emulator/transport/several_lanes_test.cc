// Several lanes whose messages go to one CQ (lanes.h, emulator/abi/lane_order.h). The tests act as
// the programs.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulator/transport/harness.h"
#include "emulator/transport/lanes.h"

namespace rdmaemu::transport::testing {
namespace {

// ---- the order

class LaneOrderTest : public ::testing::Test {
 protected:
  LaneOrderTest() {
    for (int i = 0; i < 2; i++) {
      lanes.push_back(std::make_unique<SendLane>());
      lanes.back()->Open(kOpening, 0);
    }
  }
  void Add(int lane, uint64_t time_ns) {
    SendLane& to = *lanes[static_cast<size_t>(lane)];
    const uint32_t count = to.Added().count;
    to.MessageAt(count).added_ns = time_ns;
    ASSERT_TRUE(to.Add(kOpening, count));
  }
  void Note() {
    for (size_t i = 0; i < 2; i++) order.Note(*lanes[i], kOpening, cursors[i]);
  }
  void LookAgain() {
    for (size_t i = 0; i < 2; i++) order.LookAgain(*lanes[i], kOpening, cursors[i]);
  }

  static constexpr uint32_t kOpening = 5;
  std::vector<std::unique_ptr<SendLane>> lanes;
  LaneCursor cursors[2]{};
  LaneOrder order;
};

TEST_F(LaneOrderTest, EmptyLanesHaveNoMessages) {
  Note();
  EXPECT_FALSE(order.has_any());
  EXPECT_FALSE(order.IsDue(cursors[0]));
}

TEST_F(LaneOrderTest, AMessageThatCameBeforeANotedOneIsSeen) {
  Add(1, 20);
  order.Note(*lanes[0], kOpening, cursors[0]);
  Add(0, 10);  // after the first look at lane 0
  order.Note(*lanes[1], kOpening, cursors[1]);
  EXPECT_FALSE(order.IsDue(cursors[0]));
  LookAgain();
  EXPECT_TRUE(order.IsDue(cursors[0]));
  EXPECT_TRUE(order.IsDue(cursors[1]));
}

// Something that came before it may be in a lane that was looked at before.
TEST_F(LaneOrderTest, AMessageThatCameAfterAllNotedOnesWaits) {
  Add(0, 10);
  Note();
  Add(1, 20);
  LookAgain();
  EXPECT_TRUE(order.IsDue(cursors[0]));
  EXPECT_FALSE(order.IsDue(cursors[1]));
}

TEST_F(LaneOrderTest, ACursorPassesAllMessages) {
  for (const uint64_t time_ns : {10, 20, 30}) Add(0, time_ns);
  Note();
  for (const uint64_t time_ns : {10, 20, 30}) {
    ASSERT_TRUE(order.IsDue(cursors[0]));
    EXPECT_EQ(cursors[0].next_ns, time_ns);
    LaneOrder::Advance(*lanes[0], cursors[0]);
  }
  EXPECT_FALSE(order.IsDue(cursors[0]));
}

TEST_F(LaneOrderTest, FalseNumbersMoveACursorAtMostToItsEnd) {
  for (const uint64_t time_ns : {10, 20, 30}) Add(0, time_ns);
  Note();
  LaneOrder::Advance(*lanes[0], cursors[0]);
  for (const uint32_t count : {0u, 1u, 2u, 3u, 4u, UINT32_MAX}) {
    lanes[0]->taken = LaneCount{kOpening, count}.word();
    LaneCursor cursor = cursors[0];
    for (int i = 0; i < 4 && cursor.has_message(); i++) {
      LaneOrder::Advance(*lanes[0], cursor);
      LaneOrder::SkipTaken(*lanes[0], kOpening, cursor);
    }
    EXPECT_EQ(cursor.next, cursor.end) << count;
  }
}

// ---- the host

constexpr uint32_t kBytes = 256;  // of a receive
constexpr uint32_t kPosted = 8;   // receives

// A pair of QPs, of which the first one sends.
struct Sending {
  Endpoint x, y;
};

// The parameter says whether all QPs are on one host.
class SeveralLanesTest : public ::testing::TestWithParam<bool> {
 protected:
  SeveralLanesTest() : world(/*local=*/GetParam()) { world.PermitExecution(); }
  // Connects the pairs, and exchanges messages by the hosts until there are lanes. A change of a QP
  // closes all lanes.
  void Begin(size_t count, const CompletionChannel* channel = nullptr, uint32_t cq_entries = 255) {
    constexpr size_t kBuffer = kPosted * kBytes;
    for (size_t i = 0; i < count; i++) {
      Sending each{world.Make(world.a, IBV_QPT_RC, kBuffer), {}};
      each.y = i > 0 ? world.MakeSibling(all[0].y, kBuffer)
               : channel == nullptr
                   ? world.Make(world.b(), IBV_QPT_RC, kBuffer, 31, cq_entries)
                   : world.MakeWithChannel(world.b(), *channel, kBuffer, cq_entries);
      all.push_back(std::move(each));
      world.Join(all[i].x, all[i].y);
      for (uint32_t at = 0; at < kPosted; at++) {
        all[i].y.PostReceive(i * 100 + at, {all[i].y.Sge(at * kBytes, kBytes)});
      }
    }
    for (Sending& each : all) {
      for (int k = 0; k < 2; k++) SendByHosts(each);
      (void)each.y.Received();
    }
  }
  void SendByHosts(Sending& from) {
    from.x.Post(SendWr(IBV_WR_SEND, 1), {from.x.Sge(0, 16)});
    world.Ring(from.x);
    world.Run();
    world.CarryLaneOffers();
  }
  // Returns nullptr if the pair has no lane.
  SendLane* LaneOf(const Sending& pair) {
    const Permit permit = pair.x.qp->control->permit.Read();
    if (permit.number == 0 || permit.lane == 0) return nullptr;
    return reinterpret_cast<SendLane*>(world.a.shared_memory.Bytes(SegmentId{permit.lane}).data());
  }
  size_t CountLanes() {
    size_t count = 0;
    for (const Sending& each : all) count += LaneOf(each) != nullptr ? 1 : 0;
    return count;
  }
  // Acts as both programs: a message of `bytes` is added at this time.
  bool Add(size_t pair, uint64_t time_ns, uint32_t bytes = 16) {
    SendLane* const lane = LaneOf(all[pair]);
    if (lane == nullptr) return false;
    const LaneCount added = lane->Added();
    lane->SetRoom(added.number, kPosted - 2, kMaxLaneBytes);
    if (!lane->HasRoom(added.number, added.count, bytes)) return false;
    LaneMessage& message = lane->MessageAt(added.count);
    message.length = bytes;
    message.flags = 0;
    message.added_ns = time_ns;
    return lane->Add(added.number, added.count);
  }
  CompletionQueue& cq() { return *all[0].y.recv_cq; }
  // The receives' wr_ids: 100 times the pair, and the receive's number from 2 on.
  void ExpectReceived(const std::vector<uint64_t>& wr_ids) {
    std::vector<uint64_t> got;
    for (const ib_uverbs_wc& wc : all[0].y.Received()) got.push_back(wc.wr_id);
    EXPECT_EQ(got, wr_ids);
  }

  World world;
  std::vector<Sending> all;
};
INSTANTIATE_TEST_SUITE_P(Hosts, SeveralLanesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST_P(SeveralLanesTest, TheQpsOfACqHaveALaneEach) {
  Begin(3);
  EXPECT_EQ(CountLanes(), 3u);
  EXPECT_EQ(cq().lanes.size(), 3u);
  EXPECT_EQ(cq().lane_room, 3 * 31u) << "as many as each QP has receives";
  world.b().engine.EndPermits();
  EXPECT_TRUE(cq().lanes.empty());
  EXPECT_EQ(cq().lane_room, 0u);
}

TEST_P(SeveralLanesTest, TheMessagesOfAllLanesFitIntoTheCq) {
  Begin(6);
  EXPECT_EQ(CountLanes(), 5u) << "31 messages each, and the last one 3";
  EXPECT_EQ(cq().lane_room, cq().ring.usable() / 2);
}

TEST_P(SeveralLanesTest, ACompletionFollowsTheMessagesInTheOrderOfTheirTimes) {
  Begin(3);
  ASSERT_TRUE(Add(0, 30));
  ASSERT_TRUE(Add(1, 10));
  ASSERT_TRUE(Add(2, 20));
  ASSERT_TRUE(Add(1, 40));
  CqEntry other{};
  other.wc.wr_id = 999;
  ASSERT_TRUE(cq().Push(other, false));
  ExpectReceived({102, 202, 2, 103, 999});
  EXPECT_EQ(CountLanes(), 3u) << "they stay open";
  for (size_t pair = 0; pair < 3; pair++) EXPECT_TRUE(LaneOf(all[pair])->IsQuiet());
  ASSERT_TRUE(Add(2, 50));
  world.b().engine.EndPermits();
  ExpectReceived({203});
}

TEST_P(SeveralLanesTest, ARequestFollowsTheMessagesOfOtherQps) {
  Begin(2);
  ASSERT_TRUE(Add(0, 20));
  ASSERT_TRUE(Add(1, 10));
  SendByHosts(all[0]);
  ExpectReceived({102, 2, 3});
  EXPECT_TRUE(Add(1, 30)) << "the other lane stays open";
}

TEST_P(SeveralLanesTest, CountersKnowMessagesThatTheHostHasTaken) {
  Begin(2);
  const auto received = [this] {
    world.b().engine.CountExecuted();
    return all[0].y.qp->device->counters.rdma_recvs;
  };
  const uint64_t before = received();
  for (uint64_t i = 0; i < 3; i++) ASSERT_TRUE(Add(i % 2, i));
  ASSERT_TRUE(cq().Push(CqEntry{}, false));
  EXPECT_EQ(received(), before + 3);
  // The program takes the next one.
  ASSERT_TRUE(Add(0, 9));
  SendLane& lane = *LaneOf(all[0]);
  ASSERT_TRUE(lane.Take(lane.Taken().number, 2));
  lane.HavePlaced(1);
  EXPECT_EQ(received(), before + 4);
}

TEST_P(SeveralLanesTest, AMessageThatFailsItsQpEndsNoOther) {
  Begin(3);
  // Its receive has room, but its key is not that of the lane any more.
  ASSERT_TRUE(Add(0, 10));
  ASSERT_TRUE(Add(1, 20));
  ASSERT_TRUE(Add(0, 30));
  all[0].y.qp->recv_ring.SlotAs<rxe_recv_wqe>(2)->dma.length = 1;
  auto* const sge = reinterpret_cast<rxe_sge*>(all[0].y.qp->recv_ring.SlotAs<rxe_recv_wqe>(2) + 1);
  sge->length = 1;
  ASSERT_TRUE(cq().Push(CqEntry{}, false));
  const auto got = all[0].y.Received();
  size_t good = 0;
  for (const ib_uverbs_wc& wc : got) good += wc.wr_id == 102 && wc.status == IBV_WC_SUCCESS;
  EXPECT_EQ(good, 1u) << "the other QP's message has arrived";
  EXPECT_EQ(all[0].y.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(all[1].y.qp->state(), IBV_QPS_RTS);
  for (const ib_uverbs_wc& wc : got) {
    EXPECT_TRUE(wc.wr_id != 3 || wc.status == IBV_WC_WR_FLUSH_ERR) << "it followed the failed one";
  }
}

TEST_P(SeveralLanesTest, AnArmedCqHasOneLane) {
  CompletionChannel* const channel =
      *world.b().verbs.CreateChannel(kGroup, world.b().context->handle);
  Begin(2, channel);
  EXPECT_EQ(CountLanes(), 2u);
  world.a.engine.EndPermits();
  world.b().engine.EndPermits();
  cq().control->uses_events = 1;
  for (Sending& each : all) {
    for (int k = 0; k < 2; k++) SendByHosts(each);
  }
  EXPECT_EQ(CountLanes(), 1u);
}

// The sender cannot raise events there: it has its host close the lane.
TEST_P(SeveralLanesTest, OnlyTheFirstLaneOfACqHasItsEvents) {
  CompletionChannel* const channel =
      *world.b().verbs.CreateChannel(kGroup, world.b().context->handle);
  Begin(2, channel);
  ASSERT_EQ(CountLanes(), 2u);
  EXPECT_TRUE(LaneOf(all[0])->HasEvents());
  EXPECT_FALSE(LaneOf(all[1])->HasEvents());
  EXPECT_EQ(all[1].y.qp->control->lane.Read().takes_arming, 0u);
}

TEST_P(SeveralLanesTest, ALaneThatClosesLeavesTheArmingInAnother) {
  CompletionChannel* const channel =
      *world.b().verbs.CreateChannel(kGroup, world.b().context->handle);
  Begin(2, channel);
  // The program arms the CQ in the first lane. Then the second one has a message, and closes.
  CqControl& control = *cq().control;
  control.armed = ArmedWord(kCqArmedInLane, cq().ring.Consumer());
  LaneOf(all[0])->Arm(LaneOf(all[0])->Added().number, kCqArmedAny, 0);
  ASSERT_TRUE(Add(1, 10));
  world.a.engine.CloseSentLane(world.now, *all[1].x.qp);
  if (!GetParam()) SendByHosts(all[1]);
  EXPECT_EQ(world.b().counters.value(channel->counter), 1u) << "one arming, one event";
  EXPECT_EQ(LaneOf(all[0])->Armed().kind, kCqUnarmed);
}

TEST_P(SeveralLanesTest, ACqHasALimitedNumberOfLanes) {
  Begin(Lanes::kMostLanesOfCq + 2, nullptr, /*cq_entries=*/4095);
  EXPECT_EQ(cq().lanes.size(), Lanes::kMostLanesOfCq);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
