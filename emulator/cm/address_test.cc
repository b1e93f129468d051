// Addresses without a device: loopback addresses, which count as wildcards, and GIDs of AF_IB.
#include <endian.h>
#include <infiniband/ib.h>

#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

class AddressTest : public CmTest {
 protected:
  static rdma_ucm_bind BindOf(uint32_t id, const sockaddr_ib& address) {
    rdma_ucm_bind in = {};
    in.id = id;
    in.addr_size = sizeof address;
    std::memcpy(&in.addr, &address, sizeof address);
    return in;
  }
  static sockaddr_ib Any(uint64_t service_id, uint64_t mask) {
    sockaddr_ib address = {};
    address.sib_family = AF_IB;
    address.sib_pkey = 0xffff;
    address.sib_sid = htobe64(service_id);
    address.sib_sid_mask = htobe64(mask);
    return address;
  }
  rdma_ucm_query_addr_resp AddressOf(uint32_t id) {
    return client.Ask<rdma_ucm_query_addr_resp>(RDMA_USER_CM_CMD_QUERY,
                                                rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_ADDR});
  }
};

TEST_F(AddressTest, BindingToALoopbackAddressChoosesNoDevice) {
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Bind(id, "127.0.0.1", 7100), 0);
  EXPECT_EQ(AddressOf(id).node_guid, 0u);
  EXPECT_EQ(client.Listen(id), 0);
}

TEST_F(AddressTest, ALoopbackAddressConflictsAsAWildcardDoes) {
  ASSERT_EQ(client.Bind(client.Create(), "127.0.0.1", 7100), 0);
  EXPECT_EQ(client.Bind(client.Create(), "10.0.0.1", 7100), EADDRNOTAVAIL);
  EXPECT_EQ(client.Bind(client.Create(), "127.0.0.2", 7100), EADDRNOTAVAIL);
}

TEST_F(AddressTest, ALoopbackDestinationHasADeviceAndNoRoute) {
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Resolve(id, "127.0.0.1", 7000), 0);
  client.Expect(EventType::kAddrResolved);
  EXPECT_EQ(AddressOf(id).node_guid, client_node.device.node_guid);
  EXPECT_EQ(client.Route(id), ENODEV);
  client.ExpectNothing();
}

TEST_F(AddressTest, AListenerOnALoopbackAddressIsReachedByTheDevices) {
  const uint32_t loopback = server.Listener("127.0.0.1", 7200);
  active = client.Resolved("10.0.0.2", 7200);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  EXPECT_NE(server.Expect(EventType::kConnectRequest).id, loopback);
}

TEST_F(AddressTest, AServiceIdNamesThePortSpaceItsPortIsOf) {
  constexpr uint64_t kWhole = ~uint64_t{0};
  const uint32_t id = client.Create(RDMA_PS_IB);
  ASSERT_EQ(client.Errno(RDMA_USER_CM_CMD_BIND, BindOf(id, Any(0x1061bbc, kWhole))), 0);
  EXPECT_EQ(client.Bind(client.Create(RDMA_PS_TCP), "10.0.0.1", 0x1bbc), EADDRNOTAVAIL);
  EXPECT_EQ(client.Bind(client.Create(RDMA_PS_UDP), "10.0.0.1", 0x1bbc), 0);
  ASSERT_EQ(client.Destroy(id), 0);
  EXPECT_EQ(client.Bind(client.Create(RDMA_PS_TCP), "10.0.0.1", 0x1bbc), 0);
}

TEST_F(AddressTest, AServiceIdThatIsNoPortSpacesIsRefused) {
  constexpr uint64_t kWhole = ~uint64_t{0};
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_BIND,
                         BindOf(client.Create(RDMA_PS_IB), Any(0x7771bbc, kWhole))),
            EPROTONOSUPPORT);
  EXPECT_EQ(client.Errno(RDMA_USER_CM_CMD_BIND,
                         BindOf(client.Create(RDMA_PS_TCP), Any(0x1111bbc, kWhole))),
            EPROTONOSUPPORT);
}

}  // namespace
}  // namespace rdmaemu::cm
