// Tests which host gets a call.
#include "emulator/embedded/call_routing.h"

#include <gtest/gtest.h>

#include "emulator/base/id_space.h"

namespace rdmaemu::embedded {
namespace {

constexpr uint32_t kEntered = 5;

template <class In>
uint32_t HostOf(CallOp op, const In& in) {
  return HostOfCall(static_cast<uint32_t>(op), &in, sizeof in, kEntered);
}

TEST(CallRouting, EveryCallHasARoute) {
  constexpr auto kLast = static_cast<uint32_t>(CallOp::kReqNotifyCq);
  for (uint32_t op = static_cast<uint32_t>(CallOp::kHello); op <= kLast; op++) {
    EXPECT_TRUE(RouteOf(op)) << op;
  }
  EXPECT_FALSE(RouteOf(0));
  EXPECT_FALSE(RouteOf(kLast + 1));
}

TEST(CallRouting, ObjectsTellWhereTheyAre) {
  const uint32_t handle = IdSpace::Part(3).At(77);
  EXPECT_EQ(HostOf(CallOp::kCloseDevice, HandleIn{handle, 0}), 3u);
  EXPECT_EQ(HostOf(CallOp::kCreateCq, CreateCqIn{handle, 0, 1, 0, 0}), 3u);
  EXPECT_EQ(HostOf(CallOp::kMapSegment, MapSegmentIn{handle, 0}), 3u);
  EXPECT_EQ(HostOf(CallOp::kOpenDevice, OpenDeviceIn{handle, 0}), 3u);
  constexpr auto kCreateId = static_cast<uint32_t>(CallOp::kCmCommand) + RDMA_USER_CM_CMD_CREATE_ID;
  EXPECT_EQ(HostOf(CallOp{kCreateId}, CmCall<rdma_ucm_create_id>{handle, 0, {}}), 3u);
}

TEST(CallRouting, WhatIsMadeAnewIsWhereTheThreadIs) {
  EXPECT_EQ(HostOf(CallOp::kHello, HelloIn{}), kEntered);
  EXPECT_EQ(HostOf(CallOp::kCmCreateChannel, Nothing{}), kEntered);
  EXPECT_EQ(HostOf(CallOp::kListDevices, Nothing{}), kEntered);
  EXPECT_EQ(HostOf(CallOp::kCmCreateChannel, CmCreateChannelIn{IdSpace::Part(2).At(1), 0}), 2u);
  EXPECT_EQ(HostOf(CallOp::kListDevices, ListDevicesIn{IdSpace::Part(2).At(1), 1}), 2u);
}

TEST(CallRouting, DestroyCallsAreKnown) {
  constexpr auto kCm = static_cast<uint32_t>(CallOp::kCmCommand);
  EXPECT_TRUE(IsDestroyCall(kCm + RDMA_USER_CM_CMD_DESTROY_ID));
  EXPECT_TRUE(IsDestroyCall(static_cast<uint32_t>(CallOp::kDeregMr)));
  EXPECT_FALSE(IsDestroyCall(kCm + RDMA_USER_CM_CMD_DISCONNECT));
  EXPECT_FALSE(IsDestroyCall(static_cast<uint32_t>(CallOp::kCreateQp)));
}

TEST(CallRouting, WhatIsCutGoesSomewhere) {
  EXPECT_EQ(HostOfCall(static_cast<uint32_t>(CallOp::kDestroyQp), nullptr, 0, kEntered), kEntered);
  EXPECT_EQ(HostOfCall(static_cast<uint32_t>(CallOp::kListDevices), nullptr, 0, kEntered),
            kEntered);
}

}  // namespace
}  // namespace rdmaemu::embedded
