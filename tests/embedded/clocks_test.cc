// A connection and its data work under every clock. An operation that needs time gets it.
#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Fault;

class ClocksTest : public testing::TestWithParam<const char*> {
 protected:
  ClocksTest() : host(Options()) {}
  static rdmaemu::EmbeddingOptions Options() {
    rdmaemu::EmbeddingOptions options;
    options.clock = GetParam();
    return options;
  }

  rdmaemu::Embedding host;
  Pair pair;
};

TEST_P(ClocksTest, ConnectTalkAndEnd) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  ASSERT_EQ(pair.server.Receive(), 0);
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  ASSERT_EQ(rdma_disconnect(pair.client.id), 0);
  EXPECT_THAT(NextEvent(pair.listener.channel), EventIs(RDMA_CM_EVENT_DISCONNECTED));
}

// ibv_poll_cq alone, without a wait, gets each message.
TEST_P(ClocksTest, EachPostRunsTheHost) {
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  for (int i = 0; i < 3; i++) ASSERT_EQ(pair.server.Receive(), 0);
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(pair.client.Send(), 0);
    ibv_wc completion;
    ASSERT_EQ(ibv_poll_cq(pair.server.cq, 1, &completion), 1) << "message " << i;
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
}

// The message arrives 200 ms of the host's time later. The wait lasts until then. Under the manual
// clock it lasts until a thread advances the clock.
TEST_P(ClocksTest, AMessageThatComesLater) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const Fault late("at = \"cm.req\", first = 1, delay_ms = 200");
  const auto before = host.now();
  ASSERT_EQ(pair.Connect(), 0);
  if (GetParam() == std::string("manual")) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(pair.listener.channel, &event), -1);
    EXPECT_EQ(errno, EDEADLK);
    host.Advance(std::chrono::milliseconds(200));
  }
  ASSERT_NO_FATAL_FAILURE(pair.Accept());
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  EXPECT_GE(host.now() - before, std::chrono::milliseconds(200));
}

// The only thread is in the call, so its time passes under every clock.
TEST_P(ClocksTest, ACallThatARuleHoldsUp) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const Fault slow("at = \"call.alloc_pd\", delay_ms = 20");
  const auto before = host.now();
  ibv_pd* pd = ibv_alloc_pd(pair.client.id->verbs);
  ASSERT_NE(pd, nullptr) << strerror(errno);
  EXPECT_GE(host.now() - before, std::chrono::milliseconds(20));
  EXPECT_EQ(slow.fired(), 1u);
  ibv_dealloc_pd(pd);
}

// No other thread can release the barrier, under any clock. The call is cancelled. A later call
// does not get its result.
TEST_P(ClocksTest, ABarrierThatHoldsTheOnlyThreadIsADeadlock) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ibv_context* const context = pair.client.id->verbs;
  ASSERT_EQ(
      rdmaemu_rule_add("name = \"gate\", at = \"call.reg_mr\", first = 1, hold = true", nullptr, 0),
      0);
  EXPECT_EQ(ibv_reg_mr(pair.client.id->pd, pair.client.buffer.data(), 64, 0), nullptr);
  EXPECT_EQ(errno, EDEADLK) << strerror(errno);
  EXPECT_EQ(rdmaemu_rule_release("gate"), 0);
  EXPECT_EQ(rdmaemu_rules_clear(), 0);
  ibv_cq* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  const Fault slow("at = \"call.alloc_pd\", delay_ms = 1");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "it is a protection domain's number";
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// The memory is registered, but the program has no result yet.
TEST_P(ClocksTest, ABarrierBehindTheEffectIsADeadlockToo) {
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  const Fault gate("at = \"call.reg_mr\", first = 1, hold = true, takes_effect = true");
  EXPECT_EQ(ibv_reg_mr(pair.client.id->pd, pair.client.buffer.data(), 64, 0), nullptr);
  EXPECT_EQ(errno, EDEADLK) << strerror(errno);
  ibv_mr* const mr = ibv_reg_mr(pair.client.id->pd, pair.client.buffer.data(), 64, 0);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(Clocks, ClocksTest,
                         testing::Values("virtual", "manual", "real", "scaled:10"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find(':'));
                         });

}  // namespace
}  // namespace rdmaemu_test
