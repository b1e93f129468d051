// Events of messages in lanes (emulator/abi/send_lane.h, CompletionQueue::MoveArming), and requests
// that a message acknowledges. The tests act as the two programs.
#include <cstring>
#include <memory>

#include "emulator/transport/harness.h"
#include "emulator/transport/lanes.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kEventReceiveBytes = 256;

// The parameter says whether both QPs are on one host.
class LaneEventsTest : public ::testing::TestWithParam<bool> {
 protected:
  LaneEventsTest() : world(/*local=*/GetParam()) {
    world.PermitExecution();
    channel = *world.b().verbs.CreateChannel(kGroup, world.b().context->handle);
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.MakeWithChannel(world.b(), *channel, 4096);
    world.Join(x, y);
    for (uint64_t i = 0; i < 16; i++)
      y.PostReceive(i, {y.Sge(i * kEventReceiveBytes, kEventReceiveBytes)});
    for (int i = 0; i < 3; i++) SendByHosts();
  }
  void SendByHosts() {
    x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 16)});
    world.Ring(x);
    world.Run();
    world.CarryLaneOffers();
    EXPECT_EQ(x.Sent().size(), 1u);
    EXPECT_EQ(y.Received().size(), 1u);
  }
  // Acts as the receiver's program, which arms its queue in the lane.
  void Arm(uint32_t kind = kCqArmedAny) {
    const Permit permit = x.qp->control->permit.Read();
    ASSERT_NE(permit.lane, 0u);
    lane = reinterpret_cast<SendLane*>(world.a.shared_memory.Bytes(SegmentId{permit.lane}).data());
    number = permit.lane_number;
    lane->SetRoom(number, 16, kMaxLaneBytes);
    y.recv_cq->control->armed = ArmedWord(kCqArmedInLane, y.recv_cq->ring.Consumer());
    lane->Arm(number, kind, 0);
  }
  // Act as the sender's program.
  void Add(uint32_t flags = 0, uint32_t acknowledged = 0) {
    const LaneCount added = lane->Added();
    LaneMessage& message = lane->MessageAt(added.count);
    message.length = 16;
    message.flags = flags;
    message.acknowledged = acknowledged;
    message.bytes = uint64_t{16} * (added.count + 1);
    message.extra_bytes = 0;
    ASSERT_TRUE(lane->Add(number, added.count));
  }
  bool Record(bool is_solicited = false) {
    return lane->RecordEvent(number, lane->CountOf(number), is_solicited);
  }
  // Acts as the receiver's program.
  void Take() {
    const LaneCount taken = lane->Taken();
    ASSERT_TRUE(lane->Take(number, taken.count));
    lane->HavePlaced(1);
    const uint32_t at = y.qp->recv_ring.Consumer();
    ASSERT_TRUE(y.qp->recv_ring.MoveConsumer(at, y.qp->recv_ring.Next(at)));
  }
  // The receiver has sent a request. The sender's program answers it by the lane, before the
  // acknowledgement. The answer acknowledges so many PSNs.
  void AnswerEarly(uint32_t psns) {
    Arm();
    x.PostReceive(7, {x.Sge(0, 4096)});
    y.Post(SendWr(IBV_WR_SEND, 55), {y.Sge(0, 600)});
    world.Ring(y);
    (void)world.b().engine.Work(world.now);
    Add(0, PsnAdd(y.qp->attr.sq_psn, psns) | SendLane::kAcknowledges);
    CloseLanes();
  }
  void CloseLanes() { world.b().engine.CloseLanes(); }
  uint64_t Counted() { return world.b().counters.value(channel->counter); }
  uint32_t Events() { return channel->ring.Count(); }
  uint32_t ArmedInQueue() { return ArmedKind(y.recv_cq->control->armed); }

  World world;
  CompletionChannel* channel;
  Endpoint x, y;
  SendLane* lane = nullptr;
  uint32_t number = 0;
};

TEST(LaneArmTest, AWordKeepsItsFields) {
  for (const LaneArm& arm :
       {LaneArm{0xfff, 0xffffff, 2, 1, 0x1ff, 0xffff}, LaneArm{}, LaneArm{1, 2, 1, 0, 3, 4}}) {
    const LaneArm read = LaneArm::Of(arm.word());
    EXPECT_EQ(read.word(), arm.word());
    EXPECT_EQ(read.number, arm.number);
    EXPECT_EQ(read.added, arm.added);
    EXPECT_EQ(read.kind, arm.kind);
    EXPECT_EQ(read.takes, arm.takes);
    EXPECT_EQ(read.times, arm.times);
    EXPECT_EQ(read.raised, arm.raised);
  }
}

TEST_P(LaneEventsTest, OneArmingRaisesOneEvent) {
  Arm();
  EXPECT_FALSE(lane->RecordEvent(number, 0, false)) << "that message is older";
  Add();
  EXPECT_TRUE(Record());
  Add();
  EXPECT_FALSE(Record());
  EXPECT_TRUE(lane->TakeRaised());
  EXPECT_FALSE(lane->TakeRaised());
  CloseLanes();
  EXPECT_EQ(Counted(), 0u) << "the sender's program raises the counter";
  EXPECT_EQ(ArmedInQueue(), kCqUnarmed);
  EXPECT_EQ(y.Received().size(), 2u);
}

TEST_P(LaneEventsTest, OnlyASolicitedMessageRaisesTheEventOfASolicitedArming) {
  Arm(kCqArmedSolicited);
  for (int i = 0; i < 3; i++) {
    Add();
    EXPECT_FALSE(Record());
  }
  Add(LaneMessage::kIsSolicited);
  EXPECT_TRUE(Record(true));
}

TEST_P(LaneEventsTest, AnArmingForAllHoldsBesideOneForSolicitedMessages) {
  Arm(kCqArmedAny);
  lane->Arm(number, kCqArmedSolicited, 0);
  Add();
  EXPECT_TRUE(Record());
}

TEST_P(LaneEventsTest, AMessageFromBeforeTheArmingRaisesNoEvent) {
  Arm();
  Add();
  ASSERT_TRUE(Record());
  Add();
  lane->Arm(number, kCqArmedAny, 0);
  EXPECT_FALSE(Record());
  Add();
  EXPECT_TRUE(Record());
}

TEST_P(LaneEventsTest, TheArmingOutlivesTheLane) {
  Arm();
  CloseLanes();
  EXPECT_EQ(ArmedInQueue(), kCqArmedAny);
  EXPECT_EQ(Events(), 0u);
  SendByHosts();
  EXPECT_EQ(Events(), 1u);
  EXPECT_EQ(Counted(), 1u);
}

// The sender's thread was stopped, or killed, after it had added the message.
TEST_P(LaneEventsTest, TheHostRaisesTheEventOfTheLastMessage) {
  for (const bool is_taken : {false, true}) {
    Arm();
    Add();
    if (is_taken) Take();
    const uint32_t before = Events();
    CloseLanes();
    EXPECT_EQ(Events(), before + 1);
    EXPECT_EQ(ArmedInQueue(), kCqUnarmed);
    EXPECT_FALSE(Record()) << "it was raised";
    EXPECT_EQ(y.Received().size(), is_taken ? 0u : 1u);
    for (int i = 0; i < 3; i++) SendByHosts();
  }
}

// The sender's program cannot raise the counter.
TEST_P(LaneEventsTest, TheSendersHostHasTheEventRaised) {
  Arm();
  Add();
  world.a.engine.CloseSentLane(world.now, *x.qp);
  world.CarryLaneOffers();
  EXPECT_EQ(Events(), 1u);
  EXPECT_EQ(Counted(), 1u);
  EXPECT_EQ(y.Received().size(), 1u);
  EXPECT_EQ(ArmedInQueue(), kCqUnarmed);
}

TEST_P(LaneEventsTest, ACompletionOfTheHostRaisesTheEventOnce) {
  Arm();
  ASSERT_TRUE(y.recv_cq->Push(CqEntry{}, false));
  EXPECT_EQ(Events(), 1u);
  Add();
  EXPECT_FALSE(Record());
}

TEST_P(LaneEventsTest, AnArmedQueueIsAsBeforeAfterAForgedWord) {
  Arm();
  CloseLanes();
  y.recv_cq->control->armed = ArmedWord(kCqArmedInLane, 0);
  ASSERT_TRUE(y.recv_cq->Push(CqEntry{}, true));
  EXPECT_EQ(Events(), 0u) << "there is no lane";
}

TEST_P(LaneEventsTest, AMessageAcknowledgesWhatItAnswers) {
  if (GetParam()) GTEST_SKIP() << "one host has executed the request";
  AnswerEarly(1);
  const auto sent = y.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 55u);
  EXPECT_EQ(sent[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(y.Received().size(), 1u);
  world.Run();  // the acknowledgement is late
  EXPECT_TRUE(y.Sent().empty());
}

TEST_P(LaneEventsTest, AFalseAcknowledgementCompletesNothing) {
  if (GetParam()) GTEST_SKIP() << "one host has executed the request";
  AnswerEarly(1000);
  EXPECT_TRUE(y.Sent().empty());
  world.Run();
  EXPECT_EQ(y.Sent().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Hosts, LaneEventsTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("OneHost") : std::string("TwoHosts");
});

}  // namespace
}  // namespace rdmaemu::transport::testing
