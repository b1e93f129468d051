// Events that programs and the library write (rdma_write_cm_event), against a scripted host.
#include <gtest/gtest.h>

#include "shim/rdmacm/fake_host.h"
#include "shim/rdmacm/newer_abi.h"

namespace rdmaemu::rdmacm {
namespace {

class Written : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.Reset();
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr);
    ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0);
  }
  void TearDown() override {
    EXPECT_EQ(rdma_destroy_id(id_), 0);
    rdma_destroy_event_channel(channel_);
  }
  rdma_cm_event* Fetch(uint32_t type, int status, uint64_t argument) {
    rdma_ucm_event_resp response = {};
    response.uid = host_.last_uid;
    response.id = host_.last_id;
    response.event = type;
    response.status = static_cast<uint32_t>(status);
    std::memcpy(&response.param, &argument, sizeof argument);
    host_.Push(response);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0);
    return event;
  }
  testing::FakeHost& host_ = testing::FakeHost::Get();
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
};

TEST_F(Written, AUsersEventKeepsItsTypeStatusAndArgument) {
  rdma_cm_event* event = Fetch(kCmEventUser, -7, 0x1122334455667788);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, kEventUser);
  EXPECT_EQ(event->status, -7);
  uint64_t argument = 0;
  std::memcpy(&argument, &event->param, sizeof argument);
  EXPECT_EQ(argument, 0x1122334455667788u);
  rdma_ack_cm_event(event);
}

TEST_F(Written, TheLibrarysEventIsTheOutcomeOfALookup) {
  rdma_cm_event* event = Fetch(kCmEventInternal, 0, 0);
  EXPECT_EQ(event->event, kEventAddrinfoResolved);
  rdma_ack_cm_event(event);
  event = Fetch(kCmEventInternal, -2, 0);
  EXPECT_EQ(event->event, kEventAddrinfoError);
  EXPECT_EQ(event->status, -2);
  rdma_ack_cm_event(event);
}

}  // namespace
}  // namespace rdmaemu::rdmacm
