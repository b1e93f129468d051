// Multicast groups of RDMA CM ids (rdma_join_multicast(3), ibv_attach_mcast(3)): who receives what
// is sent to a group, what the events say, and what is refused.
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <arpa/inet.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "tests/contract/support/objects.h"
#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kQkey = 0x01234567;  // RDMA_UDP_QKEY
constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint32_t kRouteBytes = 40;
constexpr uint32_t kBytes = 200;

// ---- steps: what a side does besides the calls of Side

sockaddr_storage SockaddrOf(const char* group) {
  sockaddr_storage storage{};
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (inet_pton(AF_INET6, group, &ipv6.sin6_addr) == 1) {
    ipv6.sin6_family = AF_INET6;
  } else {
    const sockaddr_in ipv4 = SocketAddress(group, 0);
    memcpy(&storage, &ipv4, sizeof ipv4);
  }
  return storage;
}

struct GroupOrder {
  int id;
  char group[INET6_ADDRSTRLEN];
  uint16_t flags;      // RDMA_MC_JOIN_FLAG_*
  uint32_t comp_mask;  // 0: rdma_join_multicast
  uint64_t context;
};
GroupOrder OrderOf(int id, const std::string& group, uint64_t context = 0) {
  GroupOrder order{id, {}, RDMA_MC_JOIN_FLAG_FULLMEMBER, 0, context};
  group.copy(order.group, sizeof order.group - 1);
  return order;
}
int JoinStep(State& state, const GroupOrder& order) {
  rdma_cm_id* id = state.ids[static_cast<size_t>(order.id)];
  sockaddr_storage group = SockaddrOf(order.group);
  auto* const address = reinterpret_cast<sockaddr*>(&group);
  auto* const context = reinterpret_cast<void*>(order.context);
  if (order.comp_mask == 0) return rdma_join_multicast(id, address, context) == 0 ? 0 : errno;
  rdma_cm_join_mc_attr_ex attributes{order.comp_mask, order.flags, address};
  return rdma_join_multicast_ex(id, &attributes, context) == 0 ? 0 : errno;
}
int LeaveStep(State& state, const GroupOrder& order) {
  sockaddr_storage group = SockaddrOf(order.group);
  return rdma_leave_multicast(state.ids[static_cast<size_t>(order.id)],
                              reinterpret_cast<sockaddr*>(&group)) == 0
             ? 0
             : errno;
}

struct JoinEvent {
  bool found = false;
  rdma_cm_event_type event{};
  int status = 0;
  int id = -1;
  uint64_t context = 0;
  rdma_ud_param ud{};
};
JoinEvent NextJoinStep(State& state, const int& limit_ms) {
  JoinEvent copy;
  pollfd waiting{state.channel->fd, POLLIN, 0};
  rdma_cm_event* event = nullptr;
  if (poll(&waiting, 1, limit_ms) <= 0 || rdma_get_cm_event(state.channel, &event) != 0) {
    return copy;
  }
  copy = {true, event->event, event->status, -1, 0, event->param.ud};
  copy.context = reinterpret_cast<uint64_t>(event->param.ud.private_data);
  for (size_t i = 0; i < state.ids.size(); i++) {
    if (state.ids[i] == event->id) copy.id = static_cast<int>(i);
  }
  rdma_ack_cm_event(event);
  return copy;
}

struct AttachOrder {
  int qp;
  ibv_gid group;
  bool attach;
};
int AttachStep(State& state, const AttachOrder& order) {
  ibv_qp* qp = state.qps[static_cast<size_t>(order.qp)].qp;
  return order.attach ? ibv_attach_mcast(qp, &order.group, 0)
                      : ibv_detach_mcast(qp, &order.group, 0);
}

struct AhOrder {
  ibv_gid group;
  int gid_index;
};
int GroupAhStep(State& state, const AhOrder& order) {
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  attributes.grh.dgid = order.group;
  attributes.grh.sgid_index = static_cast<uint8_t>(order.gid_index);
  attributes.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(state.pd, &attributes);
  if (ah == nullptr) return -errno;
  state.ahs.push_back(ah);
  return static_cast<int>(state.ahs.size()) - 1;
}
struct NoOrder {};
int GidIndexStep(State& state, const AhOrder& own) {
  ibv_context* context = state.pd->context;
  ibv_gid gid;
  for (int i = 0; ibv_query_gid(context, 1, i, &gid) == 0; i++) {
    if (memcmp(&gid, &own.group, sizeof gid) == 0) return i;
  }
  return -1;
}
int FetchUnackedStep(State& state, const NoOrder&) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(state.channel, &event) != 0) return errno;
  state.unacked.push_back(event);
  return 0;
}
int AckStep(State& state, const NoOrder&) {
  rdma_ack_cm_event(state.unacked.back());
  state.unacked.pop_back();
  return 0;
}

// ---- the fixture

// A side with an id, its QP, and room for what comes.
struct Member {
  Side* side = nullptr;
  int id = -1, qp = -1, ah = -1;
  Buffer sink{}, source{};
  Region to{}, from{};
};

class Multicast : public testing::Test {
 protected:
  // A group that no other run of these tests is likely to use at the same time.
  std::string NewGroup() {
    std::random_device random;
    return "239." + std::to_string(1 + random() % 250) + "." + std::to_string(random() % 250) +
           "." + std::to_string(1 + random() % 250);
  }

  Member Bound(Side& side) {
    Member member{.side = &side, .id = side.CreateId(RDMA_PS_UDP)};
    EXPECT_GE(member.id, 0);
    EXPECT_EQ(side.Bind(member.id, side.address(), 0), 0);
    return member;
  }
  void GiveQp(Member& member) {
    member.qp = member.side->CreateCmQp(member.id);
    ASSERT_GE(member.qp, 0);
    member.source = Allocate(kBytes);
    member.sink = Allocate(kBytes + kRouteBytes);
    member.from = member.side->Register(member.source);
    member.to = member.side->Register(member.sink);
  }
  Member WithQp(Side& side) {
    Member member = Bound(side);
    GiveQp(member);
    return member;
  }
  Member Joined(Side& side, const std::string& group) {
    Member member = WithQp(side);
    Join(member, group);
    return member;
  }
  int Ask(const Member& member, const std::string& group, uint64_t context = 0) {
    return member.side->worker().Call(&JoinStep, OrderOf(member.id, group, context));
  }
  int AskEx(const Member& member, const std::string& group, uint16_t flags, uint32_t comp_mask) {
    GroupOrder order = OrderOf(member.id, group);
    order.flags = flags;
    order.comp_mask = comp_mask;
    return member.side->worker().Call(&JoinStep, order);
  }
  int AskSendOnly(const Member& member, const std::string& group) {
    return AskEx(member, group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, kAddressAndFlags);
  }
  static JoinEvent NextEvent(Side& side, int limit_ms = kPatience_ms) {
    return side.worker().Call(&NextJoinStep, limit_ms);
  }
  JoinEvent ExpectJoin(const Member& member) {
    const JoinEvent event = NextEvent(*member.side);
    EXPECT_TRUE(event.found);
    EXPECT_EQ(event.event, RDMA_CM_EVENT_MULTICAST_JOIN) << rdma_event_str(event.event);
    EXPECT_EQ(event.status, 0);
    EXPECT_EQ(event.id, member.id);
    return event;
  }
  JoinEvent Join(const Member& member, const std::string& group, uint64_t context = 0) {
    EXPECT_EQ(Ask(member, group, context), 0);
    return ExpectJoin(member);
  }
  int Leave(const Member& member, const std::string& group) {
    return member.side->worker().Call(&LeaveStep, OrderOf(member.id, group));
  }
  int Attach(const Member& member, const ibv_gid& group) {
    return member.side->worker().Call(&AttachStep, AttachOrder{member.qp, group, true});
  }
  int Detach(const Member& member, const ibv_gid& group) {
    return member.side->worker().Call(&AttachStep, AttachOrder{member.qp, group, false});
  }

  void Post(Member& member) {
    memset(member.sink.data, 0, member.sink.size);
    ASSERT_EQ(member.side->PostReceive(member.qp, ReceiveInto(1, member.sink, member.to)), 0);
  }
  // The path as a program makes it that knows nothing but the group's address.
  void Send(Member& member, const std::string& group, uint32_t seed, uint32_t qkey = kQkey) {
    if (member.ah < 0) {
      const AhOrder own{GidOf(member.side->address()), 0};
      const int index = member.side->worker().Call(&GidIndexStep, own);
      ASSERT_GE(index, 0);
      member.ah = member.side->worker().Call(&GroupAhStep, AhOrder{GidOf(group), index});
      ASSERT_GE(member.ah, 0);
    }
    FillPattern(member.source.bytes(), seed);
    WorkRequest request{
        .wr_id = 2, .ah = member.ah, .remote_qpn = kMulticastQpn, .remote_qkey = qkey};
    request.Add(member.source.address(), kBytes, member.from.lkey);
    ASSERT_EQ(member.side->PostSend(member.qp, request), 0);
    const Completion sent = member.side->Poll(member.qp, Queue::kSend);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
  }
  void ExpectDatagram(Member& member, uint32_t seed) {
    const Completion received = member.side->Poll(member.qp, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(received.wc.byte_len, kBytes + kRouteBytes);
    EXPECT_EQ(FirstDifference(member.sink.bytes().subspan(kRouteBytes), seed), -1);
  }
  void ExpectNothing(Member& member) {
    const Completion received = member.side->Poll(member.qp, Queue::kReceive, kQuiet_ms);
    EXPECT_FALSE(received.found) << Describe(received);
  }

  static constexpr uint32_t kAddressAndFlags =
      RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  const std::string group = NewGroup();
  Side here{Place::kThisProcess};
  Side beside{Place::kLocalProcess};
  Side there{Place::kPeersMachine};
};

// ---- what the event says

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

// ---- who receives

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
    for (Member* each : all) Post(*each);  // takes a second copy, if there were one
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

// ---- attaching by hand

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

// ---- leaving

TEST_F(Multicast, WhoLeavesReceivesNoMore) {
  Member sender = WithQp(here), leaver = Joined(there, group), stays = Joined(there, group);
  ASSERT_EQ(Leave(leaver, group), 0);
  for (Member* each : {&leaver, &stays}) Post(*each);
  Send(sender, group, 5);
  ExpectDatagram(stays, 5);
  ExpectNothing(leaver);
  EXPECT_EQ(Leave(leaver, group), EADDRNOTAVAIL);
  Join(leaver, group);
  Send(sender, group, 6);
  ExpectDatagram(leaver, 6);
}

TEST_F(Multicast, LeavingAGroupNotJoinedIsRefused) {
  Member member = WithQp(here);
  EXPECT_EQ(Leave(member, group), EADDRNOTAVAIL);
  Join(member, group);
  EXPECT_EQ(Leave(member, NewGroup()), EADDRNOTAVAIL);
}

TEST_F(Multicast, JoiningTwiceIsLeftTwice) {
  Member member = Joined(here, group);
  Join(member, group);
  EXPECT_EQ(Leave(member, group), 0);
  EXPECT_EQ(Leave(member, group), 0);
  EXPECT_EQ(Leave(member, group), EADDRNOTAVAIL);
}

TEST_F(Multicast, LeavingTakesTheJoinsEventAway) {
  Member member = WithQp(here);
  ASSERT_EQ(Ask(member, group), 0);
  ASSERT_EQ(Leave(member, group), 0);
  EXPECT_FALSE(NextEvent(here, kQuiet_ms).found);
}

TEST_F(Multicast, LeavingWaitsUntilTheJoinsEventIsAcknowledged) {
  Member member = WithQp(beside);
  ASSERT_EQ(Ask(member, group), 0);
  ASSERT_EQ(beside.worker().Call(&FetchUnackedStep, NoOrder{}), 0);
  // One thread a process: the acknowledgement comes first, and leaving then has nothing to wait
  // for; that it would have waited is held by the count of events (rdma_destroy_id(3)).
  ASSERT_EQ(beside.worker().Call(&AckStep, NoOrder{}), 0);
  EXPECT_EQ(Leave(member, group), 0);
}

TEST_F(Multicast, DestroyingAnIdEndsItsMembership) {
  Member sender = WithQp(here), goes = Joined(there, group), stays = Joined(there, group);
  there.worker().Call(&AttachStep, AttachOrder{goes.qp, GidOf(group), false});
  ASSERT_EQ(there.DestroyId(goes.id), 0);
  Post(stays);
  Send(sender, group, 5);
  ExpectDatagram(stays, 5);
}

TEST_F(Multicast, DestroyingAnIdDropsAJoinThatIsPending) {
  Member member = Bound(here);
  ASSERT_EQ(Ask(member, group), 0);
  ASSERT_EQ(here.DestroyId(member.id), 0);
  EXPECT_FALSE(NextEvent(here, kQuiet_ms).found);
}

TEST_F(Multicast, ADeadProgramsMembershipEndsAndTheOthersStay) {
  Member sender = WithQp(here), stays = Joined(there, group);
  {
    Side dying{Place::kPeersMachine};
    Joined(dying, group);
    dying.worker().Kill();
  }
  Post(stays);
  Send(sender, group, 5);
  ExpectDatagram(stays, 5);
}

// ---- what is refused

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
  constexpr int kEnotsupp = 524;  // of the kernel alone: no <errno.h> has it
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

// ---- migration

TEST_F(Multicast, AJoinThatIsPendingMovesWithItsId) {
  Member member = WithQp(here);
  ASSERT_EQ(Ask(member, group), 0);
  ASSERT_EQ(here.Migrate(member.id, /*to_new_channel=*/true), 0);
  ExpectJoin(member);
  EXPECT_EQ(Leave(member, group), 0);
}

}  // namespace
}  // namespace rdma_contract
