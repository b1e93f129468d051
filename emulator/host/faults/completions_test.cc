// Fault rules at completions: any status with its effect on the queue pair, delays, duplicates and
// drops.
#include "emulator/host/faults/completions.h"

#include <gtest/gtest.h>

#include "emulator/fault/grammar.h"
#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;

class CompletionFaultsTest : public FaultQps {};

class EveryStatus : public CompletionFaultsTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  std::string Status() const { return fault::CompletionStatuses()[GetParam()]; }
};

TEST_P(EveryStatus, OfASendTakesTheQueuePairToErrAndFlushesWhatStandsBehind) {
  OnServer("at = \"wc.send\", first = 1, status = \"" + Status() + "\"");
  for (uint64_t i = 1; i <= 2; i++) PostRecv(10 + i);
  PostSend(1);
  PostSend(2);
  world_.Settle();
  const auto done = PollAll(verb_a_);
  ASSERT_EQ(IdsOf(done), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(done[0].status, GetParam());
  const bool failed = GetParam() != IBV_WC_SUCCESS;
  EXPECT_EQ(done[1].status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
  EXPECT_EQ(StateOf(verb_a_, a_), failed ? IBV_QPS_ERR : IBV_QPS_RTS);
}

TEST_P(EveryStatus, OfAReceiveTakesTheQueuePairToErr) {
  OnClient("at = \"wc.recv\", status = \"" + Status() + "\"");
  PostRecv(11);
  PostRecv(12);
  PostSend(1);
  world_.Settle();
  const auto received = PollAll(verb_b_);
  const bool failed = GetParam() != IBV_WC_SUCCESS;
  ASSERT_EQ(IdsOf(received), failed ? (std::vector<uint64_t>{11, 12}) : std::vector<uint64_t>{11});
  EXPECT_EQ(received[0].status, GetParam());
  EXPECT_EQ(received.back().status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
  EXPECT_EQ(StateOf(verb_b_, b_), failed ? IBV_QPS_ERR : IBV_QPS_RTS);
}

TEST_P(EveryStatus, LeavesTheQueuePairAsItIsWhereTheRuleSaysSo) {
  OnServer("at = \"wc.send\", first = 1, status = \"" + Status() + "\", keeps_state = true");
  for (uint64_t i = 1; i <= 2; i++) PostRecv(10 + i);
  PostSend(1);
  PostSend(2);
  world_.Settle();
  const auto done = PollAll(verb_a_);
  ASSERT_EQ(IdsOf(done), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(done[0].status, GetParam());
  EXPECT_EQ(done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(StateOf(verb_a_, a_), IBV_QPS_RTS);
}

INSTANTIATE_TEST_SUITE_P(All, EveryStatus,
                         ::testing::Range(0u, static_cast<uint32_t>(IBV_WC_TM_RNDV_INCOMPLETE) + 1),
                         [](const auto& tested) {
                           return fault::CompletionStatuses()[tested.param];
                         });

TEST_F(CompletionFaultsTest, AnErrorCompletionTellsItsRequestAndStatusAlone) {
  OnServer("at = \"wc.send\", status = \"general_err\"");
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  const auto done = PollAll(verb_a_);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].qp_num, a_.made.qpn);
  EXPECT_EQ(done[0].opcode, 0u);
  EXPECT_EQ(done[0].byte_len, 0u);
}

TEST_F(CompletionFaultsTest, ADelayedCompletionHoldsThoseBehindItOfItsQueuePair) {
  OnServer("at = \"wc.send\", first = 1, delay_ms = 50");
  for (uint64_t i = 1; i <= 2; i++) PostRecv(10 + i);
  PostSend(1);
  PostSend(2);
  world_.Settle();
  EXPECT_EQ(PollAll(verb_a_).size(), 0u);
  EXPECT_EQ(IdsOf(PollAll(verb_b_)), (std::vector<uint64_t>{11, 12})) << "the peer has its own";
  Await(milliseconds(49));
  EXPECT_EQ(PollAll(verb_a_).size(), 0u);
  Await(milliseconds(50));
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), (std::vector<uint64_t>{1, 2}));
  PostRecv(13);
  PostSend(3);
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{3}) << "nothing is held any more";
}

TEST_F(CompletionFaultsTest, ADelayedCompletionGoesWithItsQueuePair) {
  OnServer("at = \"wc.send\", delay_ms = 50");
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  DestroyOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kDestroyQp, HandleIn{a_.made.handle, 0}, out), 0);
  Await(milliseconds(60));
  EXPECT_EQ(PollAll(verb_a_).size(), 0u);
}

TEST_F(CompletionFaultsTest, NothingOfADelayedCompletionStaysWithTheHandleOfItsQueuePair) {
  OnServer("at = \"wc.send\", nth = 1, delay_ms = 50");
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  EXPECT_TRUE(server_host_.NextDeadline());
  const Handle delayed = a_.made.handle;
  DestroyOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kDestroyQp, HandleIn{delayed, 0}, out), 0);
  EXPECT_FALSE(server_host_.NextDeadline());
  // Handles repeat eventually.
  a_ = verb_a_.CreateQp(IBV_QPT_RC, 32);
  for (int i = 0; i < 2000 && a_.made.handle != delayed; i++) {
    EXPECT_EQ(server_client_.Call(CallOp::kDestroyQp, HandleIn{a_.made.handle, 0}, out), 0);
    a_ = verb_a_.CreateQp(IBV_QPT_RC, 32);
  }
  ASSERT_EQ(a_.made.handle, delayed);
  b_ = verb_b_.CreateQp(IBV_QPT_RC, 32);
  verb_a_.ConnectRc(a_, "127.0.0.2", b_.made.qpn);
  verb_b_.ConnectRc(b_, "127.0.0.1", a_.made.qpn);
  PostRecv(12);
  PostSend(2);
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{2}) << "at once";
  Await(milliseconds(60));
  EXPECT_EQ(PollAll(verb_a_).size(), 0u);
}

TEST_F(CompletionFaultsTest, ALostCompletionNeverComesAndThoseBehindItDo) {
  OnServer("at = \"wc\", nth = 2, drop = true");
  for (uint64_t i = 1; i <= 3; i++) {
    PostRecv(10 + i);
    PostSend(i);
  }
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), (std::vector<uint64_t>{1, 3}));
}

TEST_F(CompletionFaultsTest, ADoubledCompletionComesTwice) {
  OnClient("at = \"wc.recv\", nth = 2, duplicate = 1");
  for (uint64_t i = 1; i <= 2; i++) {
    PostRecv(10 + i, 64);
    PostSend(i, 64);  // small: beside the completion when not deferred
  }
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_b_)), (std::vector<uint64_t>{11, 12, 12}));
  EXPECT_EQ(target_[0], std::byte{7});
}

TEST_F(CompletionFaultsTest, ARuleMeansTheQueuePairItNamesByNumberOrOrder) {
  Connect();  // second queue pairs
  OnServer("name = \"number\", at = \"wc\", qp = " + std::to_string(a_.made.qpn) +
           ", nth = 1, drop = true");
  OnServer("name = \"first\", at = \"wc\", qp_order = 1, drop = true");
  OnServer("name = \"second\", at = \"wc\", qp_order = 2, nth = 2, drop = true");
  for (uint64_t i = 1; i <= 3; i++) {
    PostRecv(10 + i);
    PostSend(i);
  }
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{3});
}

TEST_F(CompletionFaultsTest, ARuleMeansTheSizesProgramAndDeviceItNames) {
  OnServer(
      "name = \"size\", at = \"wc.rdma_write\", min_bytes = 100, max_bytes = 200, drop = true");
  OnServer("name = \"program\", at = \"wc\", program = \"client\", drop = true");
  OnServer("name = \"device\", at = \"wc\", device = \"rxe7\", drop = true");
  PostWrite(1, 99);
  PostWrite(2, 100);
  PostWrite(3, 200);
  PostWrite(4, 201);
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), (std::vector<uint64_t>{1, 4}));
}

TEST_F(CompletionFaultsTest, AFlushedRequestIsAWordOfItsOwn) {
  OnServer("at = \"wc.flushed\", drop = true");
  OnServer("name = \"fails\", at = \"wc.send\", status = \"retry_exc_err\"");
  PostRecv(11);
  PostSend(1);
  PostSend(2);
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{1});
}

}  // namespace
}  // namespace rdmaemu::testing
