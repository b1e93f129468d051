#include <gtest/gtest.h>

#include "emulator/base/nothing_queued.h"
#include "emulator/verbs/qp_state_table.h"
#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

class Qps : public ::testing::Test, public testing::VerbsFixture {
 protected:
  ibv_qp_attr Attr(ibv_qp_state to) const {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr = To(peer);
    attr.dest_qp_num = 100;
    attr.max_dest_rd_atomic = 5;
    attr.rq_psn = 0x1ffffff;
    return attr;
  }
  int Modify(QueuePair* qp, ibv_qp_attr attr, int mask) {
    const Status done = verbs.ModifyQp(now, kGroup, qp->handle, mask, attr);
    return done ? 0 : done.error().code;
  }
  QueuePair* AtInit() {
    QueuePair* qp = Qp(IBV_QPT_RC);
    EXPECT_EQ(Modify(qp, Attr(IBV_QPS_INIT), kInit), 0);
    return qp;
  }
};

TEST(QpStateTable, AnyStateGoesToResetAndAllButResetToErr) {
  for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
    const auto state = static_cast<ibv_qp_state>(from);
    EXPECT_TRUE(QpTransitionAllowed(IBV_QPT_RC, state, IBV_QPS_RESET, IBV_QP_STATE));
    EXPECT_EQ(QpTransitionAllowed(IBV_QPT_RC, state, IBV_QPS_ERR, IBV_QP_STATE),
              state != IBV_QPS_RESET);
    EXPECT_FALSE(QpTransitionAllowed(IBV_QPT_RC, state, IBV_QPS_SQE, IBV_QP_STATE));
  }
}

TEST(QpStateTable, SqeLeadsBackToRtsForUcAndUd) {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    EXPECT_TRUE(QpTransitionAllowed(type, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE));
  }
  EXPECT_FALSE(
      QpTransitionAllowed(IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_QKEY));
}

TEST(QpStateTable, CurrentStateMayOnlyBeNamedFromRtrToSqe) {
  const int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
  EXPECT_TRUE(QpTransitionAllowed(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, mask));
  EXPECT_FALSE(QpTransitionAllowed(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, mask));
}

TEST_F(Qps, CreationGrantsWhatRxeGrants) {
  const QueuePair* qp = *TryQp(IBV_QPT_RC, {4, 16, 1, 1, 0});
  EXPECT_EQ(qp->cap.max_inline_data, 16u);
  EXPECT_EQ(qp->cap.max_send_wr, 4u);
  const auto attr = verbs.QueryQp(kGroup, qp->handle);
  EXPECT_EQ(attr->cap.max_send_wr, 7u);
  EXPECT_EQ(attr->cap.max_recv_wr, 31u);
  EXPECT_EQ((*TryQp(IBV_QPT_RC, {1, 1, 1, 1, 512}))->cap.max_send_sge, 32u);
}

TEST_F(Qps, CreationRefusesWhatTheDeviceHasNot) {
  EXPECT_EQ(TryQp(IBV_QPT_RC, {1048577, 1, 1, 1, 0}).error().code, EINVAL);
  EXPECT_EQ(TryQp(IBV_QPT_RC, {1, 1, 33, 1, 0}).error().code, EINVAL);
  EXPECT_EQ(TryQp(IBV_QPT_RC, {1, 1, 1, 33, 0}).error().code, EINVAL);
  EXPECT_EQ(TryQp(IBV_QPT_RC, {1, 1, 1, 1, 513}).error().code, EINVAL);
  EXPECT_EQ(TryQp(IBV_QPT_RAW_PACKET, {1, 1, 1, 1, 0}).error().code, EOPNOTSUPP);
  EXPECT_EQ(TryQp(IBV_QPT_XRC_SEND, {1, 1, 1, 1, 0}).error().code, EOPNOTSUPP);
  EXPECT_EQ(TryQp(0, {1, 1, 1, 1, 0}).error().code, EINVAL);
}

TEST_F(Qps, NumbersAreNotUsedAgainSoon) {
  QueuePair* first = Qp(IBV_QPT_RC);
  const uint32_t qpn = first->qpn;
  EXPECT_GT(qpn, device->profile.rc.lowest_qpn);
  ASSERT_TRUE(verbs.DestroyQp(now, kGroup, first->handle));
  EXPECT_EQ(verbs.FindQp(address, qpn), nullptr);
  const QueuePair* second = Qp(IBV_QPT_RC);
  EXPECT_NE(second->qpn, qpn);
  EXPECT_EQ(verbs.FindQp(address, second->qpn), second);
  EXPECT_EQ(verbs.FindQp(peer, second->qpn), nullptr) << "not an address of its device";
}

TEST_F(Qps, StateIsKeptInStepAndTheTransportTold) {
  QueuePair* qp = AtInit();
  EXPECT_EQ(Modify(qp, Attr(IBV_QPS_RTR), kRtr), 0);
  EXPECT_EQ(qp->control->state, IBV_QPS_RTR);
  EXPECT_EQ(transport.changes.back().from, IBV_QPS_INIT);
  EXPECT_EQ(qp->path.source, address);
  EXPECT_EQ(qp->path.destination, peer);
  EXPECT_EQ(qp->attr.max_dest_rd_atomic, 8) << "rounded to a power of two";
  EXPECT_EQ(qp->attr.rq_psn, 0xffffffu);
  verbs.FailQp(now, *qp);
  verbs.FailQp(now, *qp);
  EXPECT_EQ(transport.changes.size(), 3u);
  EXPECT_EQ(qp->control->state, IBV_QPS_ERR);
}

TEST_F(Qps, ARefusedChangeChangesNothing) {
  QueuePair* qp = AtInit();
  EXPECT_EQ(Modify(qp, Attr(IBV_QPS_RTR), kRtr & ~IBV_QP_RQ_PSN), EINVAL);
  EXPECT_EQ(Modify(qp, Attr(IBV_QPS_RTR), kRtr | IBV_QP_QKEY), EINVAL);
  ibv_qp_attr attr = Attr(IBV_QPS_RTR);
  attr.ah_attr.grh.sgid_index = 77;
  EXPECT_EQ(Modify(qp, attr, kRtr), ENODATA);
  attr = Attr(IBV_QPS_RTR);
  attr.ah_attr.is_global = 0;
  EXPECT_EQ(Modify(qp, attr, kRtr), EINVAL);
  EXPECT_EQ(qp->state(), IBV_QPS_INIT);
  EXPECT_EQ(transport.changes.size(), 1u);
}

TEST_F(Qps, ResetForgetsWhatWasPosted) {
  QueuePair* qp = AtInit();
  PostReceive(qp->recv_ring, 1, {});
  EXPECT_EQ(Modify(qp, Attr(IBV_QPS_RESET), IBV_QP_STATE), 0);
  EXPECT_FALSE(verbs.HasReceive(*qp));
}

TEST_F(Qps, LinkLocalGidsLeadToTheAddressTheyAreMadeFrom) {
  const auto path = verbs.ResolvePath(*device, To(LinkLocalOf(peer), 0));
  ASSERT_TRUE(path);
  EXPECT_EQ(path->source, address);
  EXPECT_EQ(path->destination, peer);
  EXPECT_TRUE(verbs.IsLocal(LinkLocalOf(address)));
  EXPECT_FALSE(verbs.IsLocal(peer));
}

TEST_F(Qps, MulticastTakesUdQpsOnceInTheirOrder) {
  const ibv_gid gid = NetAddress::Parse("239.1.1.1")->ToGid();
  QueuePair* a = Qp(IBV_QPT_UD);
  QueuePair* b = Qp(IBV_QPT_UD);
  EXPECT_EQ(verbs.AttachMcast(kGroup, Qp(IBV_QPT_RC)->handle, gid).error().code, EINVAL);
  EXPECT_EQ(verbs.AttachMcast(kGroup, a->handle, peer.ToGid()).error().code, EINVAL);
  for (const QueuePair* qp : {b, a, b}) ASSERT_TRUE(verbs.AttachMcast(kGroup, qp->handle, gid));
  const auto group = NetAddress::FromGid(gid);
  EXPECT_TRUE(verbs.MulticastReceivers(group, nullptr).empty());  // attached, not joined
  verbs.SetJoined(device->index, group, true);
  EXPECT_EQ(verbs.MulticastReceivers(group, nullptr), (std::vector{b, a}));
  EXPECT_EQ(verbs.MulticastReceivers(group, &address), (std::vector{b, a}));
  EXPECT_TRUE(verbs.MulticastReceivers(group, &peer).empty());  // no address of a device
  EXPECT_EQ(verbs.DestroyQp(now, kGroup, a->handle).error().code, EBUSY);
  ASSERT_TRUE(verbs.DetachMcast(kGroup, a->handle, gid));
  EXPECT_EQ(verbs.DetachMcast(kGroup, a->handle, gid).error().code, EINVAL);
  verbs.GroupGone(now, kGroup);
  EXPECT_TRUE(verbs.MulticastReceivers(group, nullptr).empty());
}

TEST_F(Qps, AGroupThatGoesLeavesNothingBehind) {
  Qp(IBV_QPT_RC, *verbs.CreateSrq(kGroup, {pd->handle, 8, 1, 0, 0}));
  Cq(4, *verbs.CreateChannel(kGroup, context->handle));
  Mr();
  ASSERT_TRUE(verbs.DoorbellSpan(kGroup));
  ASSERT_TRUE(verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_1));
  ASSERT_TRUE(verbs.CreateAh(kGroup, pd->handle, To(peer)));
  verbs.GroupGone(now, kGroup);
  EXPECT_EQ(transport.destroyed.size(), 1u);
  EXPECT_EQ(counters.live(), 0u);
  EXPECT_EQ(shared_memory.live_segments(), 0u);
  EXPECT_EQ(verbs.Counts(kGroup).contexts, 0u);
}

TEST_F(Qps, HandlesOfOtherGroupsOtherKindsAndOtherLivesAreUnknown) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  const Handle handle = qp->handle;
  EXPECT_EQ(verbs.QueryQp(kOtherGroup, handle).error().code, ENOENT);
  EXPECT_EQ(verbs.DeregMr(kGroup, handle).error().code, EINVAL) << "of another kind";
  EXPECT_EQ(verbs.FindByDoorbell(kGroup, qp->doorbell), qp);
  ASSERT_TRUE(verbs.DestroyQp(now, kGroup, handle));
  EXPECT_EQ(verbs.FindByDoorbell(kGroup, 0), nullptr);
  Qp(IBV_QPT_RC);
  EXPECT_EQ(verbs.QueryQp(kGroup, handle).error().code, ENOENT);
  EXPECT_EQ(verbs.QueryQp(kGroup, 0).error().code, ENOENT);
}

TEST_F(Qps, ActiveMtuIsWhatTheLinkHasRoomFor) {
  EXPECT_EQ(device->active_mtu, IBV_MTU_1024);
  EXPECT_EQ(ActiveMtu(65536, IBV_MTU_4096), IBV_MTU_4096);
  EXPECT_EQ(ActiveMtu(4176, IBV_MTU_4096), IBV_MTU_4096);
  EXPECT_EQ(ActiveMtu(4175, IBV_MTU_4096), IBV_MTU_2048);
  EXPECT_EQ(ActiveMtu(65536, IBV_MTU_1024), IBV_MTU_1024);
  EXPECT_EQ(ActiveMtu(60, IBV_MTU_4096), IBV_MTU_256);
}

TEST_F(Qps, APortsChangeReachesEveryContextOnce) {
  verbs.SetPortState({}, *device, IBV_PORT_DOWN);
  verbs.SetPortState({}, *device, IBV_PORT_DOWN);
  const AsyncEvent event = *verbs.TakeAsyncEvent(now, kGroup, context->handle);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.cookie, 1u);
  EXPECT_EQ(verbs.TakeAsyncEvent(now, kGroup, context->handle).error().code, kNothingQueued);
  EXPECT_EQ(verbs.QueryPort(*device).state, IBV_PORT_DOWN);
}

}  // namespace
}  // namespace rdmaemu
