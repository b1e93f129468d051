// Rules at the calls that use shared memory: posting, polling, arming. These calls fail and wait
// like other calls, also through the extended interface.
#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::WithFault;
using std::chrono::milliseconds;

class PostingFaultsTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(pair.Establish()); }
  // Returns the number of completions in a queue.
  static int Count(ibv_cq* cq) {
    ibv_wc completion;
    int count = 0;
    while (ibv_poll_cq(cq, 1, &completion) == 1) count++;
    return count;
  }
  Pair pair;
};

TEST_F(PostingFaultsTest, APostThatFailsTakesNothingAndNamesItsFirstRequest) {
  ASSERT_EQ(pair.server.Receive(), 0);
  ASSERT_EQ(pair.server.Receive(), 0);
  WithFault("at = \"call.post_send\", nth = 2, errno = \"ENOMEM\"", [&] {
    EXPECT_EQ(pair.client.Send(), 0);
    ibv_send_wr second{}, first{}, *bad = nullptr;
    first.next = &second;
    EXPECT_EQ(ibv_post_send(pair.client.id->qp, &first, &bad), ENOMEM);
    EXPECT_EQ(bad, &first);
    EXPECT_EQ(pair.client.Send(), 0);
  });
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_EQ(Count(pair.client.cq), 0);
}

TEST_F(PostingFaultsTest, APostThatTakesEffectIsSentAndFailsAllTheSame) {
  ASSERT_EQ(pair.server.Receive(), 0);
  WithFault("at = \"call.post_send\", errno = \"EIO\", takes_effect = true",
            [&] { EXPECT_EQ(pair.client.Send(), EIO); });
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
}

TEST_F(PostingFaultsTest, AReceiveThatIsNotPostedIsNotThere) {
  WithFault("at = \"call.post_recv\", errno = \"ENOMEM\"",
            [&] { EXPECT_EQ(pair.server.Receive(), ENOMEM); });
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_RNR_RETRY_EXC_ERR));
}

TEST_F(PostingFaultsTest, APollThatFailsLosesNothing) {
  ASSERT_EQ(pair.server.Receive(), 0);
  ASSERT_EQ(pair.client.Send(), 0);
  WithFault("at = \"call.poll_cq\", first = 1, errno = \"EFAULT\"", [&] {
    ibv_wc completion;
    EXPECT_EQ(ibv_poll_cq(pair.client.cq, 1, &completion), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(ibv_poll_cq(pair.client.cq, 1, &completion), 1);
  });
}

TEST_F(PostingFaultsTest, ArmingAQueueFails) {
  WithFault("at = \"call.req_notify_cq\", errno = \"ENOMEM\"",
            [&] { EXPECT_EQ(ibv_req_notify_cq(pair.client.cq, 0), ENOMEM); });
  EXPECT_EQ(ibv_req_notify_cq(pair.client.cq, 0), 0);
}

TEST_F(PostingFaultsTest, ASharedQueueTakesNoReceive) {
  ibv_srq_init_attr attributes{};
  attributes.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pair.client.id->pd, &attributes);
  ASSERT_NE(srq, nullptr);
  ibv_recv_wr work{}, *bad = nullptr;
  WithFault("at = \"call.post_srq_recv\", nth = 1, errno = \"ENOMEM\"", [&] {
    EXPECT_EQ(ibv_post_srq_recv(srq, &work, &bad), ENOMEM);
    EXPECT_EQ(bad, &work);
    EXPECT_EQ(ibv_post_srq_recv(srq, &work, &bad), 0);
  });
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(PostingFaultsTest, ARuleMeansOneQueuePairByItsOrder) {
  ASSERT_EQ(pair.server.Receive(), 0);
  ASSERT_EQ(pair.client.Receive(), 0);
  // The client's QP is the program's first.
  WithFault("at = \"call.post_send\", qp_order = 2, errno = \"EINVAL\"", [&] {
    EXPECT_EQ(pair.client.Send(), 0);
    EXPECT_EQ(pair.server.Send(), EINVAL);
  });
}

TEST_F(PostingFaultsTest, APostWaitsBeforeItTakesEffectOrAfter) {
  for (const bool takes_effect : {false, true}) {
    ASSERT_EQ(pair.server.Receive(), 0);
    const auto before = host.now();
    const std::string rule = "at = \"call.post_send\", delay_ms = 50, takes_effect = ";
    WithFault(rule + (takes_effect ? "true" : "false"), [&] { EXPECT_EQ(pair.client.Send(), 0); });
    EXPECT_EQ(host.now() - before, milliseconds(50));
    EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
    EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  }
}

// A rule that matches a polling program does not hide later completions.
TEST_F(PostingFaultsTest, APollerUnderARuleStillGetsWhatComesLater) {
  ASSERT_EQ(pair.client.Send(), 0);  // no receive is posted: the send is repeated for a while
  WithFault("at = \"call.poll_cq\", nth = 2, errno = \"EFAULT\"", [&] {
    ibv_wc completion;
    int polled = 0, failed = 0;
    while ((polled = ibv_poll_cq(pair.client.cq, 1, &completion)) != 1)
      failed += polled < 0 ? 1 : 0;
    EXPECT_EQ(completion.status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(failed, 1);
  });
}

class ExtendedPostingFaultsTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  void SetUp() override {
    ibv_device** const list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(context, nullptr);
    pd = ibv_alloc_pd(context);
    ibv_cq_init_attr_ex cq_attributes{};
    cq_attributes.cqe = 16;
    cq = ibv_create_cq_ex(context, &cq_attributes);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(cq);
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_UD;
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND;
    qp = ibv_create_qp_ex(context, &attributes);
    ASSERT_NE(qp, nullptr);
  }
  void TearDown() override {
    if (qp != nullptr) ibv_destroy_qp(qp);
    if (cq != nullptr) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
    if (pd != nullptr) ibv_dealloc_pd(pd);
    if (context != nullptr) ibv_close_device(context);
  }
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq_ex* cq = nullptr;
  ibv_qp* qp = nullptr;
};

TEST_F(ExtendedPostingFaultsTest, AListThatFailsIsAbortedAndTheNextMayBegin) {
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
  WithFault("at = \"call.post_send\", errno = \"ENOMEM\"", [&] {
    for (int i = 0; i < 2; i++) {
      ibv_wr_start(extended);
      ibv_wr_send(extended);
      EXPECT_EQ(ibv_wr_complete(extended), ENOMEM);
    }
  });
}

TEST_F(ExtendedPostingFaultsTest, APollThatFailsHasNotBegun) {
  ibv_poll_cq_attr attributes{};
  WithFault("at = \"call.poll_cq\", errno = \"EFAULT\"", [&] {
    for (int i = 0; i < 2; i++) EXPECT_EQ(ibv_start_poll(cq, &attributes), EFAULT);
  });
  EXPECT_EQ(ibv_start_poll(cq, &attributes), ENOENT);
}

TEST_F(ExtendedPostingFaultsTest, ACallIsMatchedByItsDevice) {
  const std::string name = ibv_get_device_name(context->device);
  WithFault("at = \"call.alloc_pd\", device = \"" + name + "\", errno = \"ENOMEM\"", [&] {
    EXPECT_EQ(ibv_alloc_pd(context), nullptr);
    EXPECT_EQ(errno, ENOMEM);
  });
  const rdmaemu::Fault other(
      std::string("at = \"call.alloc_pd\", device = \"another\", errno = \"ENOMEM\""));
  ibv_pd* const made = ibv_alloc_pd(context);
  EXPECT_NE(made, nullptr);
  ibv_dealloc_pd(made);
}

}  // namespace
}  // namespace rdmaemu_test
