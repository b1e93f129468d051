// Waiting until a rule has fired often enough, and rules that only count.
#include "emulator/host/faults/waits.h"

#include <gtest/gtest.h>

#include <cstring>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WaitsTest : public FaultWorld {
 protected:
  // Makes the call of `rdmaemu fault wait`, as a process of the server's host that never sent a
  // Hello.
  Reply Wait(ProcessId process, const std::string& rule, uint64_t times = 1) {
    std::vector<std::byte> message(sizeof(CallHeader) + sizeof(FaultWaitIn) + rule.size());
    const CallHeader header{static_cast<uint32_t>(CallOp::kFaultWait),
                            static_cast<uint32_t>(message.size() - sizeof(CallHeader))};
    const FaultWaitIn in{times};
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, &in, sizeof in);
    std::memcpy(message.data() + sizeof header + sizeof in, rule.data(), rule.size());
    return server_host_.Call(world_.now, process, message);
  }
  static std::string TextOf(const Reply& reply) {
    EXPECT_EQ(reply.error, 0);
    return {reinterpret_cast<const char*>(reply.body.data()), reply.body.size()};
  }
  // Returns the late reply that is ready now.
  std::string LateText() {
    const auto due = server_host_.NextDeadline();
    EXPECT_TRUE(due && *due <= world_.now) << "the host says that there is something to do";
    server_host_.Expire(world_.now);
    const auto late = server_host_.TakeLateReply();
    if (!late) return "";
    EXPECT_EQ(late->process, tool_);
    return TextOf(late->reply);
  }
  void Resolve() { server_.CreateId(RDMA_PS_TCP); }

  ProcessId tool_ = server_host_.Attach(world_.now, {1, "rdmaemu"});
};

TEST_F(WaitsTest, IsAnsweredWhenTheRuleHasFiredSoOften) {
  OnServer("name = \"up\", at = \"call.create_id\"");
  EXPECT_TRUE(Wait(tool_, "up", 2).is_late);
  Resolve();
  EXPECT_FALSE(server_host_.TakeLateReply());
  EXPECT_FALSE(server_host_.AwaitsApplication(world_.now)) << "who waits for a rule holds no time";
  Resolve();
  EXPECT_EQ(LateText(), "{\"name\":\"up\",\"matched\":2,\"fired\":2}");
  EXPECT_EQ(TextOf(Wait(tool_, "up", 2)), "{\"name\":\"up\",\"matched\":2,\"fired\":2}")
      << "at once where it has";
}

TEST_F(WaitsTest, WaitsForATimeToo) {
  OnServer("name = \"later\", at = \"time\", at_ms = 5");
  EXPECT_TRUE(Wait(tool_, "later").is_late);
  std::optional<LateReply> late;
  const Time start = world_.now;
  EXPECT_TRUE(world_.RunUntil(
      [&] {
        late = server_host_.TakeLateReply();
        return late.has_value();
      },
      seconds(1)));
  EXPECT_EQ(world_.now - start, milliseconds(5));
}

TEST_F(WaitsTest, IsAnsweredWithAnErrorWhereTheRuleIsNotOrGoes) {
  EXPECT_NE(TextOf(Wait(tool_, "nobody")).find("there is no rule called"), std::string::npos);
  for (const CallOp op : {CallOp::kFaultRemove, CallOp::kFaultClear}) {
    OnServer("name = \"up\", at = \"call.create_id\"");
    EXPECT_TRUE(Wait(tool_, "up").is_late);
    AskFaults(server_client_, op, op == CallOp::kFaultRemove ? "up" : "");
    EXPECT_EQ(LateText(),
              "{\"error\":\"the rule \\\"up\\\" was removed before it had fired that often\"}");
  }
}

TEST_F(WaitsTest, OfAProcessThatHasEndedIsForgotten) {
  OnServer("name = \"up\", at = \"call.create_id\"");
  EXPECT_TRUE(Wait(tool_, "up").is_late);
  server_host_.Detach(world_.now, tool_);
  Resolve();
  EXPECT_FALSE(server_host_.TakeLateReply());
  EXPECT_FALSE(server_host_.NextDeadline());
}

TEST_F(WaitsTest, MoreThanMayWaitAreAnsweredWithAnError) {
  OnServer("name = \"up\", at = \"call.create_id\"");
  for (size_t i = 0; i < FaultWaits::kMaxWaits; i++) ASSERT_TRUE(Wait(tool_, "up").is_late);
  EXPECT_NE(TextOf(Wait(tool_, "up")).find("the maximum"), std::string::npos);
}

TEST_F(WaitsTest, AnAskThatIsTooShortOrTooLongIsRefused) {
  const CallHeader header{static_cast<uint32_t>(CallOp::kFaultWait), 0};
  EXPECT_EQ(server_host_.Call(world_.now, tool_, std::as_bytes(std::span(&header, 1))).error,
            EINVAL);
  EXPECT_EQ(Wait(tool_, std::string(kMaxFaultTextBytes + 1, 'x')).error, EINVAL);
}

TEST_F(WaitsTest, AWitnessIsTracedAndChangesNothing) {
  world_.trace.keep_records = true;
  OnServer("name = \"up\", at = \"call.create_id\", nth = 2");
  OnServer("name = \"fails\", at = \"call.create_id\", after = \"up\", errno = \"ENOMEM\"");
  Resolve();
  EXPECT_THROW(Resolve(), std::runtime_error) << "who stands behind a witness decides";
  bool is_traced = false;
  for (const trace::Record& record : world_.trace.records) {
    is_traced |= record.kind == "fault" && record.object == "up" && record.what == "nothing";
  }
  EXPECT_TRUE(is_traced);
}

}  // namespace
}  // namespace rdmaemu::testing
