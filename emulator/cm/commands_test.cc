// Commands of rdma_user_cm.h: addresses, ports, options, queries, channels, and hostile commands.
#include <infiniband/ib.h>

#include "emulator/abi/write_event.h"
#include "emulator/cm/channel.h"
#include "emulator/cm/commands.h"
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {
namespace {

rdma_ucm_query_addr_resp QueryAddr(Program& program, uint32_t id) {
  return program.Ask<rdma_ucm_query_addr_resp>(RDMA_USER_CM_CMD_QUERY,
                                               rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_ADDR});
}
uint16_t PortOf(const __kernel_sockaddr_storage& storage) {
  sockaddr_in in;
  std::memcpy(&in, &storage, sizeof in);
  return ntohs(in.sin_port);
}
template <class T>
int SetOption(Program& program, uint32_t id, uint32_t level, uint32_t name, const T& value) {
  CmSetOption option = {};
  option.command.id = id;
  option.command.level = level;
  option.command.optname = name;
  option.command.optlen = sizeof value;
  std::memcpy(option.value, &value, sizeof value);
  return program.Errno(RDMA_USER_CM_CMD_SET_OPTION, option);
}
int Reuse(Program& program, uint32_t id) {
  return SetOption(program, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, int{1});
}

// ---- ports

struct PortCase {
  const char* name;
  const char* first;
  const char* second;
  uint16_t second_space;
  bool listen, first_reuses, second_reuses;
  int expected;
};

class Ports : public CmTest, public testing::WithParamInterface<PortCase> {};

TEST_P(Ports, ConflictAsMeasuredEvenBetweenPrograms) {
  const PortCase& c = GetParam();
  server_node.addresses.insert(*NetAddress::Parse("10.0.0.9"));
  Program other(server_node, 9);
  const uint32_t a = server.Create(), b = other.Create(c.second_space);
  if (c.first_reuses) {
    ASSERT_EQ(Reuse(server, a), 0);
  }
  if (c.second_reuses) {
    ASSERT_EQ(Reuse(other, b), 0);
  }
  ASSERT_EQ(server.Bind(a, c.first, 5000), 0);
  if (c.listen) {
    ASSERT_EQ(server.Listen(a), 0);
  }
  EXPECT_EQ(other.Bind(b, c.second, 5000), c.expected);
  // Destroying the owner frees the port.
  ASSERT_EQ(server.Destroy(a), 0);
  if (c.expected != 0) {
    EXPECT_EQ(other.Bind(b, c.second, 5000), 0);
  }
}

constexpr const char *kA1 = "10.0.0.2", *kA2 = "10.0.0.9", *kAny = "0.0.0.0";
INSTANTIATE_TEST_SUITE_P(
    Table, Ports,
    testing::Values(
        PortCase{"Same", kA1, kA1, RDMA_PS_TCP, false, false, false, EADDRINUSE},
        PortCase{"SameListening", kA1, kA1, RDMA_PS_TCP, true, false, false, EADDRINUSE},
        PortCase{"OtherAddress", kA1, kA2, RDMA_PS_TCP, true, false, false, 0},
        PortCase{"WildcardAfterOne", kA1, kAny, RDMA_PS_TCP, true, false, false, EADDRNOTAVAIL},
        PortCase{"OneAfterWildcard", kAny, kA1, RDMA_PS_TCP, false, false, false, EADDRNOTAVAIL},
        PortCase{"OtherSpace", kA1, kA1, RDMA_PS_UDP, true, false, false, 0},
        PortCase{"OnlyTheSecondReuses", kA1, kA1, RDMA_PS_TCP, true, false, true, EADDRINUSE},
        PortCase{"BothReuse", kA1, kA1, RDMA_PS_TCP, false, true, true, 0},
        PortCase{"ReuseOfAListener", kA1, kA1, RDMA_PS_TCP, true, true, true, EADDRINUSE}),
    [](const auto& info) { return info.param.name; });

TEST_F(CmTest, OfTwoThatReuseAPortNeitherMayListen) {
  const uint32_t a = server.Create(), b = server.Create();
  ASSERT_EQ(Reuse(server, a), 0);
  ASSERT_EQ(Reuse(server, b), 0);
  ASSERT_EQ(server.Bind(a, "10.0.0.2", 5000), 0);
  ASSERT_EQ(server.Bind(b, "10.0.0.2", 5000), 0);
  EXPECT_EQ(server.Listen(a), EADDRINUSE);
  EXPECT_EQ(server.Listen(b), EADDRINUSE);
}

TEST_F(CmTest, AnIpv6WildcardWithAfOnlyLeavesIpv4Alone) {
  const uint32_t six = server.Create(), four = server.Create(), shared = server.Create();
  ASSERT_EQ(SetOption(server, six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, int{1}), 0);
  ASSERT_EQ(server.Bind(six, "::", 5000), 0);
  EXPECT_EQ(server.Bind(four, "0.0.0.0", 5000), 0);
  ASSERT_EQ(server.Bind(shared, "::", 5001), 0);
  EXPECT_EQ(server.Bind(server.Create(), "0.0.0.0", 5001), EADDRNOTAVAIL);
}

TEST_F(CmTest, AProgramCannotWriteSoManyEventsThatACallsEventIsLost) {
  const uint32_t writer = client.Create(), resolver = client.Create();
  CmWriteEvent written = {};
  written.id = writer;
  written.event = kCmEventUser;
  for (size_t i = 0; i < Channels::kMaxEventsForWriters; i++) {
    ASSERT_EQ(client.Errno(kCmCommandWriteEvent, written), 0) << i;
  }
  EXPECT_EQ(client.Errno(kCmCommandWriteEvent, written), ENOMEM);
  ASSERT_EQ(client.Resolve(resolver, "10.0.0.2", 5000), 0);
  for (size_t i = 0; i < Channels::kMaxEventsForWriters; i++) client.Take();
  EXPECT_EQ(client.Take()->raw.event, static_cast<uint32_t>(EventType::kAddrResolved));
  EXPECT_EQ(client.Errno(kCmCommandWriteEvent, written), 0);
}

TEST_F(CmTest, PortZeroIsAnEphemeralPort) {
  const uint32_t id = server.Create(), next = server.Create();
  ASSERT_EQ(server.Bind(id, "10.0.0.2", 0), 0);
  ASSERT_EQ(server.Bind(next, "10.0.0.2", 0), 0);
  const uint16_t port = PortOf(QueryAddr(server, id).src_addr);
  EXPECT_GE(port, 32768);
  EXPECT_NE(port, PortOf(QueryAddr(server, next).src_addr));
}

TEST_F(CmTest, ListenWithoutBindTakesTheWildcard) {
  const uint32_t id = server.Create();
  ASSERT_EQ(server.Listen(id), 0);
  const rdma_ucm_query_addr_resp address = QueryAddr(server, id);
  EXPECT_EQ(address.node_guid, 0u);
  EXPECT_EQ(server.Listen(id), EINVAL);
  active = client.Resolved("10.0.0.2", PortOf(address.src_addr));
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  server.Expect(EventType::kConnectRequest);
}

// ---- addresses

TEST_F(CmTest, AddressErrorsAreTheKernels) {
  const uint32_t id = client.Create();
  EXPECT_EQ(client.Resolve(id, "203.0.113.1", 1), ENETUNREACH);
  EXPECT_EQ(client.Resolve(client.Create(), "10.0.0.2", 1, "192.0.2.55"), EADDRNOTAVAIL);
  EXPECT_EQ(client.Resolve(client.Create(), "10.0.0.2", 1, "2001:db8::1"), EADDRNOTAVAIL);
  // A loopback source binds like a wildcard. Then the families differ.
  EXPECT_EQ(client.Resolve(client.Create(), "10.0.0.2", 1, "::1"), EINVAL);
  EXPECT_EQ(client.Bind(client.Create(), "10.0.0.2", 1), EADDRNOTAVAIL);
  EXPECT_EQ(client.Resolve(id, "10.0.0.2", 1), 0);  // the id may try again after an error
  EXPECT_EQ(client.Resolve(id, "10.0.0.2", 1), EINVAL);
  client.Expect(EventType::kAddrResolved);
  EXPECT_EQ(client.Bind(id, "10.0.0.1", 1), EINVAL);
  EXPECT_EQ(client.Listen(id), EINVAL);
  EXPECT_EQ(client.Connect(id, Program::Parameters(1)), EINVAL);
}

TEST_F(CmTest, AnIdleIdRefusesWhatNeedsADevice) {
  const uint32_t id = client.Create();
  EXPECT_EQ(client.Route(id), EINVAL);
  EXPECT_EQ(client.Connect(id, Program::Parameters(1)), EINVAL);
  EXPECT_EQ(client.Establish(id), EINVAL);
  EXPECT_EQ(client.Reject(id), EINVAL);
  EXPECT_EQ(client.Disconnect(id), EINVAL);
  EXPECT_EQ(client.QpAttr(id, IBV_QPS_INIT).error().code, EINVAL);
}

TEST_F(CmTest, AListenerRefusesWhatIsForConnections) {
  EXPECT_EQ(server.Disconnect(listener), 0);
  EXPECT_EQ(server.Reject(listener), EINVAL);
  EXPECT_EQ(server.Accept(listener, 1, Program::Parameters(1)), EINVAL);
  EXPECT_EQ(server.Connect(listener, Program::Parameters(1)), EINVAL);
  EXPECT_EQ(server.Resolve(listener, "10.0.0.1", 1), EINVAL);
}

TEST_F(CmTest, AQueryTellsAddressesGidsAndThePath) {
  const uint32_t id = client.Create();
  const uint8_t tos = 0x20, timeout = 10;
  ASSERT_EQ(SetOption(client, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos), 0);
  ASSERT_EQ(SetOption(client, id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, timeout), 0);
  ASSERT_EQ(client.Resolve(id, "10.0.0.2", 7000), 0);
  ASSERT_EQ(client.Route(id), 0);
  EXPECT_EQ(QueryAddr(client, id).node_guid, client_node.device.node_guid);
  const auto gids = client.Ask<rdma_ucm_query_addr_resp>(
      RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_GID});
  sockaddr_ib ib;
  std::memcpy(&ib, &gids.dst_addr, sizeof ib);
  EXPECT_EQ(std::memcmp(&ib.sib_addr, NetAddress::Parse("10.0.0.2")->bytes.data(), 16), 0);
  EXPECT_EQ(be64toh(ib.sib_sid), 0x01060000u + 7000);
  const auto paths = client.Ask<CmQueryPathOut>(RDMA_USER_CM_CMD_QUERY,
                                                rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_PATH});
  ASSERT_EQ(paths.num_paths, 1u);
  uint8_t record[64];
  std::memcpy(record, paths.paths[0].path_rec, sizeof record);
  EXPECT_EQ(record[47], 64);    // hop limit
  EXPECT_EQ(record[48], 0x20);  // traffic class
  EXPECT_EQ(record[54], 0x80 | IBV_MTU_1024);
  EXPECT_EQ(record[49], 0x80 | 1);  // reversible, one path
  EXPECT_EQ(record[56], 0x80 | 9);  // lifetime: one less than the ACK timeout
  const auto route =
      client.Ask<rdma_ucm_query_route_resp>(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0});
  EXPECT_EQ(route.num_paths, 1u);
  EXPECT_EQ(route.ib_route[0].packet_life_time, 9);
}

TEST_F(CmTest, OptionsAnswerAsMeasured) {
  const uint32_t id = client.Create();
  EXPECT_EQ(SetOption(client, id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, int{0}), EINVAL);
  EXPECT_EQ(SetOption(client, id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, int{0}), EINVAL);
  EXPECT_EQ(SetOption(client, id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, char{0}), EINVAL);
  EXPECT_EQ(SetOption(client, id, RDMA_OPTION_ID, 77, int{0}), ENOSYS);
  EXPECT_EQ(SetOption(client, id, 7, 0, int{0}), ENOSYS);
  EXPECT_EQ(SetOption(client, id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, int{0}), EINVAL);
}

TEST_F(CmTest, AGivenPathStandsInForResolvingTheRoute) {
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Resolve(id, "10.0.0.2", 7000), 0);
  ASSERT_EQ(client.Route(id), 0);
  auto paths = client.Ask<CmQueryPathOut>(RDMA_USER_CM_CMD_QUERY,
                                          rdma_ucm_query{0, id, RDMA_USER_CM_QUERY_PATH});
  const uint32_t other = client.Create();
  ASSERT_EQ(client.Resolve(other, "10.0.0.2", 7000), 0);
  EXPECT_EQ(SetOption(client, other, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths.paths[0]), 0);
  EXPECT_EQ(client.Connect(other, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  server.Expect(EventType::kConnectRequest);
}

// ---- channels

TEST_F(CmTest, MigratingAnIdMovesItsEventsInOrder) {
  Program second(client_node, 1);  // another channel of the same group
  const uint32_t id = client.Create(), stays = client.Create();
  ASSERT_EQ(client.Resolve(id, "10.0.0.2", 7000), 0);
  ASSERT_EQ(client.Resolve(stays, "10.0.0.2", 7000), 0);
  ASSERT_EQ(client.Route(id), 0);
  rdma_ucm_migrate_id migrate = {};
  migrate.id = id;
  migrate.fd = second.channel.handle;
  EXPECT_EQ(client.Ask<rdma_ucm_migrate_resp>(RDMA_USER_CM_CMD_MIGRATE_ID, migrate).events_reported,
            0u);
  EXPECT_EQ(client_node.counters.value(client.channel.counter), 1u);
  EXPECT_EQ(client_node.counters.value(second.channel.counter), 2u);
  second.Expect(EventType::kAddrResolved);
  second.Expect(EventType::kRouteResolved);
  EXPECT_EQ(client.Expect(EventType::kAddrResolved).id, stays);
  EXPECT_EQ(client.Disconnect(id), EINVAL);  // the id is no longer on this channel
  EXPECT_EQ(second.Connect(id, Program::Parameters(kClientQpn)), 0);
  migrate.fd = server.channel.handle + 1000;
  EXPECT_EQ(second.Errno(RDMA_USER_CM_CMD_MIGRATE_ID, migrate), ENOENT);
}

TEST_F(CmTest, MigratingAListenerTakesUnfetchedRequestsAlong) {
  active = client.Resolved("10.0.0.2", 7000);
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  net.Settle();
  Program second(server_node, 2);
  rdma_ucm_migrate_id migrate = {};
  migrate.id = listener;
  migrate.fd = second.channel.handle;
  ASSERT_EQ(server.Errno(RDMA_USER_CM_CMD_MIGRATE_ID, migrate), 0);
  passive = second.Expect(EventType::kConnectRequest).id;
  EXPECT_EQ(second.Accept(passive, kServerUid, Program::Parameters(kServerQpn)), 0);
}

TEST_F(CmTest, DestroyTellsHowManyEventsWereReported) {
  const uint32_t id = client.Create();
  ASSERT_EQ(client.Resolve(id, "10.0.0.2", 7000), 0);
  client.Expect(EventType::kAddrResolved);
  ASSERT_EQ(client.Route(id), 0);
  rdma_ucm_destroy_id destroy = {};
  destroy.id = id;
  EXPECT_EQ(
      client.Ask<rdma_ucm_destroy_id_resp>(RDMA_USER_CM_CMD_DESTROY_ID, destroy).events_reported,
      1u);
  client.ExpectNothing();
  EXPECT_EQ(client.Destroy(id), ENOENT);
}

TEST_F(CmTest, AnotherGroupsChannelIsNotOurs) {
  rdma_ucm_get_event in = {};
  std::vector<std::byte> out(1024);
  EXPECT_EQ(server_node.cm
                .Call(net.now, static_cast<GroupId>(9), ProcessId::kNone, server.channel.handle,
                      RDMA_USER_CM_CMD_GET_EVENT, std::as_bytes(std::span(&in, 1)), out)
                .error()
                .code,
            EBADF);
}

// ---- removal

TEST_F(CmTest, ARemovedDeviceIsToldToItsIdsInTheOrderTheyGotIt) {
  Program local(server_node, 2);
  const uint32_t wildcard = server.Create();
  ASSERT_EQ(server.Bind(wildcard, "0.0.0.0", 7001), 0);
  ASSERT_EQ(server.Listen(wildcard), 0);
  Establish();
  const uint32_t bound = server.Create();
  ASSERT_EQ(server.Bind(bound, "10.0.0.2", 0), 0);
  server_node.removed = true;
  server_node.cm.DeviceRemoved(net.now, 0);
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, listener);
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, passive);
  EXPECT_EQ(server.Expect(EventType::kDeviceRemoval).id, bound);
  server.ExpectNothing();
  EXPECT_EQ(server.Disconnect(passive), ENXIO);
  EXPECT_EQ(server.Listen(bound), ENXIO);
  EXPECT_EQ(server.Bind(server.Create(), "10.0.0.2", 1), ENODEV);
  const uint32_t fresh = server.Create();
  EXPECT_EQ(server.Resolve(fresh, "10.0.0.1", 1), 0);
  server.Expect(EventType::kAddrError, -ENODEV);
  EXPECT_EQ(server.Destroy(passive), 0);
  EXPECT_EQ(server.Destroy(bound), 0);
  EXPECT_EQ(server.Destroy(listener), 0);
  net.Settle();
  client.Expect(EventType::kDisconnected);
  EndAll();
}

// ---- hostile programs

TEST_F(CmTest, CommandsOfEveryWrongSizeAreRefusedAndChangeNothing) {
  Establish();
  std::vector<std::byte> in(2048, std::byte{0x5a}), out(1024);
  const size_t ids = client_node.cm.ids();
  for (uint32_t command = 0; command < RDMA_USER_CM_CMD_JOIN_MCAST + 8; command++) {
    for (size_t size = 0; size <= in.size(); size += size < 700 ? 1 : 61) {
      (void)client_node.cm.Call(net.now, client.group, ProcessId::kNone, client.channel.handle,
                                command, std::span(in).first(size), out);
      // A response that does not fit is refused before the command has any effect.
      (void)client_node.cm.Call(net.now, client.group, ProcessId::kNone, client.channel.handle,
                                command, std::span(in).first(size), std::span(out).first(size % 8));
    }
  }
  EXPECT_EQ(client_node.cm.ids(), ids);
  EXPECT_EQ(server_node.cm.statistics().dropped_no_match, 0u);
  EndAll();
}

// Two programs send random commands for a few ids, on a network that drops and duplicates messages.
// The host must not crash. After the programs have ended and all timers have expired, no id or
// connection may remain.
TEST(Hostile, RandomCommandsOnALossyNetworkLeaveNothingBehind) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Net net;
    Program a(net.Add("10.0.0.1"), 1), b(net.Add("10.0.0.2"), 2);
    net.filter = [&random](const wire::CmMessage&) {
      return Net::Fate{.lost = random.Below(5) == 0,
                       .copies = 1 + static_cast<int>(random.Below(2)),
                       .delay = std::chrono::milliseconds(1 + random.Below(50))};
    };
    const char* const addresses[] = {"10.0.0.1", "10.0.0.2", "0.0.0.0"};
    for (int step = 0; step < 600; step++) {
      Program& program = random.Below(2) == 0 ? a : b;
      const uint32_t id = 1 + random.Below(24);
      const auto parameters =
          Program::Parameters(random.Below(6), std::string(random.Below(60), 'p'));
      const uint16_t space = random.Below(3) == 0 ? RDMA_PS_UDP : RDMA_PS_TCP;
      switch (random.Below(16)) {
        case 0:
        case 1:
          program.Create(space);
          break;
        case 2:
          program.Bind(id, addresses[random.Below(3)], static_cast<uint16_t>(random.Below(3)));
          break;
        case 3:
          program.Listen(id, random.Below(3));
          break;
        case 4:
        case 5:
          program.Resolve(id, addresses[random.Below(3)], static_cast<uint16_t>(random.Below(3)));
          break;
        case 6:
          program.Route(id);
          break;
        case 7:
        case 8:
          program.Connect(id, parameters);
          break;
        case 9:
          program.Accept(id, random.Below(3), parameters);
          break;
        case 10:
          program.Establish(id);
          break;
        case 11:
          program.Disconnect(id);
          break;
        case 12:
          if (random.Below(3) == 0) program.Destroy(id);
          break;
        case 13:
          while (program.Take()) {
          }
          break;
        case 14: {
          std::vector<std::byte> in(random.Below(700)), out(random.Below(1024));
          for (std::byte& byte : in) byte = static_cast<std::byte>(random.Below(4));
          (void)program.node.cm.Call(net.now, program.group, ProcessId::kNone,
                                     program.channel.handle, random.Below(25), in, out);
          break;
        }
        default:
          net.Run(std::chrono::milliseconds(random.Below(3000)));
          break;
      }
    }
    a.node.cm.GroupGone(net.now, a.group);
    b.node.cm.GroupGone(net.now, b.group);
    net.Run(24h);
    for (const auto& node : net.nodes) {
      EXPECT_EQ(node->cm.ids(), 0u);
      EXPECT_EQ(node->cm.connections(), 0u);
      EXPECT_EQ(node->counters.size(), 0u);
    }
  }
}

}  // namespace
}  // namespace rdmaemu::cm
