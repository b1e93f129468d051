// rdma_get_request(3) works for synchronous listeners only. The new id keeps the request's event.
// An endpoint with QP attributes creates ids with a QP.
#include <cerrno>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class GetRequest : public ConnectedTest {
 protected:
  // Creates a listening endpoint by rdma_create_ep, with or without QP attributes.
  CmId Endpoint(ibv_qp_init_attr* attributes, ibv_pd* pd = nullptr,
                rdma_port_space space = RDMA_PS_TCP) {
    rdma_addrinfo hints{}, *found = nullptr;
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_port_space = space;
    EXPECT_EQ(rdma_getaddrinfo(here.c_str(), nullptr, &hints, &found), 0);
    const AddrInfo info(found);
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, info.get(), pd, attributes), 0) << strerror(errno);
    CmId endpoint(id);
    EXPECT_EQ(rdma_listen(id, 4), 0) << strerror(errno);
    return endpoint;
  }
  static CmId Take(rdma_cm_id* from) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(ErrnoOf(rdma_get_request(from, &id)), 0);
    return CmId(id);
  }
};

TEST_F(GetRequest, OfAnAsynchronousListenerIsInvalid) {
  listener = Listener(passive_channel.get());
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(ErrnoOf(rdma_get_request(listener.get(), &id)), EINVAL);
  EXPECT_EQ(id, nullptr);
}

TEST_F(GetRequest, BlocksUntilARequestComes) {
  listener = Listener(nullptr);
  std::future<rdma_cm_id*> taken =
      std::async(std::launch::async, [&] { return Take(listener.get()).release(); });
  EXPECT_TRUE(StillWaits(taken));
  active = Requesting(listener.get());
  passive.reset(taken.get());
  EXPECT_TRUE(passive);
}

TEST_F(GetRequest, TheIdRefersToTheRequestsEvent) {
  if (IsIwarp()) GTEST_SKIP() << kAsSent;
  listener = Listener(nullptr);
  active = Requesting(listener.get(), "hello");
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  ASSERT_NE(passive->event, nullptr);
  EXPECT_EQ(passive->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(passive->event->status, 0);
  EXPECT_EQ(passive->event->id, passive.get());
  EXPECT_EQ(passive->event->listen_id, listener.get());
  EXPECT_EQ(passive->event->param.conn.private_data_len, 56);
  EXPECT_STREQ(static_cast<const char*>(passive->event->param.conn.private_data), "hello");
  EXPECT_EQ(passive->event->param.conn.qp_num, active->qp->qp_num);
}

TEST_F(GetRequest, TheIdIsSynchronousOnAChannelOfItsOwn) {
  listener = Listener(nullptr);
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  ASSERT_NE(passive->channel, nullptr);
  EXPECT_NE(passive->channel, listener->channel);
  EXPECT_NE(passive->verbs, nullptr);
  EXPECT_EQ(passive->qp, nullptr);
}

TEST_F(GetRequest, AcceptingReplacesTheEvent) {
  listener = Listener(nullptr);
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  std::future<int> accepted =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_accept(passive.get(), nullptr)); });
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(accepted.get(), 0);
  ASSERT_NE(passive->event, nullptr);
  EXPECT_EQ(passive->event->event, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(GetRequest, DestroyingTheIdReleasesTheEventToTheListener) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  listener = Listener(nullptr);
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  std::future<int> destroyed =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_destroy_id(listener.release())); });
  EXPECT_TRUE(StillWaits(destroyed));  // the event belongs to the listener
  passive.reset();
  EXPECT_EQ(destroyed.get(), 0);
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
}

TEST_F(GetRequest, RejectingTellsThePeerAndTheIdCanGo) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  listener = Listener(nullptr);
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(ErrnoOf(rdma_reject(passive.get(), "no", 2)), 0);
  const CmEvent rejected = Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
  ASSERT_TRUE(rejected);
  EXPECT_STREQ(static_cast<const char*>(rejected->param.conn.private_data), "no");
  passive.reset();
  listener.reset();
}

TEST_F(GetRequest, RequestsComeInTheOrderInWhichTheyArrived) {
  listener = Listener(nullptr);
  const CmId a = Requesting(listener.get(), "a");
  ASSERT_TRUE(IsReadable(listener->channel, kPatience_ms));
  const CmId b = Requesting(listener.get(), "b");
  const CmId first = Take(listener.get()), second = Take(listener.get());
  ASSERT_TRUE(first && second);
  EXPECT_STREQ(static_cast<const char*>(first->event->param.conn.private_data), "a");
  EXPECT_STREQ(static_cast<const char*>(second->event->param.conn.private_data), "b");
}

TEST_F(GetRequest, TheListenersOwnEventIsAcknowledgedFirst) {
  listener = Listener(nullptr);
  const CmId a = Requesting(listener.get());
  passive = Take(listener.get());
  EXPECT_EQ(listener->event, nullptr);
}

// ---- endpoints

TEST_F(GetRequest, OfAnEndpointWithAttributesGivesIdsWithAQpEach) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  ibv_qp_init_attr attributes = SmallQueues();
  listener = Endpoint(&attributes);
  const CmId a = Requesting(listener.get()), b = Requesting(listener.get());
  const CmId first = Take(listener.get()), second = Take(listener.get());
  ASSERT_TRUE(first && second);
  ASSERT_NE(first->qp, nullptr);
  ASSERT_NE(second->qp, nullptr);
  EXPECT_NE(first->qp->qp_num, second->qp->qp_num);
  EXPECT_NE(first->send_cq, second->send_cq);
  EXPECT_EQ(first->qp->qp_type, IBV_QPT_RC);
  EXPECT_EQ(StateOf(first->qp), IBV_QPS_INIT);
  EXPECT_EQ(listener->qp, nullptr);
}

TEST_F(GetRequest, OfAnEndpointWithoutAttributesGivesIdsWithoutAQp) {
  listener = Endpoint(nullptr);
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(passive->qp, nullptr);
}

TEST_F(GetRequest, TheEndpointsDomainIsTheQps) {
  const CmId probe = NewId(channel.get());
  ASSERT_EQ(BindTo(probe.get(), here), 0);
  const std::unique_ptr<ibv_pd, decltype(&ibv_dealloc_pd)> pd(ibv_alloc_pd(probe->verbs),
                                                              &ibv_dealloc_pd);
  ASSERT_TRUE(pd);
  ibv_qp_init_attr attributes = SmallQueues();
  listener = Endpoint(&attributes, pd.get());
  EXPECT_EQ(listener->pd, pd.get());
  active = Requesting(listener.get());
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(passive->qp->pd, pd.get());
  EXPECT_EQ(passive->pd, pd.get());
  passive.reset();
  listener.reset();
}

TEST_F(GetRequest, OfADatagramListenerGivesTheResolutionsRequest) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  ibv_qp_init_attr attributes = SmallQueues(IBV_QPT_UD);
  listener = Endpoint(&attributes, nullptr, RDMA_PS_UDP);
  active = Requesting(listener.get(), "who");
  passive = Take(listener.get());
  ASSERT_TRUE(passive);
  ASSERT_NE(passive->event, nullptr);
  EXPECT_EQ(passive->event->param.ud.private_data_len, 180);
  EXPECT_STREQ(static_cast<const char*>(passive->event->param.ud.private_data), "who");
  ASSERT_NE(passive->qp, nullptr);
  EXPECT_EQ(StateOf(passive->qp), IBV_QPS_RTS);
  // A UD accept does not wait for an event.
  EXPECT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace
}  // namespace rdma_contract
