#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "shim/rdmacm/fake_host.h"
#include "shim/rdmacm/newer_abi.h"

namespace rdmaemu::rdmacm {
namespace {

class Events : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.Reset();
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr);
  }
  void TearDown() override { rdma_destroy_event_channel(channel_); }

  rdma_cm_id* MakeId() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP), 0);
    return id;
  }
  rdma_ucm_event_resp Make(uint32_t event, int status = 0) {
    rdma_ucm_event_resp response = {};
    response.uid = host_.last_uid;
    response.id = host_.last_id;
    response.event = event;
    response.status = static_cast<uint32_t>(status);
    return response;
  }

  testing::FakeHost& host_ = testing::FakeHost::Get();
  rdma_event_channel* channel_ = nullptr;
};

TEST_F(Events, NonblockingChannelWithoutEventsAnswersEagain) {
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Events, AnEventThatWentAfterItsCountWasTakenIsWaitedPast) {
  rdma_cm_id* id = MakeId();
  host_.Push(std::nullopt);
  host_.Push(Make(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(event->status, -ETIMEDOUT);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Events, PrivateDataOfFullLengthIsCopiedAndNoneIsNull) {
  rdma_cm_id* id = MakeId();
  rdma_ucm_event_resp rejected = Make(RDMA_CM_EVENT_REJECTED, 28);
  rejected.param.conn.private_data_len = 148;
  rejected.param.conn.private_data[147] = 0x5a;
  host_.Push(rejected);
  host_.Push(Make(RDMA_CM_EVENT_ESTABLISHED));
  rdma_cm_event *first = nullptr, *second = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &first), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &second), 0);
  EXPECT_EQ(first->param.conn.private_data_len, 148);
  EXPECT_EQ(static_cast<const uint8_t*>(first->param.conn.private_data)[147], 0x5a);
  EXPECT_EQ(second->param.conn.private_data, nullptr);
  EXPECT_EQ(second->param.conn.private_data_len, 0);
  rdma_ack_cm_event(first);
  rdma_ack_cm_event(second);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Events, DestroyWaitsUntilEveryFetchedEventIsAcknowledged) {
  rdma_cm_id* id = MakeId();
  host_.Push(Make(RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  std::atomic<bool> acknowledged = false;
  std::atomic<bool> destroyed_after_it = false;
  std::thread destroyer([&] {
    rdma_destroy_id(id);
    destroyed_after_it = acknowledged.load();
  });
  while (true) {  // until the host has handled the destroy
    std::lock_guard lock(host_.mutex);
    if (host_.commands.back() == RDMA_USER_CM_CMD_DESTROY_ID) break;
  }
  acknowledged = true;
  rdma_ack_cm_event(event);
  destroyer.join();
  EXPECT_TRUE(destroyed_after_it);
}

TEST_F(Events, AnEventWithoutAUidIsFoundByItsHandle) {
  rdma_cm_id* id = MakeId();
  rdma_ucm_event_resp removal = Make(RDMA_CM_EVENT_DEVICE_REMOVAL);
  removal.uid = 0;
  host_.Push(removal);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->id, id);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Events, AForkedChildIsRefused) {
  rdma_cm_id* id = MakeId();
  host_.forked = true;
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(rdma_resolve_route(id, 1000), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(rdma_destroy_id(id), -1);
  EXPECT_EQ(errno, EACCES);
  host_.forked = false;
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Events, UnboundIdsAnswerEinvalWhereTheRealLibraryCrashes) {
  rdma_cm_id* id = MakeId();
  ibv_qp_init_attr attributes = {};
  rdma_conn_param param = {};
  const auto refused = [](int result) { return result == -1 && errno == EINVAL; };
  EXPECT_TRUE(refused(rdma_resolve_route(id, 1000)));
  EXPECT_TRUE(refused(rdma_create_qp(id, nullptr, &attributes)));
  EXPECT_TRUE(refused(rdma_accept(id, nullptr)));
  EXPECT_TRUE(refused(rdma_connect(id, &param)));
  EXPECT_TRUE(refused(rdma_disconnect(id)));
  rdma_cm_id* request = nullptr;
  EXPECT_TRUE(refused(rdma_get_request(id, &request)));  // not synchronous
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Events, ACopyOfTheChannelsStructureIsTheSameChannel) {
  rdma_event_channel copy = *channel_;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(&copy, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(id->channel, &copy);
  host_.Push(Make(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(&copy, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_ERROR);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

class Synchronous : public Events {};

TEST_F(Synchronous, AnOperationGivesItsEventsStatusAsErrno) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  auto* destination = reinterpret_cast<sockaddr*>(&address);
  host_.Push(Make(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT));
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, destination, 1000), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_ERROR);
  // The next operation acknowledges the event.
  host_.Push(Make(RDMA_CM_EVENT_REJECTED, 8));
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, destination, 1000), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Synchronous, AStepThatFailsBecauseTheHostHasEndedGivesEio) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  for (const bool gone : {false, true}) {
    host_.gone = gone;
    host_.errors[RDMA_USER_CM_CMD_QUERY] = EIO;
    host_.Push(Make(RDMA_CM_EVENT_ADDR_RESOLVED));
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000), -1);
    EXPECT_EQ(errno, gone ? EIO : EPERM) << "librdmacm reports each failed step as -1";
  }
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(Synchronous, MigratingBackToAChannelEndsIt) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_NE(id->channel, channel_);
  ASSERT_EQ(rdma_migrate_id(id, channel_), 0);
  EXPECT_EQ(id->channel, channel_);
  rdma_cm_id* request = nullptr;
  EXPECT_EQ(rdma_get_request(id, &request), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(EventNames, AreTheirEnumerators) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_REJECTED), "RDMA_CM_EVENT_REJECTED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(rdma_event_str(EventType(kEventAddrinfoResolved)),
               "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
  EXPECT_STREQ(rdma_event_str(EventType(kEventInternal)), "RDMA_CM_EVENT_INTERNAL");
  EXPECT_STREQ(rdma_event_str(EventType(20)), "UNKNOWN EVENT");
}

}  // namespace
}  // namespace rdmaemu::rdmacm
