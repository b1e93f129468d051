// rdma_migrate_id(3): the events that move and their order, the conditions that the call waits for,
// and the change between synchronous and asynchronous ids.
#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Migrate : public ConnectedTest {
 protected:
  // An id is destroyed before the channel that it moved to (rdma_destroy_event_channel(3)).
  ~Migrate() override {
    passive.reset();
    active.reset();
    listener.reset();
  }
  EventChannel other = NewChannel();
};

TEST_F(Migrate, TheIdNamesItsNewChannel) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(id.get(), other.get())), 0);
  EXPECT_EQ(id->channel, other.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, id.get());
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Migrate, PendingEventsMoveInTheirOrder) {
  if (IsIwarp()) GTEST_SKIP() << kEndsTogether;
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(rdma_disconnect(active.get()), 0);
  ASSERT_TRUE(IsReadable(passive_channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_disconnect(passive.get()), 0);
  Expect(channel.get(), RDMA_CM_EVENT_DISCONNECTED);
  Expect(channel.get(), RDMA_CM_EVENT_TIMEWAIT_EXIT);
  // Both sides' timewait began at the same time, so both events of the passive side are queued now.
  poll(nullptr, 0, kQuiet_ms);
  ASSERT_EQ(rdma_migrate_id(passive.get(), other.get()), 0);
  EXPECT_FALSE(IsReadable(passive_channel.get()));
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_DISCONNECTED)->id, passive.get());
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_TIMEWAIT_EXIT)->id, passive.get());
}

TEST_F(Migrate, OtherIdsEventsStay) {
  const CmId stays = NewId(channel.get()), moves = NewId(channel.get());
  ASSERT_EQ(ResolveTo(stays.get(), here, 1), 0);
  ASSERT_EQ(ResolveTo(moves.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_migrate_id(moves.get(), other.get()), 0);
  EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, stays.get());
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, moves.get());
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Migrate, WaitsWhileEventsOfTheIdAreUnacknowledged) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  std::future<int> moved = std::async(
      std::launch::async, [&] { return ErrnoOf(rdma_migrate_id(id.get(), other.get())); });
  EXPECT_TRUE(StillWaits(moved));
  event.reset();
  EXPECT_EQ(moved.get(), 0);
}

TEST_F(Migrate, DoesNotWaitForAnotherIdsEvents) {
  const CmId id = NewId(channel.get()), held = NewId(channel.get());
  ASSERT_EQ(ResolveTo(held.get(), here, 1), 0);
  const CmEvent event = Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(ErrnoOf(rdma_migrate_id(id.get(), other.get())), 0);
}

TEST_F(Migrate, ToTheChannelItIsOnChangesNothing) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  EXPECT_EQ(ErrnoOf(rdma_migrate_id(id.get(), channel.get())), 0);
  EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, id.get());
}

TEST_F(Migrate, ThereAndBack) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_migrate_id(id.get(), other.get()), 0);
  ASSERT_EQ(rdma_migrate_id(id.get(), channel.get()), 0);
  EXPECT_FALSE(IsReadable(other.get()));
  EXPECT_EQ(Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED)->id, id.get());
}

TEST_F(Migrate, TheOldChannelMayBeDestroyed) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_migrate_id(id.get(), other.get()), 0);
  channel.reset();
  Expect(other.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), 0);
  Expect(other.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

// ---- synchronous ids

TEST_F(Migrate, ToNoChannelMakesTheIdSynchronous) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(id.get(), nullptr)), 0);
  ASSERT_NE(id->channel, nullptr);
  EXPECT_NE(id->channel, channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Migrate, ASynchronousIdBecomesAsynchronousAgainAndDropsItsEvent) {
  const CmId id = NewId(nullptr);
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_NE(id->event, nullptr);
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(id.get(), channel.get())), 0);
  EXPECT_EQ(id->event, nullptr);
  EXPECT_EQ(id->channel, channel.get());
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  EXPECT_EQ(id->event, nullptr);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST_F(Migrate, ASynchronousIdCannotBecomeSynchronous) {
  const CmId id = NewId(nullptr);
  rdma_event_channel* own = id->channel;
  EXPECT_EQ(ErrnoOf(rdma_migrate_id(id.get(), nullptr)), EINVAL);
  EXPECT_EQ(id->channel, own);
}

TEST_F(Migrate, ToNoChannelTakesPendingEventsAlong) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(ResolveTo(id.get(), here, 1), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(rdma_migrate_id(id.get(), nullptr), 0);
  EXPECT_FALSE(IsReadable(channel.get()));
  EXPECT_EQ(Expect(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED)->id, id.get());
}

// ---- during connection setup

TEST_F(Migrate, WhileTheRequestIsUnderWay) {
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(active.get(), other.get())), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_ESTABLISHED)->id, active.get());
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_FALSE(IsReadable(channel.get()));
}

TEST_F(Migrate, WhenTheReplyHasComeAndWasNotFetched) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  ASSERT_TRUE(IsReadable(channel.get(), kPatience_ms));
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(active.get(), other.get())), 0);
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_ESTABLISHED)->id, active.get());
  EXPECT_EQ(StateOf(active->qp), IBV_QPS_RTS);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(Migrate, ARequestsIdBeforeItIsAccepted) {
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(passive.get(), other.get())), 0);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_ESTABLISHED)->id, passive.get());
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(Migrate, AnEstablishedIdDisconnectsOnItsNewChannel) {
  ASSERT_NO_FATAL_FAILURE(Establish());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(active.get(), other.get())), 0);
  ASSERT_EQ(rdma_disconnect(passive.get()), 0);
  EXPECT_EQ(Expect(other.get(), RDMA_CM_EVENT_DISCONNECTED)->id, active.get());
}

// ---- listening ids

TEST_F(Migrate, AListenersNextRequestsComeOnItsNewChannel) {
  listener = Listener(passive_channel.get());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(listener.get(), other.get())), 0);
  active = Requesting(listener.get());
  passive = NextRequest(other.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(passive->channel, other.get());
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(Migrate, AListenersFetchedRequestsStayWhereTheyAre) {
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(listener.get(), other.get())), 0);
  EXPECT_EQ(passive->channel, passive_channel.get());
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED)->id, passive.get());
}

TEST_F(Migrate, AListenerWaitsForItsUnacknowledgedRequests) {
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  CmEvent event = Expect(passive_channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_TRUE(event);
  passive.reset(event->id);
  std::future<int> moved = std::async(
      std::launch::async, [&] { return ErrnoOf(rdma_migrate_id(listener.get(), other.get())); });
  EXPECT_TRUE(StillWaits(moved));
  event.reset();
  EXPECT_EQ(moved.get(), 0);
}

TEST_F(Migrate, AListenerOnNoChannelServesGetRequest) {
  listener = Listener(passive_channel.get());
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(listener.get(), nullptr)), 0);
  active = Requesting(listener.get());
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(ErrnoOf(rdma_get_request(listener.get(), &request)), 0);
  passive.reset(request);
  ASSERT_NE(passive->event, nullptr);
  EXPECT_EQ(passive->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(Migrate, AListenerThatWasSynchronousTellsItsChannel) {
  listener = NewId(nullptr);
  ASSERT_EQ(BindTo(listener.get(), here), 0);
  ASSERT_EQ(rdma_listen(listener.get(), 4), 0);
  ASSERT_EQ(ErrnoOf(rdma_migrate_id(listener.get(), passive_channel.get())), 0);
  rdma_cm_id* request = nullptr;
  EXPECT_EQ(ErrnoOf(rdma_get_request(listener.get(), &request)), EINVAL);
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(passive->event, nullptr);
}

}  // namespace
}  // namespace rdma_contract
