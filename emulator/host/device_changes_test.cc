// Devices of running hosts: removed and returned devices, ports down and up, and addresses that are
// added, removed and moved. The rules were measured on rdma_rxe, or read in the kernel's cma.c.
// Where hardware differs, a profile's habit selects the behaviour.
#include <gtest/gtest.h>

#include <numeric>

#include "emulator/cm/events.h"
#include "emulator/host/testing/cm_program.h"
#include "emulator/verbs/built_in_profiles.h"

namespace rdmaemu {
namespace {

using std::chrono::seconds;
using testing::Client;
using testing::CmProgram;
using testing::Ipv4Socket;
using testing::kAllAccess;
using testing::Verb;
using testing::World;

cm::EventType TypeOf(const rdma_ucm_event_resp& event) { return cm::EventType{event.event}; }

ChangeDeviceIn Change(DeviceChange change, const std::string& device,
                      const std::string& address = "", const std::string& profile = "") {
  ChangeDeviceIn in{};
  in.change = static_cast<uint32_t>(change);
  in.on_wire = 1;
  in.link_mtu_bytes = 1500;
  device.copy(in.device, sizeof in.device - 1);
  profile.copy(in.profile, sizeof in.profile - 1);
  if (!address.empty()) {
    const NetAddress parsed = *NetAddress::Parse(address);
    std::copy(parsed.bytes.begin(), parsed.bytes.end(), in.address);
  }
  return in;
}

// Host a with rxe0 and rxe1, host b with rxe0. A program on each host has a QP, and the QPs are
// connected.
class DeviceChanges : public ::testing::Test {
 protected:
  explicit DeviceChanges(const Profile& profile = *BuiltInProfile("rxe")) : profile_(profile) {}

  Host& Start(const std::string& name, const std::vector<std::vector<std::string>>& devices) {
    HostConfig config;
    config.name = name;
    config.seed = 7;
    for (const auto& addresses : devices) {
      DeviceConfig& device = config.devices.emplace_back();
      device.name = "rxe" + std::to_string(config.devices.size() - 1);
      device.profile = profile_;
      for (const std::string& text : addresses) {
        device.addresses.push_back({.address = *NetAddress::Parse(text)});
      }
    }
    return world.AddHost(std::move(config));
  }
  int Do(const ChangeDeviceIn& in) { return a.Call(CallOp::kChangeDevice, in); }

  // Takes the types of all pending asynchronous events of a program's context.
  static std::vector<int> Async(Verb& verb) {
    std::vector<int> types;
    GetAsyncEventOut out{};
    while (verb.client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, out) == 0) {
      types.push_back(out.type);
    }
    return types;
  }
  static std::vector<std::string> Devices(Client& client) {
    ListDevicesOut out{};
    EXPECT_EQ(client.Call(CallOp::kListDevices, Nothing{}, out), 0);
    std::vector<std::string> names;
    for (uint32_t i = 0; i < out.count; i++) names.emplace_back(out.devices[i].name);
    return names;
  }
  static DeviceEntry EntryOf(Client& client, const std::string& name) {
    ListDevicesOut out{};
    EXPECT_EQ(client.Call(CallOp::kListDevices, Nothing{}, out), 0);
    for (uint32_t i = 0; i < out.count; i++) {
      if (out.devices[i].name == name) return out.devices[i];
    }
    ADD_FAILURE() << "no device " << name;
    return {};
  }
  static ibv_port_attr Port(Verb& verb) {
    QueryPortOut out{};
    EXPECT_EQ(verb.client.Call(CallOp::kQueryPort, QueryPortIn{verb.context, 1}, out), 0);
    return out.attr;
  }
  static std::vector<std::string> Gids(Verb& verb) {
    QueryGidsOut out{};
    EXPECT_EQ(verb.client.Call(CallOp::kQueryGids, QueryGidsIn{verb.context, 1, 0, 6}, out), 0);
    std::vector<std::string> gids;
    for (uint32_t i = 0; i < out.count; i++) {
      const NetAddress gid = NetAddress::FromGid(out.entries[i].gid);
      gids.push_back(gid.IsZero() ? "" : gid.ToString());
    }
    return gids;
  }

  // Sends from one program to the other. Returns the completion's status, or -1 when none arrives
  // in time.
  int Send(Verb& from, Verb::Qp& qp, Verb& to, Verb::Qp& peer) {
    const MrOut near = from.Register(bytes.data(), bytes.size(), kAllAccess);
    const MrOut far = to.Register(bytes.data(), bytes.size(), kAllAccess);
    to.PostRecv(peer, 1, bytes.data(), 64, far.lkey);
    from.PostSend(qp, 2, IBV_WR_SEND, bytes.data(), 64, near.lkey);
    ib_uverbs_wc wc;
    const bool ended = world.RunUntil([&] { return from.Poll(wc); }, seconds(60));
    return ended ? static_cast<int>(wc.status) : -1;
  }

  const Profile profile_;
  World world;
  Host& a_host = Start("a", {{"127.0.1.1"}, {"127.0.2.1"}});
  Host& b_host = Start("b", {{"127.0.3.1"}});
  Client a{world, a_host}, b{world, b_host};
  Verb av{a}, bv{b};
  Verb::Qp aq = av.CreateQp(IBV_QPT_RC), bq = bv.CreateQp(IBV_QPT_RC);
  std::vector<uint8_t> bytes = std::vector<uint8_t>(64);
  bool joined = [this] {
    av.ConnectRc(aq, "127.0.3.1", bq.made.qpn);
    bv.ConnectRc(bq, "127.0.1.1", aq.made.qpn);
    return true;
  }();
};

// ---- removal

TEST_F(DeviceChanges, ARemovedDeviceIsListedNoMoreAndOpenedNoMore) {
  const uint32_t index = EntryOf(a, "rxe0").index;
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  EXPECT_EQ(Devices(a), std::vector<std::string>{"rxe1"});
  EXPECT_EQ(a.Call(CallOp::kOpenDevice, OpenDeviceIn{index, 0}), ENODEV);
  EXPECT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), ENODEV);
}

TEST_F(DeviceChanges, WhatIsOpenOnARemovedDeviceStillAnswersAndHearsNothing) {
  EXPECT_EQ(Port(av).port_cap_flags & IBV_PORT_CM_SUP, IBV_PORT_CM_SUP);
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  EXPECT_TRUE(Async(av).empty());
  EXPECT_EQ(Port(av).state, IBV_PORT_ACTIVE);
  EXPECT_EQ(Port(av).port_cap_flags & IBV_PORT_CM_SUP, 0);
  HandleOut pd{};
  EXPECT_EQ(a.Call(CallOp::kAllocPd, AllocPdIn{av.context, 0}, pd), 0);
  QueryQpOut qp{};
  ASSERT_EQ(a.Call(CallOp::kQueryQp, HandleIn{aq.made.handle, 0}, qp), 0);
  EXPECT_EQ(qp.attr.qp_state, IBV_QPS_RTS);
}

TEST_F(DeviceChanges, APeerOfARemovedDeviceRunsOutOfRetries) {
  ASSERT_EQ(Send(bv, bq, av, aq), IBV_WC_SUCCESS);
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceChanges, WhatARemovedDeviceSendsIsLost) {
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceChanges, ADeviceReturnsAsAnotherOneWithItsNameGuidAndAddresses) {
  const DeviceEntry before = EntryOf(a, "rxe0");
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe0")), 0);
  const DeviceEntry after = EntryOf(a, "rxe0");
  EXPECT_NE(after.index, before.index);
  EXPECT_EQ(after.node_guid, before.node_guid);
  EXPECT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe0")), EEXIST);
  // Objects that were open belong to the removed device.
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceChanges, AReturnedDeviceServesNewPrograms) {
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe0")), 0);
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  client.Connect(RDMA_PS_TCP, "127.0.1.1", 700);
  world.Settle();
  EXPECT_EQ(TypeOf(server.Event()), cm::EventType::kConnectRequest);
}

TEST_F(DeviceChanges, RemovingAndAddingManyTimesLeavesNothingBehind) {
  for (int i = 0; i < 1000; i++) {
    ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe1")), 0);
    ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe1")), 0);
  }
  EXPECT_EQ(Devices(a), (std::vector<std::string>{"rxe0", "rxe1"}));
  // A removed device that programs hold ends with its last holder.
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  Client other(world, a_host);
  a.Kill();
  EXPECT_EQ(Devices(other), std::vector<std::string>{"rxe1"});
}

TEST_F(DeviceChanges, IdsOfARemovedDeviceHearOfItAndPeersOfTheirEnd) {
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  const uint32_t active = client.Connect(RDMA_PS_TCP, "127.0.1.1", 700);
  world.Settle();
  server.Accept(server.Event().id);
  world.Settle();
  client.Event();
  client.Establish(active);
  world.Settle();
  server.Event();
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  EXPECT_EQ(TypeOf(server.Event()), cm::EventType::kDeviceRemoval);
  world.Settle();
  EXPECT_EQ(TypeOf(client.Event()), cm::EventType::kDisconnected);
}

TEST_F(DeviceChanges, AWildcardListenerHearsEveryDeviceThatComes) {
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_UDP, "0.0.0.0", 700, 5);
  ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe2", "", "rxe")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe2", "127.0.4.1")), 0);
  for (const char* address : {"127.0.1.1", "127.0.2.1", "127.0.4.1"}) {
    client.Connect(RDMA_PS_UDP, address, 700);
    world.Settle();
    EXPECT_EQ(TypeOf(server.Event()), cm::EventType::kConnectRequest) << address;
  }
}

// ---- ports

TEST_F(DeviceChanges, APortThatGoesDownTellsEveryContextAndItsState) {
  Verb other(a);
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);  // no change
  EXPECT_EQ(Async(av), std::vector<int>{IBV_EVENT_PORT_ERR});
  EXPECT_EQ(Async(other), std::vector<int>{IBV_EVENT_PORT_ERR});
  EXPECT_EQ(Port(av).state, IBV_PORT_DOWN);
  EXPECT_EQ(Port(av).phys_state, 3);  // measured
  EXPECT_TRUE(Async(bv).empty());
  ASSERT_EQ(Do(Change(DeviceChange::kPortUp, "rxe0")), 0);
  EXPECT_EQ(Async(av), std::vector<int>{IBV_EVENT_PORT_ACTIVE});
  EXPECT_EQ(Port(av).state, IBV_PORT_ACTIVE);
  EXPECT_EQ(Port(av).phys_state, 5);
}

TEST_F(DeviceChanges, ASendWhileThePortIsDownFailsAtOnce) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  const Time before = world.now;
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_LOC_QP_OP_ERR);  // measured: the route is gone
  EXPECT_EQ(world.now, before);
}

TEST_F(DeviceChanges, NothingArrivesWhileThePortIsDown) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceChanges, AConnectionThatSentNothingSurvivesAPortThatWasDown) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kPortUp, "rxe0")), 0);
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_SUCCESS);  // measured
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_SUCCESS);
}

TEST_F(DeviceChanges, BetweenQueuePairsOfOneHostNothingPassesEither) {
  Verb::Qp near = av.CreateQp(IBV_QPT_RC), far = av.CreateQp(IBV_QPT_RC);
  av.ConnectRc(near, "127.0.1.1", far.made.qpn);
  av.ConnectRc(far, "127.0.1.1", near.made.qpn);
  ASSERT_EQ(Send(av, near, av, far), IBV_WC_SUCCESS);
  ib_uverbs_wc wc;
  while (av.Poll(wc)) {
  }
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  EXPECT_EQ(Send(av, near, av, far), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(DeviceChanges, AnotherDevicesPortCarriesOn) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe1")), 0);
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_SUCCESS);
}

TEST_F(DeviceChanges, ConnectionManagementOverAPortThatIsDown) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe1")), 0);
  CmProgram program(a);
  const uint32_t far = program.CreateId(RDMA_PS_TCP);
  const CmCall<rdma_ucm_resolve_ip> resolve{
      program.channel, 0, {{}, Ipv4Socket("127.0.3.1", 700), far, 2000}};
  EXPECT_EQ(a.Call(static_cast<CallOp>(CmProgram::Op(RDMA_USER_CM_CMD_RESOLVE_IP)), resolve),
            ENETUNREACH);
  // An own address resolves, but the request cannot be sent, so the id does not wait for an answer.
  program.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  program.Connect(RDMA_PS_TCP, "127.0.1.1", 700);
  const Time before = world.now;
  ASSERT_TRUE(
      world.RunUntil([&] { return world.counters.value(program.counter) > 0; }, seconds(1)));
  EXPECT_EQ(world.now, before);
  const rdma_ucm_event_resp event = program.Event();
  EXPECT_EQ(TypeOf(event), cm::EventType::kUnreachable);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

// ---- addresses

TEST_F(DeviceChanges, AnAddressThatComesTakesTheFirstFreeGidAndIsTold) {
  ASSERT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.2")), 0);
  ASSERT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.3")), 0);
  EXPECT_EQ(Async(av), (std::vector<int>{IBV_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE}));
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.1.2")), 0);
  EXPECT_EQ(Gids(av)[2], "");
  EXPECT_EQ(Gids(av)[3], "127.0.1.3");  // the others keep their indices
  ASSERT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.4")), 0);
  EXPECT_EQ(Gids(av)[2], "127.0.1.4");
  EXPECT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe1", "127.0.1.4")), EEXIST);
}

TEST_F(DeviceChanges, AnAddressThatIsTakenOnTheNetworkIsRefused) {
  world.taken_addresses.insert(*NetAddress::Parse("127.0.1.9"));
  EXPECT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.9")), EADDRINUSE);
  EXPECT_TRUE(Async(av).empty());
  EXPECT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.1.9")), EADDRNOTAVAIL);
}

TEST_F(DeviceChanges, ANewAddressIsReached) {
  ASSERT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.2")), 0);
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_TCP, "127.0.1.2", 700, 5);
  client.Connect(RDMA_PS_TCP, "127.0.1.2", 700);
  world.Settle();
  EXPECT_EQ(TypeOf(server.Event()), cm::EventType::kConnectRequest);
}

TEST_F(DeviceChanges, WithItsAddressAConnectionLosesItsWay) {
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.1.1")), 0);
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_LOC_QP_OP_ERR);
}

// A failover of a bond. The listener and the connected, bound and resolved ids get the event, in
// the order in which they got the device (cma_netdev_change). Measured with fail_over_mac=active.
TEST_F(DeviceChanges, AnAddressThatMovesIsToldToTheIdsThatAreBoundToIt) {
  CmProgram program(a), wildcard(a), elsewhere(a);
  const uint32_t listener = program.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  wildcard.Listen(RDMA_PS_TCP, "0.0.0.0", 701, 5);
  elsewhere.Listen(RDMA_PS_TCP, "127.0.2.1", 702, 5);
  const uint32_t bound = program.CreateId(RDMA_PS_TCP);
  program.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket("127.0.1.1", 0), bound});
  ASSERT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), 0);
  EXPECT_EQ(world.counters.value(program.counter), 2u);
  const auto first = program.Next();
  EXPECT_EQ(TypeOf(first), cm::EventType::kAddrChange);
  EXPECT_EQ(first.status, 0u);
  EXPECT_EQ(first.id, listener);
  EXPECT_EQ(program.Next().id, bound);
  EXPECT_EQ(world.counters.value(wildcard.counter), 0u);
  EXPECT_EQ(world.counters.value(elsewhere.counter), 0u);
  EXPECT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), EALREADY);
}

// The host asks the network once per group and address. The last member that leaves ends the
// network's membership.
TEST_F(DeviceChanges, AGroupThatTwoDevicesJoinedOverOneAddressIsLeftWithTheLast) {
  CmProgram program(a);
  const auto join = [&] {
    const uint32_t id = program.CreateId(RDMA_PS_UDP);
    program.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket("127.0.1.1", 0), id});
    rdma_ucm_join_ip_mcast command{};
    command.uid = 5;
    command.addr = Ipv4Socket("239.1.1.1", 0);
    command.id = id;
    program.Do(RDMA_USER_CM_CMD_JOIN_IP_MCAST, command);
    return id;
  };
  const uint32_t first = join();
  ASSERT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), 0);
  const uint32_t second = join();
  EXPECT_EQ(world.joined_groups.size(), 1u);
  program.Do(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, first, 0});
  EXPECT_EQ(world.joined_groups.size(), 1u);
  program.Do(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, second, 0});
  EXPECT_TRUE(world.joined_groups.empty());
}

TEST_F(DeviceChanges, AMovedAddressIsItsNewDevicesGidAndBothAreTold) {
  Verb second(a, 64, EntryOf(a, "rxe1").index);
  ASSERT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), 0);
  EXPECT_EQ(Gids(second)[2], "127.0.1.1");
  // The old device also loses the link-local GID that was made from its only address.
  EXPECT_EQ(Gids(av)[0], "");
  EXPECT_EQ(Gids(av)[1], "");
  EXPECT_EQ(Async(second), std::vector<int>{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(Async(av), (std::vector<int>{IBV_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE}));
}

TEST_F(DeviceChanges, AfterAMoveNewIdsUseTheNewDeviceAndOldQueuePairsAreCutOff) {
  ASSERT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), 0);
  EXPECT_EQ(Send(bv, bq, av, aq), IBV_WC_RETRY_EXC_ERR);
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  client.Connect(RDMA_PS_TCP, "127.0.1.1", 700);
  world.Settle();
  EXPECT_EQ(TypeOf(server.Event()), cm::EventType::kConnectRequest);
}

// A listener remains on the device that it was bound to, as on the kernel.
TEST_F(DeviceChanges, AListenerDoesNotFollowItsAddress) {
  CmProgram server(a), client(b);
  server.Listen(RDMA_PS_TCP, "127.0.1.1", 700, 5);
  ASSERT_EQ(Do(Change(DeviceChange::kMoveAddress, "rxe1", "127.0.1.1")), 0);
  server.Event();
  client.Connect(RDMA_PS_TCP, "127.0.1.1", 700);
  world.Settle();
  const rdma_ucm_event_resp event = client.Event();
  EXPECT_EQ(TypeOf(event), cm::EventType::kRejected);
  EXPECT_EQ(event.status, 8u);
}

// ---- refused changes

// A program's own profile is sent as TOML after the request.
int AddWithProfile(Client& client, const std::string& toml, ChangeDeviceIn in) {
  std::string body(reinterpret_cast<const char*>(&in), sizeof in);
  body += toml;
  return client.CallBytes(static_cast<uint32_t>(CallOp::kChangeDevice), body.data(), body.size())
      .error;
}

TEST_F(DeviceChanges, ADeviceIsAddedWithAProfileThatIsNotBuiltIn) {
  std::string toml = BuiltInProfileText("rxe")->toml;
  const std::string name = "name = \"" + std::string(BuiltInProfile("rxe")->name) + "\"";
  ASSERT_NE(toml.find(name), std::string::npos);
  toml.replace(toml.find(name), name.size(), "name = \"mine\"");
  ASSERT_EQ(AddWithProfile(a, toml, Change(DeviceChange::kAddDevice, "nic0")), 0);
  EXPECT_STREQ(EntryOf(a, "nic0").profile, "mine");
}

TEST_F(DeviceChanges, AProfileThatIsNoneIsRefused) {
  const std::string toml = BuiltInProfileText("rxe")->toml;
  const ChangeDeviceIn add = Change(DeviceChange::kAddDevice, "nic0");
  EXPECT_EQ(AddWithProfile(a, "name = 5", add), EINVAL);
  EXPECT_EQ(AddWithProfile(a, std::string(64, '\xff'), add), EINVAL);
  EXPECT_EQ(AddWithProfile(a, toml + std::string(kMaxProfileBytes, '#'), add), EINVAL);
  // Two profiles at once, and a profile without an added device.
  EXPECT_EQ(AddWithProfile(a, toml, Change(DeviceChange::kAddDevice, "nic0", "", "rxe")), EINVAL);
  EXPECT_EQ(AddWithProfile(a, toml, Change(DeviceChange::kRemoveDevice, "rxe0")), EINVAL);
  EXPECT_EQ(Devices(a), (std::vector<std::string>{"rxe0", "rxe1"}));
}

TEST_F(DeviceChanges, ACallThatMakesNoSenseChangesNothing) {
  const std::string before = a_host.StatusJson();
  EXPECT_EQ(Do(Change(DeviceChange{0}, "rxe0")), EINVAL);
  EXPECT_EQ(Do(Change(DeviceChange{99}, "rxe0")), EINVAL);
  EXPECT_EQ(Do(Change(DeviceChange::kRemoveDevice, "")), EINVAL);
  EXPECT_EQ(Do(Change(DeviceChange::kRemoveDevice, "../x")), EINVAL);
  EXPECT_EQ(Do(Change(DeviceChange::kPortDown, "rxe9")), ENODEV);
  EXPECT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe9")), EINVAL);
  EXPECT_EQ(Do(Change(DeviceChange::kAddDevice, "rxe9", "", "mlx9")), EINVAL);
  for (const char* address : {"0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"}) {
    EXPECT_EQ(Do(Change(DeviceChange::kAddAddress, "rxe0", address)), EINVAL) << address;
  }
  ChangeDeviceIn in = Change(DeviceChange::kAddAddress, "rxe0", "127.0.1.2");
  in.link_mtu_bytes = 0;
  EXPECT_EQ(Do(in), EINVAL);
  std::fill(std::begin(in.device), std::end(in.device), 'x');  // without a terminating 0
  in.link_mtu_bytes = 1500;
  EXPECT_EQ(Do(in), EINVAL);
  EXPECT_EQ(a.CallBytes(static_cast<uint32_t>(CallOp::kChangeDevice), &in, 8).error, EINVAL);
  EXPECT_EQ(a_host.StatusJson(), before);
}

TEST_F(DeviceChanges, AHostHasAsManyDevicesAsItsLimitSays) {
  for (uint32_t i = 2; i < kMaxDevices; i++) {
    ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "more" + std::to_string(i), "", "rxe")), 0);
  }
  EXPECT_EQ(Do(Change(DeviceChange::kAddDevice, "one-more", "", "rxe")), ENOSPC);
  EXPECT_EQ(Devices(a).size(), kMaxDevices);
}

// Measured on siw: its only GID is a MAC, which no change of addresses affects.
TEST_F(DeviceChanges, AnRnicTakesAddressesThatItsGidTableDoesNotShow) {
  ASSERT_EQ(Do(Change(DeviceChange::kAddDevice, "siw7", "", "siw")), 0);
  Verb rnic(a, 64, EntryOf(a, "siw7").index);
  for (const char* address : {"127.0.9.1", "127.0.9.2"}) {
    EXPECT_EQ(Do(Change(DeviceChange::kAddAddress, "siw7", address)), 0) << address;
  }
  EXPECT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.9.1")), 0);
  EXPECT_TRUE(Async(rnic).empty());
}

// ---- habits of hardware

Profile Hardware() {
  Profile profile = *BuiltInProfile("rxe");
  profile.removal_flushes = profile.raises_device_fatal = true;
  profile.fails_sends_without_link = false;
  return profile;
}
class DeviceChangesOfHardware : public DeviceChanges {
 protected:
  DeviceChangesOfHardware() : DeviceChanges(Hardware()) {}
};

TEST_F(DeviceChangesOfHardware, ARemovedDeviceFlushesItsWorkAndIsFatalToItsContexts) {
  const MrOut mr = av.Register(bytes.data(), bytes.size(), kAllAccess);
  av.PostRecv(aq, 9, bytes.data(), 64, mr.lkey);
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveDevice, "rxe0")), 0);
  ib_uverbs_wc wc;
  ASSERT_TRUE(av.Poll(wc));
  EXPECT_EQ(wc.wr_id, 9u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Async(av), std::vector<int>{IBV_EVENT_DEVICE_FATAL});
}

TEST_F(DeviceChangesOfHardware, ASendOverAPortThatIsDownRunsOutOfRetries) {
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  EXPECT_EQ(Send(av, aq, bv, bq), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceChangesOfHardware, WhatIsRepeatedAfterThePortCameBackArrives) {
  const MrOut mr = av.Register(bytes.data(), bytes.size(), kAllAccess);
  const MrOut far = bv.Register(bytes.data(), bytes.size(), kAllAccess);
  bv.PostRecv(bq, 1, bytes.data(), 64, far.lkey);
  ASSERT_EQ(Do(Change(DeviceChange::kPortDown, "rxe0")), 0);
  av.PostSend(aq, 2, IBV_WR_SEND, bytes.data(), 64, mr.lkey);
  world.Settle();
  ASSERT_EQ(Do(Change(DeviceChange::kPortUp, "rxe0")), 0);
  ib_uverbs_wc wc;
  ASSERT_TRUE(world.RunUntil([&] { return av.Poll(wc); }, seconds(60)));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

// ---- LIDs

class LidChanges : public DeviceChanges {
 protected:
  LidChanges() : DeviceChanges(*BuiltInProfile("mlx5-ib")) {}
  int Add(const std::string& address) {
    return Do(Change(DeviceChange::kAddAddress, "rxe0", address));
  }
};

TEST_F(LidChanges, TheFirstIpv4AddressDecidesTheLidAndItsChangeRaisesLidAndSmChange) {
  EXPECT_EQ(Port(av).lid, 0x0101);
  EXPECT_EQ(Port(av).sm_lid, 0x0101);
  ASSERT_EQ(Add("127.0.1.9"), 0);
  EXPECT_EQ(Port(av).lid, 0x0101);
  EXPECT_EQ(Async(av), std::vector<int>{IBV_EVENT_GID_CHANGE});
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.1.1")), 0);
  EXPECT_EQ(Port(av).lid, 0x0109);
  EXPECT_EQ(Port(av).sm_lid, 0x0109);
  EXPECT_EQ(Async(av), (std::vector<int>{IBV_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE,
                                         IBV_EVENT_LID_CHANGE, IBV_EVENT_SM_CHANGE}));
  EXPECT_TRUE(Async(bv).empty());
}

TEST_F(LidChanges, AnAddressWithoutALidLeavesThePortWithoutOne) {
  ASSERT_EQ(Do(Change(DeviceChange::kRemoveAddress, "", "127.0.1.1")), 0);
  EXPECT_EQ(Port(av).lid, 0);
  (void)Async(av);
  ASSERT_EQ(Add("127.0.192.0"), 0);
  EXPECT_EQ(Port(av).lid, 0);
  EXPECT_EQ(Async(av), (std::vector<int>{IBV_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE}));
}

}  // namespace
}  // namespace rdmaemu
