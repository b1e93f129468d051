// Delayed posts and polls that have taken effect. The delay may end before or after the program
// waits.
#include "emulator/host/faults/asked_calls.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

constexpr ProcessId kProgram{1}, kOther{2};
constexpr uint32_t kCaller = 3;

TEST(AskedCallsTest, WhoComesBeforeTheEndWaitsForIt) {
  AskedCalls asked;
  const uint32_t number = asked.Begin(kProgram);
  EXPECT_TRUE(asked.Come(kProgram, kCaller, number));
  EXPECT_EQ(asked.End(number), kCaller) << "to be answered now";
  EXPECT_FALSE(asked.Come(kProgram, kCaller, number)) << "it is over";
}

TEST(AskedCallsTest, WhoComesAfterTheEndDoesNotWait) {
  AskedCalls asked;
  const uint32_t number = asked.Begin(kProgram);
  EXPECT_FALSE(asked.End(number)) << "nobody is to be answered";
  EXPECT_FALSE(asked.Come(kProgram, kCaller, number));
}

TEST(AskedCallsTest, ANumberOfAnotherProgramIsNoNumber) {
  AskedCalls asked;
  const uint32_t number = asked.Begin(kProgram);
  EXPECT_FALSE(asked.Come(kOther, kCaller, number));
  EXPECT_TRUE(asked.Come(kProgram, kCaller, number));
  asked.Forget(kProgram);
  EXPECT_FALSE(asked.End(number));
}

TEST(AskedCallsTest, ThereIsALimit) {
  AskedCalls asked;
  for (size_t i = 0; i < AskedCalls::kMaxAsked; i++) asked.Begin(kProgram);
  EXPECT_FALSE(asked.HasRoom());
  asked.Forget(kProgram);
  EXPECT_TRUE(asked.HasRoom());
}

class AskedCallsOfAHost : public FaultWorld {
 protected:
  Reply Ask(uint32_t again = 0, uint32_t caller = 0) {
    const AskIn in{0, again};
    return server_client_.CallBytes(static_cast<uint32_t>(CallOp::kPostSend), &in, sizeof in,
                                    caller);
  }
  static AskOut OutOf(const Reply& reply) {
    AskOut out{};
    EXPECT_EQ(reply.body.size(), sizeof out);
    if (reply.body.size() == sizeof out) std::memcpy(&out, reply.body.data(), sizeof out);
    return out;
  }
};

TEST_F(AskedCallsOfAHost, WithoutARuleThereIsNothingToSay) {
  EXPECT_EQ(OutOf(Ask()).again, 0u);
  EXPECT_EQ(OutOf(Ask(77)).again, 0u) << "a number that was never given";
}

TEST_F(AskedCallsOfAHost, ABarrierAfterTheEffectHoldsWhoComesBackUntilItLetsGo) {
  OnServer("name = \"gate\", at = \"call.post_send\", hold = true, takes_effect = true");
  const Reply first = Ask();
  EXPECT_FALSE(first.is_late) << "the program is to do it now";
  const uint32_t number = OutOf(first).again;
  ASSERT_NE(number, 0u);
  EXPECT_TRUE(Ask(number, kCaller).is_late);
  EXPECT_FALSE(world_.RunUntil([&] { return server_host_.TakeLateReply().has_value(); },
                               std::chrono::seconds(10)));
  AskFaults(server_client_, CallOp::kFaultRelease, "gate");
  std::optional<LateReply> late;
  EXPECT_TRUE(world_.RunUntil([&] { return (late = server_host_.TakeLateReply()).has_value(); },
                              std::chrono::seconds(1)));
  EXPECT_EQ(late->caller, kCaller) << "the one that waits, not the one that asked first";
}

TEST_F(AskedCallsOfAHost, ABarrierThatLetGoMeanwhileHoldsNobody) {
  OnServer("name = \"gate\", at = \"call.post_send\", hold = true, takes_effect = true");
  const uint32_t number = OutOf(Ask()).again;
  ASSERT_NE(number, 0u);
  AskFaults(server_client_, CallOp::kFaultRelease, "gate");
  world_.RunUntil([] { return false; }, std::chrono::milliseconds(1));
  EXPECT_FALSE(Ask(number).is_late);
}

}  // namespace
}  // namespace rdmaemu::testing
