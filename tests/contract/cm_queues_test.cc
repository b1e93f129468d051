// The queues of an id (rdma_create_qp(3), rdma_create_srq(3) and their _ex forms), and the inline
// calls of rdma_verbs.h on these queues.
#include <cerrno>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

constexpr size_t kBytes = 64;

class Queues : public ConnectedTest {
 protected:
  void SetUp() override {
    id = NewId(channel.get());
    ASSERT_EQ(BindTo(id.get(), here), 0);
  }
  int MakeSrq(ibv_pd* pd) {
    ibv_srq_init_attr attr{};
    attr.attr = {4, 1, 0};
    return ErrnoOf(rdma_create_srq(id.get(), pd, &attr));
  }
  CmId id;
};

// ---- creating queues

TEST_F(Queues, AQpWithoutCqsGetsThemWithChannelsWhoseContextIsTheId) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ASSERT_EQ(MakeQueues(id.get()), 0);
  ASSERT_NE(id->qp, nullptr);
  ASSERT_NE(id->send_cq, nullptr);
  ASSERT_NE(id->recv_cq, nullptr);
  EXPECT_NE(id->send_cq, id->recv_cq);
  EXPECT_EQ(id->send_cq->cq_context, id.get());
  EXPECT_EQ(id->recv_cq->cq_context, id.get());
  EXPECT_EQ(id->send_cq->channel, id->send_cq_channel);
  EXPECT_EQ(id->recv_cq->channel, id->recv_cq_channel);
  EXPECT_EQ(id->qp->send_cq, id->send_cq);
  EXPECT_EQ(id->qp->pd, id->pd);
  EXPECT_EQ(StateOf(id->qp), IBV_QPS_INIT);
}

TEST_F(Queues, ACqThatIsGivenIsNotTheIds) {
  const std::unique_ptr<ibv_cq, decltype(&ibv_destroy_cq)> cq(
      ibv_create_cq(id->verbs, 8, nullptr, nullptr, 0), &ibv_destroy_cq);
  ibv_qp_init_attr init = SmallQueues();
  init.send_cq = init.recv_cq = cq.get();
  init.qp_context = this;
  ASSERT_EQ(ErrnoOf(rdma_create_qp(id.get(), nullptr, &init)), 0);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->recv_cq, nullptr);
  EXPECT_EQ(id->qp->send_cq, cq.get());
  EXPECT_EQ(id->qp->qp_context, this);
  rdma_destroy_qp(id.get());
}

TEST_F(Queues, TheAttributesSayWhatWasMade) {
  ibv_qp_init_attr init = SmallQueues();
  ASSERT_EQ(ErrnoOf(rdma_create_qp(id.get(), nullptr, &init)), 0);
  EXPECT_EQ(init.send_cq, id->send_cq);
  EXPECT_EQ(init.recv_cq, id->recv_cq);
  EXPECT_GE(init.cap.max_send_wr, 4u);
}

TEST_F(Queues, AnIdHasOneQp) {
  ASSERT_EQ(MakeQueues(id.get()), 0);
  EXPECT_EQ(MakeQueues(id.get()), EINVAL);
}

TEST_F(Queues, DestroyingTheQpMakesRoomForAnother) {
  ASSERT_EQ(MakeQueues(id.get()), 0);
  rdma_destroy_qp(id.get());
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->recv_cq_channel, nullptr);
  EXPECT_EQ(MakeQueues(id.get()), 0);
}

TEST_F(Queues, AQpThatCannotBeMadeLeavesNothing) {
  ibv_qp_init_attr init = SmallQueues();
  init.cap.max_send_sge = 10000;
  EXPECT_NE(rdma_create_qp(id.get(), nullptr, &init), 0);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(MakeQueues(id.get()), 0);
}

TEST_F(Queues, TheExtendedFormTakesADomain) {
  const std::unique_ptr<ibv_pd, decltype(&ibv_dealloc_pd)> pd(ibv_alloc_pd(id->verbs),
                                                              &ibv_dealloc_pd);
  ibv_qp_init_attr_ex init{};
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd.get();
  ASSERT_EQ(ErrnoOf(rdma_create_qp_ex(id.get(), &init)), 0);
  EXPECT_EQ(id->qp->pd, pd.get());
  EXPECT_EQ(id->pd, pd.get());
  rdma_destroy_qp(id.get());
}

TEST_F(Queues, TheExtendedFormWithoutADomainTakesTheIds) {
  ibv_pd* own = id->pd;
  ibv_qp_init_attr_ex init{};
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ASSERT_EQ(ErrnoOf(rdma_create_qp_ex(id.get(), &init)), 0);
  EXPECT_EQ(id->qp->pd, own);
  EXPECT_EQ(init.pd, own);
  EXPECT_NE(init.comp_mask & IBV_QP_INIT_ATTR_PD, 0u);
}

TEST_F(Queues, TheExtendedFormMakesQpsOfTheNewPostingCalls) {
  ibv_qp_init_attr_ex init{};
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = id->pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  const int error = ErrnoOf(rdma_create_qp_ex(id.get(), &init));
  if (error == EOPNOTSUPP) GTEST_SKIP() << "the device has no ibv_wr_* calls";
  ASSERT_EQ(error, 0);
  EXPECT_NE(ibv_qp_to_qp_ex(id->qp), nullptr);
}

TEST_F(Queues, AnSrqIsTheNextQps) {
  ASSERT_EQ(MakeSrq(id->pd), 0);
  ASSERT_NE(id->srq, nullptr);
  ASSERT_EQ(MakeQueues(id.get()), 0);
  EXPECT_EQ(id->qp->srq, id->srq);
  rdma_destroy_qp(id.get());
  rdma_destroy_srq(id.get());
  EXPECT_EQ(id->srq, nullptr);
}

TEST_F(Queues, AnSrqInTheIdsDomainByDefault) {
  ASSERT_EQ(MakeSrq(nullptr), 0);
  EXPECT_EQ(id->srq->pd, id->pd);
}

TEST_F(Queues, TheExtendedSrqNeedsItsType) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {4, 1, 0};
  EXPECT_EQ(ErrnoOf(rdma_create_srq_ex(id.get(), &attr)), EINVAL);
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  attr.srq_type = IBV_SRQT_BASIC;
  ASSERT_EQ(ErrnoOf(rdma_create_srq_ex(id.get(), &attr)), 0);
  EXPECT_EQ(attr.pd, id->pd);
  EXPECT_GE(attr.attr.max_wr, 4u);
}

TEST_F(Queues, DevicesAreAsManyAsTheListHas) {
  int count = -1;
  ibv_context** list = rdma_get_devices(&count);
  ASSERT_NE(list, nullptr);
  int found = 0;
  bool ours = false;
  for (; list[found] != nullptr; ++found) ours = ours || list[found] == id->verbs;
  EXPECT_EQ(found, count);
  EXPECT_TRUE(ours);
  rdma_free_devices(list);
  list = rdma_get_devices(nullptr);
  ASSERT_NE(list, nullptr);
  rdma_free_devices(list);
}

// ---- rdma_verbs.h, over a connection

class Inline : public ConnectedTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Establish());
    for (int i = 0; i < 2; ++i) {
      memset(bytes[i], i + 1, sizeof bytes[i]);
    }
  }
  struct Deregister {
    void operator()(ibv_mr* mr) const { rdma_dereg_mr(mr); }
  };
  using Region = std::unique_ptr<ibv_mr, Deregister>;
  static ibv_wc_status Sent(const CmId& id) {
    ibv_wc wc{};
    EXPECT_EQ(rdma_get_send_comp(id.get(), &wc), 1);
    return wc.status;
  }
  static ibv_wc Received(const CmId& id) {
    ibv_wc wc{};
    EXPECT_EQ(rdma_get_recv_comp(id.get(), &wc), 1);
    return wc;
  }
  uint8_t bytes[2][kBytes];
};

TEST_F(Inline, SendAndReceive) {
  const Region from(rdma_reg_msgs(active.get(), bytes[0], kBytes));
  const Region to(rdma_reg_msgs(passive.get(), bytes[1], kBytes));
  ASSERT_TRUE(from && to);
  int context = 0;
  ASSERT_EQ(rdma_post_recv(passive.get(), &context, bytes[1], kBytes, to.get()), 0);
  ASSERT_EQ(rdma_post_send(active.get(), this, bytes[0], kBytes, from.get(), 0), 0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  const ibv_wc wc = Received(passive);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, reinterpret_cast<uintptr_t>(&context));
  EXPECT_EQ(wc.byte_len, kBytes);
  EXPECT_EQ(memcmp(bytes[0], bytes[1], kBytes), 0);
}

TEST_F(Inline, SendInlineWithoutARegion) {
  const Region to(rdma_reg_msgs(passive.get(), bytes[1], kBytes));
  ASSERT_EQ(rdma_post_recv(passive.get(), nullptr, bytes[1], kBytes, to.get()), 0);
  ASSERT_EQ(rdma_post_send(active.get(), nullptr, bytes[0], 16, nullptr, IBV_SEND_INLINE), 0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(Received(passive).byte_len, 16u);
  EXPECT_EQ(memcmp(bytes[0], bytes[1], 16), 0);
}

TEST_F(Inline, WriteAndRead) {
  const Region local(rdma_reg_msgs(active.get(), bytes[0], kBytes));
  const Region written(rdma_reg_write(passive.get(), bytes[1], kBytes));
  ASSERT_TRUE(local && written);
  const auto remote = reinterpret_cast<uintptr_t>(bytes[1]);
  ASSERT_EQ(rdma_post_write(active.get(), nullptr, bytes[0], kBytes, local.get(), 0, remote,
                            written->rkey),
            0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(bytes[0], bytes[1], kBytes), 0);
  memset(bytes[1], 7, kBytes);
  const Region read(rdma_reg_read(passive.get(), bytes[1], kBytes));
  ASSERT_EQ(
      rdma_post_read(active.get(), nullptr, bytes[0], kBytes, local.get(), 0, remote, read->rkey),
      0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[0][kBytes - 1], 7);
}

TEST_F(Inline, ARegionForMessagesIsNotForThePeer) {
  if (IsIwarp()) GTEST_SKIP() << kNoRemoteErrors;
  const Region local(rdma_reg_msgs(active.get(), bytes[0], kBytes));
  const Region messages(rdma_reg_msgs(passive.get(), bytes[1], kBytes));
  ASSERT_EQ(rdma_post_write(active.get(), nullptr, bytes[0], kBytes, local.get(), 0,
                            reinterpret_cast<uintptr_t>(bytes[1]), messages->rkey),
            0);
  EXPECT_EQ(Sent(active), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Inline, VectorsOfPieces) {
  const Region local(rdma_reg_msgs(active.get(), bytes[0], kBytes));
  const Region remote(rdma_reg_write(passive.get(), bytes[1], kBytes));
  ibv_sge from{reinterpret_cast<uintptr_t>(bytes[0]), 8, local->lkey};
  ibv_sge to{reinterpret_cast<uintptr_t>(bytes[1]), 8, remote->lkey};
  ASSERT_EQ(rdma_post_recvv(passive.get(), nullptr, &to, 1), 0);
  ASSERT_EQ(rdma_post_sendv(active.get(), nullptr, &from, 1, 0), 0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(Received(passive).byte_len, 8u);
  ASSERT_EQ(rdma_post_writev(active.get(), nullptr, &from, 1, 0, to.addr + 8, remote->rkey), 0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[1][15], bytes[0][7]);
  const Region readable(rdma_reg_read(passive.get(), bytes[1], kBytes));
  ASSERT_EQ(rdma_post_readv(active.get(), nullptr, &from, 1, 0, to.addr + 32, readable->rkey), 0);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
  EXPECT_EQ(bytes[0][0], 2);
}

TEST_F(Inline, GettingACompletionWaitsForIt) {
  const Region from(rdma_reg_msgs(active.get(), bytes[0], kBytes));
  const Region to(rdma_reg_msgs(passive.get(), bytes[1], kBytes));
  ASSERT_EQ(rdma_post_recv(passive.get(), nullptr, bytes[1], kBytes, to.get()), 0);
  std::future<int> received = std::async(std::launch::async, [&] {
    ibv_wc wc{};
    return rdma_get_recv_comp(passive.get(), &wc);
  });
  EXPECT_TRUE(StillWaits(received));
  ASSERT_EQ(rdma_post_send(active.get(), nullptr, bytes[0], kBytes, from.get(), 0), 0);
  EXPECT_EQ(received.get(), 1);
  EXPECT_EQ(Sent(active), IBV_WC_SUCCESS);
}

TEST_F(Inline, DatagramsGoWhereAnAddressHandleLeads) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  const CmId to_listener = Listener(passive_channel.get(), RDMA_PS_UDP);
  const CmId from = Requesting(to_listener.get());
  const CmId to = NextRequest(passive_channel.get());
  ASSERT_TRUE(to);
  ASSERT_EQ(MakeQueues(to.get()), 0);
  ASSERT_EQ(rdma_accept(to.get(), nullptr), 0);
  const CmEvent established = Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(established);
  rdma_ud_param& ud = established->param.ud;
  const std::unique_ptr<ibv_ah, decltype(&ibv_destroy_ah)> ah(ibv_create_ah(from->pd, &ud.ah_attr),
                                                              &ibv_destroy_ah);
  ASSERT_TRUE(ah);
  uint8_t received[40 + kBytes] = {};
  const Region source(rdma_reg_msgs(from.get(), bytes[0], kBytes));
  const Region target(rdma_reg_msgs(to.get(), received, sizeof received));
  ASSERT_EQ(rdma_post_recv(to.get(), nullptr, received, sizeof received, target.get()), 0);
  ASSERT_EQ(rdma_post_ud_send(from.get(), nullptr, bytes[0], kBytes, source.get(), 0, ah.get(),
                              ud.qp_num),
            0);
  EXPECT_EQ(Sent(from), IBV_WC_SUCCESS);
  EXPECT_EQ(Received(to).byte_len, 40 + kBytes);
  EXPECT_EQ(memcmp(received + 40, bytes[0], kBytes), 0);
}

TEST_F(Inline, ReceivesOfAnSrqArePostedThroughTheId) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(BindTo(id.get(), here), 0);
  ibv_srq_init_attr attr{};
  attr.attr = {4, 1, 0};
  ASSERT_EQ(rdma_create_srq(id.get(), nullptr, &attr), 0);
  const Region to(rdma_reg_msgs(id.get(), bytes[1], kBytes));
  EXPECT_EQ(rdma_post_recv(id.get(), nullptr, bytes[1], kBytes, to.get()), 0);
}

// ---- addresses of an id

TEST_F(Inline, AddressesAndPortsAreThoseOfTheRoute) {
  EXPECT_EQ(rdma_get_local_addr(active.get()), &active->route.addr.src_addr);
  EXPECT_EQ(rdma_get_peer_addr(active.get()), &active->route.addr.dst_addr);
  EXPECT_EQ(rdma_get_src_port(active.get()), rdma_get_dst_port(passive.get()));
  EXPECT_EQ(rdma_get_dst_port(active.get()), rdma_get_src_port(passive.get()));
  const CmId idle = NewId(channel.get());
  EXPECT_EQ(rdma_get_src_port(idle.get()), 0);
  EXPECT_EQ(rdma_get_dst_port(idle.get()), 0);
}

}  // namespace
}  // namespace rdma_contract
