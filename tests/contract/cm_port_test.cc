// A port that goes down and up again, and addresses that are added and removed. The tests check the
// asynchronous events (ibv_get_async_event(3)), data and connection management. Statuses and errno
// values were measured on rdma_rxe, whose packets have no route while the interface is down.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "tests/contract/support/outside.h"
#include "tests/contract/support/removal.h"
#include "tests/contract/support/state.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

struct PortState {
  int state, physical;
};
PortState PortStep(State& state, const int&) {
  ibv_port_attr port{};
  if (ibv_query_port(state.context, 1, &port) != 0) return {-1, -1};
  return {port.state, port.phys_state};
}
struct GidQuestion {
  char address[64];
};
int GidIndexStep(State& state, const GidQuestion& question) {
  return GidIndexOf(state.context, question.address);
}
GidQuestion Ask(const std::string& address) {
  GidQuestion question{};
  address.copy(question.address, sizeof question.address - 1);
  return question;
}

class ChangingPort : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
    side = std::make_unique<Side>(Place::kLocalProcess);
    watcher = std::make_unique<Side>(Place::kLocalProcess);
    ASSERT_EQ(watcher->Open(), 0);
  }
  void TearDown() override {
    side.reset();
    watcher.reset();
  }
  const std::string& address() const { return side->address(); }

  // Waits for the next asynchronous event of that type. Events of an IPv6 address that is removed
  // with the link may come in between.
  static bool Hears(Side& at, int type) {
    for (;;) {
      const int event = at.NextAsyncEvent(kPatience_ms);
      if (event < 0 || event == type) return event == type;
    }
  }
  void TakeDown() {
    device.SetPort(false);
    ASSERT_TRUE(Hears(*watcher, IBV_EVENT_PORT_ERR));
  }
  // Adding or removing an address changes its GID as well. An RNIC's only GID is no address.
  void AddAddress(const std::string& one) {
    device.AddAddress(one);
    EXPECT_TRUE(IsIwarp() || Hears(*watcher, IBV_EVENT_GID_CHANGE));
  }
  void RemoveAddress(const std::string& one) {
    device.RemoveAddress(one);
    EXPECT_TRUE(IsIwarp() || Hears(*watcher, IBV_EVENT_GID_CHANGE));
  }
  void BringUp() {
    device.SetPort(true);
    ASSERT_TRUE(Hears(*watcher, IBV_EVENT_PORT_ACTIVE));
  }
  void ExpectEvent(rdma_cm_event_type type, int status = 0) {
    const EventCopy event = side->NextEvent();
    ASSERT_TRUE(event.found) << "no " << rdma_event_str(type);
    EXPECT_EQ(event.event, type) << Describe(event);
    EXPECT_EQ(event.status, status) << Describe(event);
  }
  // Sends over the connection of `ids` and returns its completion.
  Completion Send() {
    buffer = Allocate(64);
    region = side->Register(buffer);
    EXPECT_EQ(side->PostReceive(ids.passive_qp, ReceiveInto(1, buffer, region)), 0);
    EXPECT_EQ(side->PostSend(ids.active_qp, SendOf(2, buffer, region)), 0);
    return side->Poll(ids.active_qp, Queue::kSend);
  }

  TestDevice device;  // outlives the sides: the kernel recreates it after their end
  // The ids are in one program. Another program has the device open and gets asynchronous events.
  std::unique_ptr<Side> side, watcher;
  IdsOfEveryState ids;
  Buffer buffer;
  Region region;
};

// ---- events and state

TEST_F(ChangingPort, EveryOpenContextHearsOfIt) {
  Side other(Place::kLocalProcess);
  ASSERT_EQ(other.Open(), 0);
  device.SetPort(false);
  EXPECT_TRUE(Hears(*watcher, IBV_EVENT_PORT_ERR));
  EXPECT_TRUE(Hears(other, IBV_EVENT_PORT_ERR));
  device.SetPort(true);
  EXPECT_TRUE(Hears(*watcher, IBV_EVENT_PORT_ACTIVE));
  EXPECT_TRUE(Hears(other, IBV_EVENT_PORT_ACTIVE));
}

TEST_F(ChangingPort, ItsStateIsWhatQueryPortSays) {
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  PortState port = watcher->worker().Call(&PortStep, 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(port.physical, 3);  // disabled
  ASSERT_NO_FATAL_FAILURE(BringUp());
  port = watcher->worker().Call(&PortStep, 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.physical, 5);  // link up
}

TEST_F(ChangingPort, ItsGidsStayWhileItIsDown) {
  if (IsIwarp()) GTEST_SKIP() << kGidsAreMacs;
  const int index = watcher->worker().Call(&GidIndexStep, Ask(address()));
  ASSERT_GT(index, 0);
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  EXPECT_EQ(watcher->worker().Call(&GidIndexStep, Ask(address())), index);
}

TEST_F(ChangingPort, ConnectionManagementHasNoEventForIt) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
  ASSERT_NO_FATAL_FAILURE(BringUp());
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
}

TEST_F(ChangingPort, OfAnRnicEndsItsConnections) {
  if (!IsIwarp()) GTEST_SKIP() << "InfiniBand: connections outlive their link's absence";
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  std::set<int> told;
  for (int i = 0; i < 2; ++i) {
    const EventCopy event = side->NextEvent();
    EXPECT_EQ(event.event, RDMA_CM_EVENT_DISCONNECTED) << Describe(event);
    EXPECT_EQ(event.status, 0);
    told.insert(event.id);
  }
  EXPECT_EQ(told, (std::set<int>{ids.active, ids.passive}));
  ASSERT_NO_FATAL_FAILURE(BringUp());
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
}

// ---- data

TEST_F(ChangingPort, ASendWhileItIsDownFailsAndTakesTheQpWithIt) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  const Completion completion = Send();
  ASSERT_TRUE(completion.found);
  EXPECT_EQ(completion.wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(side->StateOf(ids.active_qp), IBV_QPS_ERR);
  EXPECT_EQ(side->StateOf(ids.passive_qp), IBV_QPS_RTS);
}

TEST_F(ChangingPort, AReadWhileItIsDownFailsTheSameWay) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  buffer = Allocate(64);
  region = side->Register(buffer);
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  ASSERT_EQ(
      side->PostSend(ids.active_qp, ReadFrom(3, buffer, region, buffer.address(), region.rkey)), 0);
  const Completion completion = side->Poll(ids.active_qp, Queue::kSend);
  ASSERT_TRUE(completion.found);
  EXPECT_EQ(completion.wc.status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ChangingPort, AConnectionThatWasIdleMeanwhileGoesOn) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  ASSERT_NO_FATAL_FAILURE(BringUp());
  const Completion completion = Send();
  ASSERT_TRUE(completion.found);
  EXPECT_EQ(completion.wc.status, IBV_WC_SUCCESS);
}

// ---- connection management

TEST_F(ChangingPort, WhileItIsDownNothingElseHasARoute) {
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  const std::string far = NeighbourOf(address(), 250);
  const int fresh = side->CreateId();
  EXPECT_EQ(side->ResolveAddr(fresh, far, 1), ENETUNREACH);
  const int bound = side->CreateId();
  EXPECT_EQ(side->Bind(bound, address(), 0), 0);
  EXPECT_EQ(side->ResolveAddr(bound, far, 1), ENETUNREACH);
}

TEST_F(ChangingPort, ARequestThatCannotLeaveIsUnreachableAtOnce) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  const int id = ids.Resolved(*side, address());  // a local address has a route
  ASSERT_GE(side->CreateCmQp(id), 0);
  ASSERT_EQ(side->CmConnect(id, {}), 0);
  ExpectEvent(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

TEST_F(ChangingPort, ADisconnectThatCannotLeaveIsDisconnectedWithATimeout) {
  if (IsIwarp()) GTEST_SKIP() << kLinkEndsConnections;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  ASSERT_NO_FATAL_FAILURE(TakeDown());
  EXPECT_EQ(side->Disconnect(ids.active), 0);
  ExpectEvent(RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
  ExpectEvent(RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

// ---- addresses

TEST_F(ChangingPort, AnAddressThatComesCanBeUsed) {
  const std::string more = NeighbourOf(address(), 200);
  AddAddress(more);
  ids.Make(*side, more);
  RemoveAddress(more);
}

TEST_F(ChangingPort, AnAddressIsAGidAsLongAsItIsThere) {
  if (IsIwarp()) GTEST_SKIP() << kGidsAreMacs;
  const std::string more = NeighbourOf(address(), 200);
  AddAddress(more);
  EXPECT_GT(watcher->worker().Call(&GidIndexStep, Ask(more)), 0);
  RemoveAddress(more);
  EXPECT_EQ(watcher->worker().Call(&GidIndexStep, Ask(more)), -1);
}

TEST_F(ChangingPort, AnAddressThatGoesLeavesIdsAlone) {
  const std::string more = NeighbourOf(address(), 200);
  AddAddress(more);
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, more));
  RemoveAddress(more);
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
  EXPECT_EQ(side->Disconnect(ids.active), 0);
}

TEST_F(ChangingPort, AnAddressThatWentCannotBeBound) {
  const std::string more = NeighbourOf(address(), 200);
  AddAddress(more);
  RemoveAddress(more);
  EXPECT_EQ(side->Bind(side->CreateId(), more, 0), EADDRNOTAVAIL);
}

int JoinStep(State& state, const int& id) {
  sockaddr_in group = SocketAddress("239.66.1.9", 0);
  return rdma_join_multicast(state.ids[static_cast<size_t>(id)],
                             reinterpret_cast<sockaddr*>(&group), nullptr) == 0
             ? 0
             : errno;
}

// cma_make_mc_event: without a GID there is no address handle, and the event does not contain the
// error.
TEST_F(ChangingPort, AJoinOfAnAddressThatWentIsAMulticastErrorWithStatusZero) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  const std::string more = NeighbourOf(address(), 200);
  AddAddress(more);
  const int id = side->CreateId(RDMA_PS_UDP);
  ASSERT_EQ(side->Bind(id, more, 0), 0);
  RemoveAddress(more);
  ASSERT_EQ(side->worker().Call(&JoinStep, id), 0);
  ExpectEvent(RDMA_CM_EVENT_MULTICAST_ERROR, 0);
}

// ---- an address that another link takes over

class MovedAddress : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
    moving = std::make_unique<MovingAddress>(mac);
    if (!moving->why_not().empty()) GTEST_SKIP() << moving->why_not();
    side = std::make_unique<Side>(Place::kLocalProcess);
  }
  void TearDown() override {
    side.reset();
    moving.reset();
  }

  LinksMac mac = LinksMac::kDiffers;
  std::unique_ptr<MovingAddress> moving;
  std::unique_ptr<Side> side;
  IdsOfEveryState ids;
};

TEST_F(MovedAddress, IsToldToEachIdThatIsBoundToItInTheOrderTheyGotTheirDevice) {
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, moving->address()));
  moving->Move();
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_ADDR_CHANGE);
}

TEST_F(MovedAddress, LeavesTheIdsWhatTheyWere) {
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, moving->address()));
  moving->Move();
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_ADDR_CHANGE);
  EXPECT_TRUE(IsIwarp() || side->StateOf(ids.active_qp) == IBV_QPS_RTS);  // siw reports no state
  EXPECT_EQ(side->Listen(ids.bound), 0);
  EXPECT_EQ(side->Disconnect(ids.active), 0);
  for (const int id : {ids.listener, ids.bound, ids.resolved, ids.wildcard, ids.unbound}) {
    EXPECT_EQ(side->DestroyId(id), 0);
  }
}

TEST_F(MovedAddress, CanBeBoundAgain) {
  if (IsIwarp()) GTEST_SKIP() << kGidsAreMacs;
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, moving->address()));
  moving->Move();
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_ADDR_CHANGE);
  const int fresh = side->CreateId();
  EXPECT_EQ(side->Bind(fresh, moving->address(), 0), 0);
  EXPECT_EQ(side->Listen(fresh), 0);
}

// By the kernel's default, the other link takes over the MAC with the address.
class AddrChangeBondDefaultFailoverMac : public MovedAddress {
 protected:
  AddrChangeBondDefaultFailoverMac() { mac = LinksMac::kStays; }
};

TEST_F(AddrChangeBondDefaultFailoverMac, IsToldToNobodyAndIdsStayWhatTheyWere) {
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, moving->address()));
  moving->Move();
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
  EXPECT_EQ(side->Listen(ids.bound), 0);
  EXPECT_EQ(side->Disconnect(ids.active), 0);
}

// cma_netevent_callback: the event is for each id that has resolved a route over the neighbour.
TEST(ChangedNeighbourTest, IsUnreachableAtOnceToTheIdsThatResolvedIt) {
  if (IsIwarp()) GTEST_SKIP() << "iWARP: TCP looks after its neighbours";
  if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
  ChangedNeighbour neighbour;
  if (!neighbour.why_not().empty()) GTEST_SKIP() << neighbour.why_not();
  Side side(Place::kLocalProcess);
  const int id = IdsOfEveryState{}.Resolved(side, neighbour.address());
  neighbour.Change();
  const EventCopy event = side.NextEvent();
  EXPECT_EQ(event.event, RDMA_CM_EVENT_UNREACHABLE) << Describe(event);
  EXPECT_EQ(event.status, -ETIMEDOUT);
  EXPECT_EQ(event.id, id);
}

// ---- a host with more than one device

struct Names {
  int count;
  char name[8][64];
};
Names NamesStep(State&, const int&) {
  Names names{};
  ibv_device** list = ibv_get_device_list(&names.count);
  for (int i = 0; list != nullptr && i < names.count && i < 8; ++i) {
    std::string(ibv_get_device_name(list[i])).copy(names.name[i], sizeof names.name[i] - 1);
  }
  if (list != nullptr) ibv_free_device_list(list);
  return names;
}
struct DeviceName64 {
  char name[64];
};
DeviceName64 DeviceOfStep(State& state, const int& id) {
  DeviceName64 device{};
  ibv_context* context = state.ids[static_cast<size_t>(id)]->verbs;
  if (context != nullptr) {
    std::string(ibv_get_device_name(context->device)).copy(device.name, sizeof device.name - 1);
  }
  return device;
}

class SeveralDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
    second = std::make_unique<SecondDevice>();
    side = std::make_unique<Side>(Place::kLocalProcess);
  }
  void TearDown() override {
    side.reset();
    second.reset();
  }

  std::unique_ptr<SecondDevice> second;
  std::unique_ptr<Side> side;
};

TEST_F(SeveralDevices, AreAllListed) {
  const Names names = side->worker().Call(&NamesStep, 0);
  bool first_found = false, second_found = false;
  for (int i = 0; i < std::min(names.count, 8); ++i) {
    first_found |= DeviceName() == names.name[i];
    second_found |= second->name() == names.name[i];
  }
  EXPECT_TRUE(first_found);
  EXPECT_TRUE(second_found);
}

TEST_F(SeveralDevices, BindingChoosesTheDeviceByTheAddress) {
  const int near = side->CreateId(), far = side->CreateId();
  ASSERT_EQ(side->Bind(near, side->address(), 0), 0);
  ASSERT_EQ(side->Bind(far, second->address(), 0), 0);
  EXPECT_EQ(DeviceName(), side->worker().Call(&DeviceOfStep, near).name);
  EXPECT_EQ(second->name(), side->worker().Call(&DeviceOfStep, far).name);
}

TEST_F(SeveralDevices, AWildcardListenerHearsThemAll) {
  IdsOfEveryState ids;
  const int listener = side->CreateId();
  ASSERT_EQ(side->Bind(listener, "0.0.0.0", 0), 0);
  ASSERT_EQ(side->Listen(listener), 0);
  ids.port = static_cast<uint16_t>(side->PortOf(listener));
  for (const std::string& address : {side->address(), second->address()}) {
    Side client(Place::kLocalProcess);
    const int active = ids.Resolved(client, address);
    ASSERT_GE(client.CreateCmQp(active), 0);
    ASSERT_EQ(client.CmConnect(active, {}), 0);
    const EventCopy request = side->NextEvent();
    ASSERT_TRUE(request.found) << address;
    ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
    EXPECT_EQ(side->Reject(request.id), 0);  // else an RNIC's id waits for it
  }
}

TEST_F(SeveralDevices, RemovalOfOneIsNotTheOthers) {
  const int near = side->CreateId(), far = side->CreateId();
  ASSERT_EQ(side->Bind(near, side->address(), 0), 0);
  ASSERT_EQ(side->Bind(far, second->address(), 0), 0);
  TestDevice device;
  device.Remove();
  const EventCopy event = side->NextEvent();
  EXPECT_EQ(event.event, RDMA_CM_EVENT_DEVICE_REMOVAL) << Describe(event);
  EXPECT_EQ(event.id, near);
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
  EXPECT_EQ(side->Listen(far), 0);
  side.reset();  // the kernel's device returns when no process has it open
}

}  // namespace
}  // namespace rdma_contract
