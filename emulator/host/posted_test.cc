// A program's posts are sent before a call destroys objects that they need. rdma_rxe sends them
// within ibv_post_send. In these tests the host has not polled the doorbells before the call.
#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

class PostedTest : public FaultQps {
 protected:
  static constexpr uint32_t kMessages = 5;

  void PostAll() {
    for (uint32_t i = 0; i < kMessages; i++) PostRecv(i);
    for (uint32_t i = 0; i < kMessages; i++) PostSend(i);
  }
  void AllArrive() {
    world_.Settle();
    const std::vector<ib_uverbs_wc> received = PollAll(verb_b_);
    ASSERT_EQ(received.size(), kMessages);
    for (const ib_uverbs_wc& wc : received) EXPECT_EQ(wc.status, uint32_t{IBV_WC_SUCCESS});
  }
  void DestroyQp() {
    DestroyOut out{};
    EXPECT_EQ(server_client_.Call(CallOp::kDestroyQp, HandleIn{a_.made.handle, 0}, out), 0);
  }
};

TEST_F(PostedTest, LeavesBeforeItsQueuePairGoes) {
  PostAll();
  DestroyQp();
  AllArrive();
}

TEST_F(PostedTest, LeavesBeforeItsMemoryGoes) {
  PostAll();
  EXPECT_EQ(server_client_.Call(CallOp::kDeregMr, HandleIn{mr_a_.handle, 0}), 0);
  AllArrive();
}

TEST_F(PostedTest, LeavesBeforeWhatARuleDoesAtTheCall) {
  OnServer("at = \"call.destroy_qp\", async = \"lid_change\"");
  PostAll();
  DestroyQp();
  AllArrive();
}

TEST_F(PostedTest, LeavesAlthoughARuleDoesSomethingAtOneOfThem) {
  OnServer("at = \"packet.rc_send_only\", direction = \"send\", nth = 2, async = \"lid_change\"");
  PostAll();
  DestroyQp();
  AllArrive();
}

TEST_F(PostedTest, LeavesBeforeACallIsDelayed) {
  OnServer("at = \"call.destroy_qp\", delay_ms = 50");
  PostAll();
  const HandleIn in{a_.made.handle, 0};
  EXPECT_TRUE(
      server_client_.CallBytes(static_cast<uint32_t>(CallOp::kDestroyQp), &in, sizeof in).is_late);
  AllArrive();
}

TEST_F(PostedTest, StaysWhereTheHostHasEnded) {
  OnServer("at = \"packet.rc_send_only\", direction = \"send\", nth = 2, crash = true");
  PostAll();
  const HandleIn in{a_.made.handle, 0};
  EXPECT_EQ(
      server_client_.CallBytes(static_cast<uint32_t>(CallOp::kDestroyQp), &in, sizeof in).error,
      EIO);
}

}  // namespace
}  // namespace rdmaemu::testing
