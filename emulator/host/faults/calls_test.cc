// Fault rules at calls: calls fail, or their replies are delayed, and the host continues meanwhile.
#include "emulator/host/faults/calls.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CallFaultsTest : public FaultWorld {
 protected:
  Reply Call(CallOp op) {
    const Nothing nothing;
    return server_client_.CallBytes(static_cast<uint32_t>(op), &nothing, sizeof nothing);
  }
  // Returns the delayed reply, or nothing when none is pending.
  std::optional<LateReply> AwaitLate() {
    std::optional<LateReply> late;
    world_.RunUntil(
        [&] {
          late = server_host_.TakeLateReply();
          return late.has_value();
        },
        seconds(10));
    return late;
  }
};

TEST_F(CallFaultsTest, ACallFailsWithTheErrnoOfTheRuleAndHasNoEffect) {
  OnServer("at = \"call.alloc_pd\", nth = 2, errno = \"ENOMEM\"");
  Verb verb(server_client_);
  HandleOut pd{};
  EXPECT_EQ(server_client_.Call(CallOp::kAllocPd, AllocPdIn{}, pd), ENOMEM);
}

TEST_F(CallFaultsTest, ACallThatTakesEffectStillAnswersTheErrno) {
  OnServer("at = \"call.listen\", errno = \"EINTR\", takes_effect = true");
  const uint32_t id = server_.CreateId(RDMA_PS_TCP);
  server_.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket("127.0.0.1", kPort), id});
  const CmCall<rdma_ucm_listen> listen{server_.channel, 0, {id, 8}};
  EXPECT_EQ(server_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_LISTEN), &listen, sizeof listen)
                .error,
            EINTR);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, seconds(1))) << "it does listen";
}

TEST_F(CallFaultsTest, ADelayedCallIsAnsweredAfterItsTimeAndTheHostGoesOnWithOthers) {
  OnServer("at = \"call.list_devices\", first = 1, delay_ms = 50");
  const Time start = world_.now;
  EXPECT_TRUE(Call(CallOp::kListDevices).is_late);
  EXPECT_FALSE(server_host_.TakeLateReply()) << "not yet";
  Client other(world_, server_host_);
  Verb verb(other);  // throws when a call fails
  const auto late = AwaitLate();
  ASSERT_TRUE(late);
  EXPECT_EQ(world_.now - start, milliseconds(50));
  EXPECT_EQ(late->process, server_client_.process);
  EXPECT_EQ(late->reply.error, 0);
  EXPECT_EQ(late->reply.body.size(), sizeof(ListDevicesOut));
  EXPECT_FALSE(AwaitLate());
}

TEST_F(CallFaultsTest, ADelayedCallIsInTheTraceWhenItIsAnswered) {
  OnServer("at = \"call.list_devices\", delay_ms = 50");
  world_.trace.keep_records = true;
  const auto traced = [&] {
    return std::ranges::count_if(world_.trace.records, [](const trace::Record& record) {
      return record.kind == "call" && record.what == "list_devices";
    });
  };
  EXPECT_TRUE(Call(CallOp::kListDevices).is_late);
  EXPECT_EQ(traced(), 0);
  ASSERT_TRUE(AwaitLate());
  EXPECT_EQ(traced(), 1);
}

TEST_F(CallFaultsTest, ADelayedCallTakesEffectWhenItsTimeHasComeUnlessTheRuleSaysBefore) {
  for (const bool takes_effect : {false, true}) {
    AskFaults(server_client_, CallOp::kFaultClear);
    OnServer(std::string("at = \"call.listen\", delay_ms = 50, takes_effect = ") +
             (takes_effect ? "true" : "false"));
    const auto port = static_cast<uint16_t>(kPort + takes_effect);
    const uint32_t id = server_.CreateId(RDMA_PS_TCP);
    server_.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket("127.0.0.1", port), id});
    const CmCall<rdma_ucm_listen> listen{server_.channel, 0, {id, 8}};
    const Time start = world_.now;
    EXPECT_TRUE(
        server_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_LISTEN), &listen, sizeof listen)
            .is_late);
    client_.Connect(RDMA_PS_TCP, "127.0.0.1", port);
    const rdma_ucm_event_resp event = takes_effect ? EventOf(server_) : ClientEvent();
    EXPECT_EQ(TypeOf(event),
              takes_effect ? cm::EventType::kConnectRequest : cm::EventType::kRejected);
    EXPECT_EQ(world_.now, start);
    ASSERT_TRUE(AwaitLate());
    EXPECT_EQ(world_.now - start, milliseconds(50));
  }
}

TEST_F(CallFaultsTest, ACallOfAProcessThatHasEndedIsForgotten) {
  OnServer("at = \"call.list_devices\", delay_ms = 50");
  EXPECT_TRUE(Call(CallOp::kListDevices).is_late);
  server_client_.Kill();
  EXPECT_FALSE(AwaitLate());
  EXPECT_FALSE(server_host_.NextDeadline());
}

TEST_F(CallFaultsTest, MoreCallsThanMayWaitAreAnsweredAtOnceAndCounted) {
  OnServer("at = \"call.list_devices\", delay_ms = 50");
  for (size_t i = 0; i < CallFaults::kMaxDelayed; i++) {
    ASSERT_TRUE(Call(CallOp::kListDevices).is_late);
  }
  EXPECT_FALSE(Call(CallOp::kListDevices).is_late);
  EXPECT_NE(server_host_.StatusJson().find("\"delayed_calls\":1"), std::string::npos);
}

}  // namespace
}  // namespace rdmaemu::testing
