// Multicast groups of RDMA CM ids (rdma_join_multicast(3), ibv_attach_mcast(3)): the receivers of a
// group's datagrams, the content of the events, and the refused calls.
#include "tests/contract/support/multicast.h"

#include <deque>
#include <vector>

namespace rdma_contract {
namespace {

// ---- the content of the event

TEST_F(Multicast, TheJoinTellsTheGroupTheQkeyAndTheCallersContext) {
  Member member = WithQp(here);
  const JoinEvent event = Join(member, group, 0x1234567812345678);
  EXPECT_EQ(event.context, 0x1234567812345678u);
  EXPECT_EQ(event.ud.private_data_len, 0);
  EXPECT_EQ(event.ud.qp_num, kMulticastQpn);
  EXPECT_EQ(event.ud.qkey, kQkey);
  const ibv_gid gid = GidOf(group);
  EXPECT_EQ(memcmp(&event.ud.ah_attr.grh.dgid, &gid, sizeof gid), 0);
  EXPECT_EQ(event.ud.ah_attr.is_global, 1);
  EXPECT_EQ(event.ud.ah_attr.port_num, 1);
  EXPECT_EQ(event.ud.ah_attr.grh.hop_limit, 64);
}

TEST_F(Multicast, AnAddressHandleOfTheJoinReachesTheGroup) {
  Member member = WithQp(here), receiver = Joined(there, group);
  const JoinEvent event = Join(member, group);
  const AhOrder order{event.ud.ah_attr.grh.dgid, event.ud.ah_attr.grh.sgid_index};
  member.ah = here.worker().Call(&GroupAhStep, order);
  ASSERT_GE(member.ah, 0);
  Post(receiver);
  Send(member, group, 3);
  ExpectDatagram(receiver, 3);
}

TEST_F(Multicast, ASynchronousIdHasItsJoinWhenTheCallReturns) {
  Member member{.side = &here, .id = here.CreateSyncId(RDMA_PS_UDP)};
  ASSERT_EQ(here.Bind(member.id, here.address(), 0), 0);
  ASSERT_EQ(Ask(member, group), 0);
  EXPECT_EQ(here.FieldsOf(member.id).event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(Leave(member, NewGroup()), EADDRNOTAVAIL);
}

// ---- the receivers

TEST_F(Multicast, EveryReceiverOnEveryHostGetsEachDatagramOnce) {
  Member first = Joined(here, group), second = Joined(here, group), third = Joined(beside, group),
         fourth = Joined(there, group), fifth = Joined(there, group);
  std::vector<Member*> all = {&first, &second, &third, &fourth, &fifth};
  uint32_t seed = 10;
  for (Member* sender : {&first, &third, &fourth}) {
    SCOPED_TRACE(seed);
    for (Member* each : all) Post(*each);
    Send(*sender, group, ++seed);
    for (Member* each : all) ExpectDatagram(*each, seed);
    for (Member* each : all) Post(*each);  // would take a second copy
    for (Member* each : all) ExpectNothing(*each);
    Send(*sender, group, ++seed);
    for (Member* each : all) ExpectDatagram(*each, seed);
  }
  EXPECT_TRUE(GuardsIntact());
}

TEST_F(Multicast, TheRouteBeforeADatagramNamesTheSenderAndTheGroup) {
  Member sender = WithQp(here), receiver = Joined(there, group);
  Post(receiver);
  Send(sender, group, 1);
  ExpectDatagram(receiver, 1);
  const ibv_gid from = GidOf(here.address()), to = GidOf(group);
  EXPECT_EQ(memcmp(receiver.sink.data + 32, from.raw + 12, 4), 0);
  EXPECT_EQ(memcmp(receiver.sink.data + 36, to.raw + 12, 4), 0);
}

TEST_F(Multicast, ASenderThatHasNotJoinedReachesTheGroupAndReceivesNothing) {
  Member sender = WithQp(here), receiver = Joined(there, group), beside_it = Joined(beside, group);
  for (Member* each : {&sender, &receiver, &beside_it}) Post(*each);
  Send(sender, group, 7);
  ExpectDatagram(receiver, 7);
  ExpectDatagram(beside_it, 7);
  ExpectNothing(sender);
}

TEST_F(Multicast, ASendOnlyMemberSendsAndReceivesNothing) {
  Member sender = WithQp(here), receiver = Joined(there, group);
  ASSERT_EQ(AskSendOnly(sender, group), 0);
  const JoinEvent event = ExpectJoin(sender);
  EXPECT_EQ(event.ud.qp_num, kMulticastQpn);
  EXPECT_EQ(event.ud.qkey, kQkey);
  for (Member* each : {&sender, &receiver}) Post(*each);
  Send(sender, group, 7);
  ExpectDatagram(receiver, 7);
  ExpectNothing(sender);
  EXPECT_EQ(Leave(sender, group), 0);
}

TEST_F(Multicast, AnotherGroupsDatagramsDoNotCome) {
  const std::string other = NewGroup();
  Member sender = WithQp(here), receiver = Joined(there, group), elsewhere = Joined(there, other);
  for (Member* each : {&receiver, &elsewhere}) Post(*each);
  Send(sender, group, 5);
  ExpectDatagram(receiver, 5);
  ExpectNothing(elsewhere);
}

TEST_F(Multicast, AMemberOfTwoGroupsReceivesBoth) {
  const std::string other = NewGroup();
  Member first = WithQp(here), second = WithQp(here), receiver = Joined(there, group);
  Join(receiver, other);
  Post(receiver);
  Send(first, group, 5);
  ExpectDatagram(receiver, 5);
  Post(receiver);
  Send(second, other, 6);
  ExpectDatagram(receiver, 6);
  ASSERT_EQ(Leave(receiver, group), 0);
  Post(receiver);
  Send(first, group, 7);
  Send(second, other, 8);
  ExpectDatagram(receiver, 8);
}

TEST_F(Multicast, AWrongQkeyIsDroppedByEveryReceiver) {
  Member sender = WithQp(here), receiver = Joined(there, group), beside_it = Joined(beside, group);
  for (Member* each : {&receiver, &beside_it}) Post(*each);
  Send(sender, group, 5, 0x11111111);
  Send(sender, group, 6);
  ExpectDatagram(receiver, 6);
  ExpectDatagram(beside_it, 6);
}

TEST_F(Multicast, AReceiverWithoutAReceiveLosesTheDatagramAndTheOthersDoNot) {
  Member sender = WithQp(here);
  Member idle = Joined(there, group), ready = Joined(there, group),
         beside_it = Joined(beside, group);
  for (Member* each : {&ready, &beside_it}) Post(*each);
  Send(sender, group, 5);
  ExpectDatagram(ready, 5);
  ExpectDatagram(beside_it, 5);
  Post(idle);
  Send(sender, group, 6);
  ExpectDatagram(idle, 6);
}

TEST_F(Multicast, AReceiverThatFailsDoesNotDisturbTheOthers) {
  Member sender = WithQp(here), small = Joined(there, group), ready = Joined(there, group);
  const Buffer tiny = Allocate(kRouteBytes);
  const Region region = there.Register(tiny);
  ASSERT_EQ(there.PostReceive(small.qp, ReceiveInto(1, tiny, region)), 0);
  Post(ready);
  Send(sender, group, 5);
  ExpectDatagram(ready, 5);
  const Completion failed = there.Poll(small.qp, Queue::kReceive);
  EXPECT_NE(failed.wc.status, IBV_WC_SUCCESS);
  Post(ready);
  Send(sender, group, 6);
  ExpectDatagram(ready, 6);
}

// ---- attaching without a join

TEST_F(Multicast, AQpMadeAfterTheJoinIsAttachedByHand) {
  Member sender = WithQp(here), receiver = Bound(there);
  const JoinEvent event = Join(receiver, group);
  GiveQp(receiver);
  Post(receiver);
  Send(sender, group, 5);
  ExpectNothing(receiver);
  ASSERT_EQ(Attach(receiver, event.ud.ah_attr.grh.dgid), 0);
  Send(sender, group, 6);
  ExpectDatagram(receiver, 6);
}

TEST_F(Multicast, AttachingAloneDoesNotJoin) {
  Member sender = WithQp(here), receiver = WithQp(there);
  ASSERT_EQ(Attach(receiver, GidOf(group)), 0);
  Post(receiver);
  Send(sender, group, 5);
  ExpectNothing(receiver);
}

TEST_F(Multicast, AttachingTwiceIsOneMembershipAndDetachingEndsIt) {
  Member sender = WithQp(here), receiver = Joined(there, group);
  ASSERT_EQ(Attach(receiver, GidOf(group)), 0);
  Post(receiver);
  Send(sender, group, 5);
  ExpectDatagram(receiver, 5);
  ASSERT_EQ(Detach(receiver, GidOf(group)), 0);
  Post(receiver);
  Send(sender, group, 6);
  ExpectNothing(receiver);
}

class Attaching : public DeviceTest {
 protected:
  ibv_gid group = GidOf("239.250.251.1");
};

TEST_F(Attaching, IsForUdQpsAndMulticastAddresses) {
  const Cq cq = MakeCq();
  const Qp rc = MakeQp(IBV_QPT_RC, cq.get()), uc = MakeQp(IBV_QPT_UC, cq.get()),
           ud = MakeQp(IBV_QPT_UD, cq.get());
  const ibv_gid unicast = GidOf(LocalAddress());
  EXPECT_EQ(ibv_attach_mcast(rc.get(), &group, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(uc.get(), &group, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(ud.get(), &unicast, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(ud.get(), &unicast, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(ud.get(), &group, 0), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(ud.get(), &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(ud.get(), &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(ud.get(), &group, 0), EINVAL);
}

TEST_F(Attaching, AnIpv6GroupIsOneToo) {
  const Cq cq = MakeCq();
  const Qp ud = MakeQp(IBV_QPT_UD, cq.get());
  inet_pton(AF_INET6, "ff1e::77", group.raw);
  EXPECT_EQ(ibv_attach_mcast(ud.get(), &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(ud.get(), &group, 0), 0);
}

TEST_F(Attaching, AnAttachedQpIsNotDestroyed) {
  const Cq cq = MakeCq();
  Qp ud = MakeQp(IBV_QPT_UD, cq.get());
  ASSERT_EQ(ibv_attach_mcast(ud.get(), &group, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(ud.get()), EBUSY);
  ASSERT_EQ(ibv_detach_mcast(ud.get(), &group, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(ud.release()), 0);
}

TEST_F(Attaching, AGroupTakesAsManyQpsAsTheDeviceSays) {
  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context.get(), &attributes), 0);
  if (attributes.max_mcast_qp_attach > 256) GTEST_SKIP() << "the device's limit is out of reach";
  const Cq cq = MakeCq();
  std::deque<Qp> qps;
  for (int i = 0; i < attributes.max_mcast_qp_attach; i++) {
    qps.push_back(MakeQp(IBV_QPT_UD, cq.get()));
    ASSERT_TRUE(qps.back());
    ASSERT_EQ(ibv_attach_mcast(qps.back().get(), &group, 0), 0) << i;
  }
  const Qp one_more = MakeQp(IBV_QPT_UD, cq.get());
  EXPECT_EQ(ibv_attach_mcast(one_more.get(), &group, 0), ENOMEM);
  ASSERT_EQ(ibv_detach_mcast(qps.front().get(), &group, 0), 0);
  EXPECT_EQ(ibv_attach_mcast(one_more.get(), &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(one_more.get(), &group, 0), 0);
  for (size_t i = 1; i < qps.size(); i++) ibv_detach_mcast(qps[i].get(), &group, 0);
}

// ---- refused calls

TEST_F(Multicast, OnlyUdIdsJoin) {
  const Member member{.side = &here, .id = here.CreateId(RDMA_PS_TCP)};
  ASSERT_EQ(here.Bind(member.id, here.address(), 0), 0);
  EXPECT_EQ(Ask(member, group), EINVAL);
}

TEST_F(Multicast, AnIdWithoutADeviceCannotJoin) {
  Member member{.side = &here, .id = here.CreateId(RDMA_PS_UDP)};
  EXPECT_EQ(Ask(member, group), EINVAL);
  ASSERT_EQ(here.Bind(member.id, "0.0.0.0", 0), 0);
  EXPECT_EQ(Ask(member, group), EINVAL);
}

TEST_F(Multicast, AnIdJoinsAfterItsAddressIsResolvedAndNotAfterItsRoute) {
  Member member{.side = &here, .id = here.CreateId(RDMA_PS_UDP)};
  ASSERT_EQ(here.ResolveAddr(member.id, here.address(), 7777), 0);
  EXPECT_EQ(NextEvent(here).event, RDMA_CM_EVENT_ADDR_RESOLVED);
  Join(member, group);
  ASSERT_EQ(here.ResolveRoute(member.id), 0);
  EXPECT_EQ(NextEvent(here).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(Ask(member, group), EINVAL);
  EXPECT_EQ(Leave(member, group), 0);
}

TEST_F(Multicast, ResolvingTheGroupItselfChoosesTheDevice) {
  Member member{.side = &here, .id = here.CreateId(RDMA_PS_UDP)};
  ASSERT_EQ(here.ResolveAddr(member.id, group, 0, here.address()), 0);
  EXPECT_EQ(NextEvent(here).event, RDMA_CM_EVENT_ADDR_RESOLVED);
  GiveQp(member);
  Join(member, group);
  Post(member);
  Send(member, group, 4);
  ExpectDatagram(member, 4);
}

TEST_F(Multicast, AListenerCannotJoin) {
  Member member = Bound(here);
  ASSERT_EQ(here.Listen(member.id), 0);
  EXPECT_EQ(Ask(member, group), EINVAL);
}

TEST_F(Multicast, NoGroupIsRefused) { EXPECT_EQ(Ask(Bound(here), "0.0.0.0"), EINVAL); }

TEST_F(Multicast, RoceVersionTwoHasNoJoinOfIpv6Groups) {
  constexpr int kEnotsupp = 524;  // defined in the kernel only, not in <errno.h>
  EXPECT_EQ(Ask(Bound(here), "ff1e::77"), kEnotsupp);
}

TEST_F(Multicast, AUnicastAddressJoinsAndFailsToAttach) {
  Member member = WithQp(here);
  ASSERT_EQ(Ask(member, here.address(), 9), 0);
  const JoinEvent event = NextEvent(here);
  EXPECT_EQ(event.event, RDMA_CM_EVENT_MULTICAST_ERROR);
  EXPECT_EQ(event.status, -1);
  EXPECT_EQ(event.context, 9u);
  EXPECT_EQ(Leave(member, here.address()), 0);
}

TEST_F(Multicast, AnIdWithoutAQpJoinsAUnicastAddressToo) {
  Member member = Bound(here);
  ASSERT_EQ(Ask(member, here.address()), 0);
  ExpectJoin(member);
}

TEST_F(Multicast, TheExtendedJoinNeedsAddressAndFlagsThatItKnows) {
  Member member = Bound(here);
  constexpr uint16_t kFull = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  EXPECT_EQ(AskEx(member, group, kFull, RDMA_CM_JOIN_MC_ATTR_ADDRESS), EINVAL);
  EXPECT_EQ(AskEx(member, group, kFull, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS), EINVAL);
  EXPECT_EQ(AskEx(member, group, kFull, RDMA_CM_JOIN_MC_ATTR_RESERVED), ENOTSUP);
  EXPECT_EQ(AskEx(member, group, RDMA_MC_JOIN_FLAG_RESERVED, kAddressAndFlags), EINVAL);
  EXPECT_EQ(AskEx(member, group, kFull, kAddressAndFlags), 0);
  ExpectJoin(member);
}

}  // namespace
}  // namespace rdma_contract
