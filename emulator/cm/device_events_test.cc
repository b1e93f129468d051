// Tests the events of ids when their address moves (cma_netdev_change). Also tests messages that
// cannot be sent because a port is down (cm_send_handler, cm_process_send_error). The statuses were
// measured on rdma_rxe.
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

constexpr uint32_t kOtherDevice = 9;

class DeviceEvents : public CmTest {
 protected:
  void Move() {
    server_node.cm.AddressMoved(net.now, *NetAddress::Parse("10.0.0.2"), kOtherDevice);
  }
  void ExpectAddressChange(uint32_t id) {
    const TakenEvent event = server.Expect(EventType::kAddrChange);
    EXPECT_EQ(event.id, id);
    EXPECT_EQ(event.raw.param.conn.private_data_len, 0);
  }
};

TEST_F(DeviceEvents, AMovedAddressIsToldToItsIdsInTheOrderTheyGotTheirDevice) {
  const uint32_t wildcard = server.Create();
  ASSERT_EQ(server.Bind(wildcard, "0.0.0.0", 7001), 0);
  ASSERT_EQ(server.Listen(wildcard), 0);
  server.Create();  // unbound
  const uint32_t late = server.Create();
  Establish();
  const uint32_t resolved = server.Resolved("10.0.0.1", 1);
  ASSERT_EQ(server.Bind(late, "10.0.0.2", 0), 0);  // the oldest id, and the last to get the device
  Move();
  for (const uint32_t id : {listener, passive, resolved, late}) ExpectAddressChange(id);
  server.ExpectNothing();
  client.ExpectNothing();
}

TEST_F(DeviceEvents, IdsAreWhatTheyWereAfterAnAddressChange) {
  Establish();
  Move();
  ExpectAddressChange(listener);
  ExpectAddressChange(passive);
  EXPECT_EQ(server.Disconnect(passive), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
}

TEST_F(DeviceEvents, ARequestNobodyAcceptedYetHearsNothing) {
  Request();
  Move();
  ExpectAddressChange(listener);
  server.ExpectNothing();
  Accept();
}

TEST_F(DeviceEvents, AnAddressThatComesBackIsNoChangeForItsIds) {
  server_node.cm.AddressMoved(net.now, *NetAddress::Parse("10.0.0.2"), server_node.device.index);
  server.ExpectNothing();
}

// ---- messages that cannot be sent

TEST_F(DeviceEvents, AConnectThatCannotLeaveIsUnreachableAtOnce) {
  for (const uint16_t space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    active = client.Resolved("10.0.0.2", 7000, space);
    client_node.port_down = true;
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
    net.Run(0ms);
    client.Expect(EventType::kUnreachable, -ETIMEDOUT);
    client_node.port_down = false;
  }
}

TEST_F(DeviceEvents, ARepeatedRequestThatCannotLeaveIsTheLast) {
  Lose("REQ");
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Run(1s);
  client.ExpectNothing();
  client_node.port_down = true;
  net.Run(5s);
  client.Expect(EventType::kUnreachable, -ETIMEDOUT);
}

TEST_F(DeviceEvents, AnAcceptThatCannotLeaveIsUnreachableAtOnce) {
  Request();
  server_node.port_down = true;
  Accept();
  net.Run(0ms);
  server.Expect(EventType::kUnreachable, -ETIMEDOUT);
}

TEST_F(DeviceEvents, ADisconnectThatCannotLeaveIsDisconnectedAndThenTimewait) {
  Establish();
  client_node.port_down = true;
  EXPECT_EQ(client.Disconnect(active), 0);
  net.Run(0ms);
  client.Expect(EventType::kDisconnected, -ETIMEDOUT);
  net.Run(10s);
  client.Expect(EventType::kTimewaitExit);
  server.ExpectNothing();  // the server got no message
}

TEST_F(DeviceEvents, IdsDestroyedOnADeadLinkLeaveNothingBehind) {
  Establish();
  client_node.port_down = server_node.port_down = true;
  EndAll();
}

}  // namespace
}  // namespace rdmaemu::cm
