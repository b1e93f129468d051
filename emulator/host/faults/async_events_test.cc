// Fault rules at asynchronous events, and rules that raise them.
#include "emulator/host/faults/async_events.h"

#include <gtest/gtest.h>

#include "emulator/fault/grammar.h"
#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;

class AsyncFaultsTest : public FaultQps {
 protected:
  std::vector<GetAsyncEventOut> AsyncEventsOf(Verb& verb) {
    std::vector<GetAsyncEventOut> all;
    GetAsyncEventOut out{};
    while (verb.client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, out) == 0) {
      all.push_back(out);
    }
    return all;
  }
  std::vector<int> TypesOf(Verb& verb) {
    std::vector<int> types;
    for (const GetAsyncEventOut& event : AsyncEventsOf(verb)) types.push_back(event.type);
    return types;
  }
  void MakeSrq(Verb& verb) {
    SrqOut out{};
    ASSERT_EQ(verb.client.Call(CallOp::kCreateSrq, CreateSrqIn{verb.pd, 8, 1, 0, kSrqCookie}, out),
              0);
  }
  static constexpr uint64_t kSrqCookie = 55, kCqCookie = 77;  // the latter is class Verb's
};

class EveryAsyncEvent : public AsyncFaultsTest, public ::testing::WithParamInterface<int> {};

TEST_P(EveryAsyncEvent, IsRaisedByARuleOnWhatItIsOf) {
  MakeSrq(verb_a_);
  OnServer("at = \"time\", at_ms = 5, async = \"" + fault::AsyncEvents()[GetParam()] + "\"");
  Await(milliseconds(4));
  EXPECT_TRUE(AsyncEventsOf(verb_a_).empty());
  Await(milliseconds(2));
  const auto events = AsyncEventsOf(verb_a_);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, GetParam());
  const std::string& name = fault::AsyncEvents()[GetParam()];
  if (name.starts_with("cq")) {
    EXPECT_EQ(events[0].cookie, kCqCookie);
  } else if (name.starts_with("srq")) {
    EXPECT_EQ(events[0].cookie, kSrqCookie);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryAsyncEvent,
                         ::testing::Range(0, static_cast<int>(IBV_EVENT_WQ_FATAL)),
                         [](const auto& tested) { return fault::AsyncEvents()[tested.param]; });

TEST_F(AsyncFaultsTest, ACompletionRaisesTheEventOfItsOwnQueuePair) {
  Connect();  // second QPs, which get the event
  OnServer("at = \"wc.send\", async = \"qp_fatal\"");
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  EXPECT_EQ(PollAll(verb_a_).size(), 1u) << "the completion comes as it is";
  EXPECT_EQ(TypesOf(verb_a_), std::vector<int>{IBV_EVENT_QP_FATAL});
  EXPECT_TRUE(TypesOf(verb_b_).empty());
}

TEST_F(AsyncFaultsTest, AnEventIsLostLateOrAnother) {
  OnServer("at = \"async.port_err\", nth = 1, drop = true");
  OnServer("name = \"late\", at = \"async.port_err\", nth = 2, delay_ms = 50");
  OnServer("name = \"other\", at = \"async.port_err\", async = \"lid_change\"");
  OnServer(
      "name = \"down\", at = \"time\", at_ms = 1, repeat_ms = 10, times = 3, port = \"down\", "
      "return_after_ms = 5");
  Await(milliseconds(29));
  EXPECT_EQ(TypesOf(verb_a_), (std::vector<int>{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE,
                                                IBV_EVENT_LID_CHANGE, IBV_EVENT_PORT_ACTIVE}));
  Await(milliseconds(60));
  EXPECT_EQ(TypesOf(verb_a_), std::vector<int>{IBV_EVENT_PORT_ERR});
}

TEST_F(AsyncFaultsTest, ALateEventOfAnObjectThatHasGoneIsForgotten) {
  OnServer("at = \"async.qp_fatal\", delay_ms = 50");
  OnServer("name = \"raise\", at = \"time\", at_ms = 1, async = \"qp_fatal\"");
  Await(milliseconds(10));
  DestroyOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kDestroyQp, HandleIn{a_.made.handle, 0}, out), 0);
  Await(milliseconds(60));
  EXPECT_TRUE(TypesOf(verb_a_).empty());
}

TEST_F(AsyncFaultsTest, ARuleThatAnswersItselfLeavesTheHostAlive) {
  OnServer("name = \"up\", at = \"async.port_err\", port = \"up\"");
  OnServer("name = \"down\", at = \"async.port_active\", port = \"down\"");
  OnServer("name = \"begin\", at = \"time\", at_ms = 1, port = \"down\"");
  world_.now += milliseconds(2);
  server_host_.Expire(world_.now);
  GetAsyncEventOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kGetAsyncEvent, HandleIn{verb_a_.context, 0}, out), 0);
  AskFaults(server_client_, CallOp::kFaultClear);
  EXPECT_LE(AsyncEventsOf(verb_a_).size(), Verbs::kMaxAsyncEvents);
}

}  // namespace
}  // namespace rdmaemu::testing
