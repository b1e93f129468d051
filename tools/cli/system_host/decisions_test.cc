#include "tools/cli/system_host/decisions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rdmaemu::cli {
namespace {

using layer::faults::AnswerOut;
using layer::faults::Does;
using layer::faults::Door;
using layer::faults::MomentIn;
using std::chrono::milliseconds;

MomentIn CallOf(layer::faults::CallNumber call) {
  MomentIn moment{};
  moment.door = static_cast<uint32_t>(Door::kCall);
  moment.number = call;
  return moment;
}
const MomentIn kRegMr = CallOf(layer::faults::kCall_ibv_reg_mr);

class DecisionsTest : public ::testing::Test {
 protected:
  nlohmann::json Control(CallOp op, const std::string& text) {
    const Reply reply = decisions_.Control(now_, 0, op, std::as_bytes(std::span(text)));
    const std::string json(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
    return nlohmann::json::parse(json, nullptr, false);
  }
  std::string ErrorOfAdding(const std::string& rule) {
    return Control(CallOp::kFaultAdd, rule).value("error", "");
  }
  void Add(const std::string& rule) { ASSERT_EQ(ErrorOfAdding(rule), ""); }
  Does Ask(uint32_t connection, const MomentIn& moment) {
    return static_cast<Does>(decisions_.Ask(now_, connection, "program", moment).does);
  }

  Time now_{};
  Decisions decisions_{{}, "host"};
};

TEST_F(DecisionsTest, EveryPlaceOfACallIsAWordOfTheGrammar) {
  for (const char* const subject : layer::faults::kCallSubjects) {
    const std::string name = subject;
    EXPECT_EQ(ErrorOfAdding("at = \"call." + name + "\", nth = 1, errno = \"EIO\""), "") << name;
    Control(CallOp::kFaultClear, "");
  }
}

TEST_F(DecisionsTest, AnErrnoFailsTheCallBeforeOrAfterItsEffect) {
  Add(R"(name = "before", at = "call.reg_mr", nth = 1, errno = "ENOMEM")");
  Add(R"(name = "after", at = "call.reg_mr", nth = 2, errno = "EIO", takes_effect = true)");
  const AnswerOut first = decisions_.Ask(now_, 1, "program", kRegMr);
  EXPECT_EQ(first.does, static_cast<uint32_t>(Does::kFail));
  EXPECT_EQ(first.value, ENOMEM);
  EXPECT_STREQ(first.rule, "before");
  EXPECT_EQ(Ask(2, kRegMr), Does::kFailAfter);
  EXPECT_EQ(Ask(3, kRegMr), Does::kProceed);
}

TEST_F(DecisionsTest, ADelayEndsAtItsTimeWhetherItIsAwaitedBeforeOrAfter) {
  Add(R"(at = "call.reg_mr", delay_ms = 5)");
  EXPECT_EQ(Ask(1, kRegMr), Does::kWaitBefore);
  EXPECT_EQ(Ask(2, kRegMr), Does::kWaitBefore);
  EXPECT_FALSE(decisions_.Await(1));
  EXPECT_EQ(decisions_.NextDeadline(), now_ + milliseconds(5));
  decisions_.Expire(now_ + milliseconds(5));
  EXPECT_EQ(decisions_.TakeReady(), 1u);
  EXPECT_EQ(decisions_.TakeReady(), std::nullopt);
  EXPECT_TRUE(decisions_.Await(2));
}

TEST_F(DecisionsTest, ABarrierHoldsUntilItsReleaseAndItsRemoval) {
  Add(R"(name = "gate", at = "call.reg_mr", hold = true, takes_effect = true)");
  EXPECT_EQ(Ask(1, kRegMr), Does::kWaitAfter);
  EXPECT_FALSE(decisions_.Await(1));
  decisions_.Expire(now_ + milliseconds(1000));
  EXPECT_EQ(decisions_.TakeReady(), std::nullopt);
  EXPECT_EQ(Control(CallOp::kFaultList, "").at(0).at("held"), 1);
  Control(CallOp::kFaultRelease, "gate");
  decisions_.Expire(now_);
  EXPECT_EQ(decisions_.TakeReady(), 1u);
  EXPECT_EQ(Ask(2, kRegMr), Does::kWaitAfter);
  Control(CallOp::kFaultRemove, "gate");
  decisions_.Expire(now_);
  EXPECT_TRUE(decisions_.Await(2));
}

TEST_F(DecisionsTest, AProgramThatEndsIsNotHeldAnyMore) {
  Add(R"(name = "gate", at = "call.reg_mr", hold = true)");
  Ask(1, kRegMr);
  decisions_.Await(1);
  decisions_.Forget(1);
  EXPECT_EQ(Control(CallOp::kFaultList, "").at(0).at("held"), 0);
  Control(CallOp::kFaultRelease, "gate");
  decisions_.Expire(now_);
  EXPECT_EQ(decisions_.TakeReady(), std::nullopt);
}

TEST_F(DecisionsTest, OnlyDoorsWithARuleAreWatched) {
  Add(R"(name = "one", at = "call.reg_mr", errno = "EIO")");
  layer::faults::DoorsPage page{};
  decisions_.SetDoors(page);
  for (uint32_t call = 0; call < layer::faults::kCallNumbers; call++) {
    const std::string place = layer::faults::kCallSubjects[call];
    EXPECT_EQ(page.calls[call] != 0, place == "reg_mr") << place;
  }
  EXPECT_FALSE(page.cm_events || page.completions || page.async_events);
  Control(CallOp::kFaultRemove, "one");
  Add(R"(at = "wc.send", drop = true)");
  decisions_.SetDoors(page);
  EXPECT_FALSE(page.calls[layer::faults::kCall_ibv_reg_mr]);
  EXPECT_TRUE(page.completions);
}

TEST_F(DecisionsTest, ARuleAtMemoryMeansItsBytesItsRegionAndItsAccess) {
  Add(R"(name = "bytes", at = "memory.read", address = 0x1000, length = 16, unmapped = true)");
  Add(R"(name = "region", at = "memory", mr_order = 2, unmapped = true)");
  layer::faults::DoorsPage page{};
  decisions_.SetDoors(page);
  EXPECT_TRUE(page.memory);
  MomentIn moment{};
  moment.door = static_cast<uint32_t>(Door::kMemory);
  moment.number = layer::faults::kReadsMemory;
  moment.address = 0x1000 - 8;
  moment.length = 8;
  EXPECT_EQ(Ask(1, moment), Does::kProceed);
  moment.length = 9;
  EXPECT_EQ(Ask(2, moment), Does::kFail);
  moment.number = layer::faults::kWritesMemory;
  EXPECT_EQ(Ask(3, moment), Does::kProceed);
  moment.mr_order = 2;
  EXPECT_EQ(Ask(4, moment), Does::kFail);
}

TEST_F(DecisionsTest, AMomentOfAnUnknownKindProceeds) {
  MomentIn moment{};
  moment.door = 77;
  EXPECT_EQ(Ask(1, moment), Does::kProceed);
  EXPECT_EQ(Ask(1, CallOf(layer::faults::kCallNumbers)), Does::kProceed);
}

}  // namespace
}  // namespace rdmaemu::cli
