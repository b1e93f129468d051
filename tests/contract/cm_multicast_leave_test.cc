// The end of a membership in a multicast group (rdma_leave_multicast(3), rdma_destroy_id(3)). A
// join's event that was not fetched, and its channel after a migration of the id.
#include "tests/contract/support/direct.h"
#include "tests/contract/support/multicast.h"

namespace rdma_contract {
namespace {

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
  const EventChannel channel = NewChannel();
  const CmId id = NewId(channel.get(), RDMA_PS_UDP);
  ASSERT_EQ(BindTo(id.get(), here.address()), 0);
  sockaddr_storage address = SockaddrOf(group.c_str());
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(rdma_join_multicast(id.get(), to, nullptr), 0);
  CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_MULTICAST_JOIN);
  ASSERT_TRUE(event);
  std::future<int> left =
      std::async(std::launch::async, [&] { return ErrnoOf(rdma_leave_multicast(id.get(), to)); });
  EXPECT_TRUE(StillWaits(left));
  event.reset();
  EXPECT_EQ(left.get(), 0);
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
