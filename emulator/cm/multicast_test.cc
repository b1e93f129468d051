// Tests the multicast groups of ids: which joins make the device a member, for how long, and which
// joins fail.
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

TEST_F(CmTest, JoiningAGroupIsAnEventAndAnAddressVector) {
  const uint32_t id = client.Create(RDMA_PS_UDP);
  ASSERT_EQ(client.Bind(id, "10.0.0.1", 0), 0);
  rdma_ucm_join_mcast join = {};
  join.id = id;
  join.uid = 4242;
  Program::Address(join.addr, join.addr_size, "239.1.1.1", 0);
  const uint32_t membership =
      client.Ask<rdma_ucm_create_id_resp>(RDMA_USER_CM_CMD_JOIN_MCAST, join).id;
  const TakenEvent event = client.Expect(EventType::kMulticastJoin);
  EXPECT_EQ(event.uid, 4242u);
  EXPECT_EQ(event.id, membership);
  EXPECT_EQ(event.raw.param.ud.qp_num, 0xffffffu);
  EXPECT_EQ(event.raw.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(event.raw.param.ud.ah_attr.grh.dgid[15], 1);
  const NetAddress group = *NetAddress::Parse("239.1.1.1");
  EXPECT_EQ(client_node.groups, (std::map<NetAddress, int>{{group, 1}}));
  rdma_ucm_destroy_id leave = {};
  leave.id = membership;
  EXPECT_EQ(
      client.Ask<rdma_ucm_destroy_id_resp>(RDMA_USER_CM_CMD_LEAVE_MCAST, leave).events_reported,
      1u);
  EXPECT_TRUE(client_node.groups.empty());
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), ENOENT);
  join.id = client.Resolved("10.0.0.2", 7000);
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_JOIN_MCAST, join), EINVAL);
}

class Joining : public CmTest {
 protected:
  Joining() {
    id = client.Create(RDMA_PS_UDP);
    EXPECT_EQ(client.Bind(id, "10.0.0.1", 0), 0);
  }
  int Join(const char* group, uint16_t flags = RDMA_MC_JOIN_FLAG_FULLMEMBER) {
    rdma_ucm_join_mcast join = {};
    join.id = id;
    join.join_flags = flags;
    Program::Address(join.addr, join.addr_size, group, 0);
    return client.Errno(RDMA_USER_CM_CMD_JOIN_MCAST, join);
  }
  std::map<NetAddress, int>& groups() { return client_node.groups; }
  uint32_t id = 0;
};

TEST_F(Joining, EachJoinIsLeftWhenTheIdGoes) {
  for (const char* group : {"239.1.1.1", "239.1.1.1", "239.1.1.2"}) ASSERT_EQ(Join(group), 0);
  EXPECT_EQ(groups()[*NetAddress::Parse("239.1.1.1")], 2);
  client.Destroy(id);
  EXPECT_TRUE(groups().empty());
}

TEST_F(Joining, SendOnlyMembersAndAddressesOfNoGroupMakeTheDeviceNoMember) {
  ASSERT_EQ(Join("239.1.1.1", RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER), 0);
  ASSERT_EQ(Join("10.0.0.2"), 0);
  EXPECT_TRUE(groups().empty());
  client.Destroy(id);
  EXPECT_TRUE(groups().empty());
}

TEST_F(Joining, WhatTheNetworkRefusesIsTheCallersErrnoAndNoMembership) {
  client_node.groups_left = 0;
  EXPECT_EQ(Join("239.1.1.1"), ENOBUFS);
  client.ExpectNothing();
  client_node.groups_left = 1;
  EXPECT_EQ(Join("239.1.1.1"), 0);
  client.Expect(EventType::kMulticastJoin);
}

TEST_F(Joining, AnAddressThatHasGoneIsAnErrorWithStatusZero) {
  client_node.addresses.clear();
  ASSERT_EQ(Join("239.1.1.1"), 0);
  EXPECT_EQ(client.Expect(EventType::kMulticastError).status, 0);
}

TEST_F(Joining, ADeviceThatIsRemovedLeavesItsGroups) {
  ASSERT_EQ(Join("239.1.1.1"), 0);
  const uint32_t membership = client.Expect(EventType::kMulticastJoin).id;
  client_node.cm.DeviceRemoved(net.now, client_node.device.index);
  EXPECT_TRUE(groups().empty());
  rdma_ucm_destroy_id leave = {};
  leave.id = membership;
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), ENXIO);
  EXPECT_EQ(client.Destroy(id), 0);
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_LEAVE_MCAST, leave), ENOENT);
}

// This is the natural cause of ROUTE_ERROR on RoCE. librdmacm fetches the event and queries the
// path, but the device was removed before the query. The same failure turns an ADDR_RESOLVED into
// an ADDR_ERROR.
TEST_F(CmTest, AResolutionThatIsFetchedAfterItsDeviceWentCannotBeRead) {
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Resolve(id, "10.0.0.2", 7000), 0);
  client.Expect(EventType::kAddrResolved);
  ASSERT_EQ(client.Route(id), 0);
  client_node.cm.DeviceRemoved(net.now, client_node.device.index);
  client.Expect(EventType::kRouteResolved);
  for (const uint32_t what : {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_PATH}) {
    EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, what}), ENXIO);
  }
  client.Expect(EventType::kDeviceRemoval);
}

}  // namespace
}  // namespace rdmaemu::cm
