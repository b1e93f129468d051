// A device that is removed and returned while programs use it (rdma_get_cm_event(3),
// RDMA_CM_EVENT_DEVICE_REMOVAL). Order, calls and errno values were measured on rdma_rxe. The
// kernel removes the device from its lists at once, and frees it when the last process has closed
// it.
#include <poll.h>

#include <cerrno>
#include <memory>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/outside.h"
#include "tests/contract/support/pending.h"
#include "tests/contract/support/removal.h"
#include "tests/contract/support/state.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

// The numbers of devices in ibv_get_device_list and in rdma_get_devices.
struct Listed {
  int verbs, cm;
  bool has_test_device;
};
Listed ListStep(State&, const int&) {
  Listed listed{};
  ibv_device** list = ibv_get_device_list(&listed.verbs);
  for (int i = 0; list != nullptr && i < listed.verbs; ++i) {
    if (DeviceName() == ibv_get_device_name(list[i])) listed.has_test_device = true;
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (ibv_context** open = rdma_get_devices(&listed.cm)) rdma_free_devices(open);
  return listed;
}

int BindNewStep(State& state, const sockaddr_in& to) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(state.channel, &id, nullptr, RDMA_PS_TCP) != 0) return errno;
  sockaddr_in address = to;
  const int error = rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == 0 ? 0 : errno;
  rdma_destroy_id(id);
  return error;
}

// Makes verbs calls on an id's open device. Returns 0, or the errno of the first call that failed.
int UseVerbsStep(State& state, const int& id) {
  ibv_context* context = state.ids[static_cast<size_t>(id)]->verbs;
  ibv_port_attr port{};
  ibv_device_attr device{};
  if (const int error = ibv_query_port(context, 1, &port)) return error;
  if (port.state != IBV_PORT_ACTIVE) return EPROTO;
  if (const int error = ibv_query_device(context, &device)) return error;
  ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == nullptr) return errno;
  static char bytes[64];
  ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return errno;
  if (const int error = ibv_dereg_mr(mr)) return error;
  return ibv_dealloc_pd(pd);
}

class DeviceRemoval : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
    side = std::make_unique<Side>(Place::kLocalProcess);
    peer = std::make_unique<Side>(Place::kPeersMachine);
  }
  void TearDown() override {
    side.reset();
    peer.reset();
  }
  const std::string& address() const { return side->address(); }
  void MakeIdsAndRemove() {
    ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
    device.Remove();
  }
  // Waits until the removal has reached the id. Every call on the id then fails with ENXIO.
  void WaitUntilGone(int id) {
    int error = 0;
    for (int waited_ms = 0; error != ENXIO && waited_ms < kPatience_ms; waited_ms += 10) {
      error = side->SetReuse(id, 1);
      poll(nullptr, 0, 10);
    }
    ASSERT_EQ(error, ENXIO);
  }
  static void ExpectEvent(Side& at, rdma_cm_event_type type, int status = 0) {
    const EventCopy event = at.NextEvent();
    ASSERT_TRUE(event.found) << "no " << rdma_event_str(type);
    EXPECT_EQ(event.event, type) << Describe(event);
    EXPECT_EQ(event.status, status) << Describe(event);
  }

  TestDevice device;  // outlives the sides: the device returns when they have ended
  std::unique_ptr<Side> side, peer;
  IdsOfEveryState ids;
};

TEST_F(DeviceRemoval, IsToldToEachIdOfTheDeviceInTheOrderTheyGotItAndToNoOther) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

TEST_F(DeviceRemoval, ReachesDatagramIdsToo) {
  const int listener = side->CreateId(RDMA_PS_UDP);
  ASSERT_EQ(side->Bind(listener, address(), 0), 0);
  ASSERT_EQ(side->Listen(listener), 0);
  device.Remove();
  ExpectEvent(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

TEST_F(DeviceRemoval, OfAnRnicFlushesItsQueuePairs) {
  if (!IsIwarp()) GTEST_SKIP() << "InfiniBand: queue pairs stay as they are";
  ASSERT_NO_FATAL_FAILURE(ids.Make(*side, address()));
  const Buffer buffer = Allocate(64);
  const Region region = side->Register(buffer);
  ASSERT_EQ(side->PostReceive(ids.active_qp, ReceiveInto(1, buffer, region)), 0);
  device.Remove();
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const Completion flushed = side->Poll(ids.active_qp, Queue::kReceive);
  ASSERT_TRUE(flushed.found);
  EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(DeviceRemoval, LeavesQueuePairsAsTheyAreAndRaisesNothing) {
  if (IsIwarp()) GTEST_SKIP() << kNoQpStates;
  Side watcher(Place::kLocalProcess);
  ASSERT_EQ(watcher.Open(), 0);
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(watcher.NextAsyncEvent(kQuiet_ms), -1);
  EXPECT_EQ(side->StateOf(ids.active_qp), IBV_QPS_RTS);
  EXPECT_EQ(side->StateOf(ids.passive_qp), IBV_QPS_RTS);
  EXPECT_FALSE(side->Poll(ids.active_qp, Queue::kReceive, kQuiet_ms).found);
}

TEST_F(DeviceRemoval, VerbsCallsOnWhatIsOpenStillSucceed) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(side->worker().Call(&UseVerbsStep, ids.listener), 0);
}

TEST_F(DeviceRemoval, CallsOnItsIdsAreEnxio) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(side->Disconnect(ids.active), ENXIO);
  EXPECT_EQ(side->Disconnect(ids.passive), ENXIO);
  EXPECT_EQ(side->ResolveAddr(ids.resolved, address(), 1), ENXIO);
  EXPECT_EQ(side->ResolveRoute(ids.bound), ENXIO);
  EXPECT_EQ(side->CmConnect(ids.resolved, {}), ENXIO);
  ConnectSpec none;
  none.null_parameters = true;  // without a QP librdmacm refuses the call before it asks the kernel
  EXPECT_EQ(side->CmConnect(ids.resolved, none), EINVAL);
  EXPECT_EQ(side->Listen(ids.bound), ENXIO);
}

TEST_F(DeviceRemoval, ItsIdsAreDestroyedAsOthers) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  side->DestroyCmQp(ids.active, ids.active_qp);
  side->DestroyCmQp(ids.passive, ids.passive_qp);
  for (const int id : ids.WithDevice()) EXPECT_EQ(side->DestroyId(id), 0);
}

TEST_F(DeviceRemoval, ItsAddressHasNoDeviceAnyMore) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(side->worker().Call(&BindNewStep, SocketAddress(address(), 0)), ENODEV);
  const int late = side->CreateId();
  EXPECT_EQ(side->ResolveAddr(late, address(), ids.port), 0);
  ExpectEvent(*side, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
}

TEST_F(DeviceRemoval, AnAddressErrorIsNotTheEndOfAnId) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const int late = side->CreateId();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(side->ResolveAddr(late, address(), ids.port), 0);
    ExpectEvent(*side, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
  }
}

// librdmacm queries the resolved address when the event is fetched. The id has no address any more
// then.
TEST_F(DeviceRemoval, TurnsAnAddressThatWasNotFetchedIntoAnAddressError) {
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, address(), 1), 0);
  ASSERT_TRUE(HasEvent(*side));
  device.Remove();
  ASSERT_NO_FATAL_FAILURE(WaitUntilGone(id));
  ExpectEvent(*side, RDMA_CM_EVENT_ADDR_ERROR, -1);
  ExpectEvent(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

TEST_F(DeviceRemoval, TurnsARouteThatWasNotFetchedIntoARouteError) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, address(), 1), 0);
  ExpectEvent(*side, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(side->ResolveRoute(id), 0);
  ASSERT_TRUE(HasEvent(*side));
  device.Remove();
  ASSERT_NO_FATAL_FAILURE(WaitUntilGone(id));
  ExpectEvent(*side, RDMA_CM_EVENT_ROUTE_ERROR, -1);
  ExpectEvent(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

TEST_F(DeviceRemoval, IsSeenInTheListOfDevices) {
  const Listed before = side->worker().Call(&ListStep, 0);
  EXPECT_TRUE(before.has_test_device);
  EXPECT_EQ(before.cm, before.verbs);
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const Listed after = side->worker().Call(&ListStep, 0);
  EXPECT_FALSE(after.has_test_device);
  EXPECT_EQ(after.verbs, before.verbs - 1);
  EXPECT_EQ(after.cm, before.cm - 1);
}

TEST_F(DeviceRemoval, EndsTheConnectionOfAPeerOnAnotherMachine) {
  if (!TwoHosts()) GTEST_SKIP() << "the peer has the same device here";
  const int listener = peer->CreateId();
  ASSERT_EQ(peer->Bind(listener, peer->address(), 0), 0);
  ASSERT_EQ(peer->Listen(listener), 0);
  ids.port = static_cast<uint16_t>(peer->PortOf(listener));
  const int active = ids.Resolved(*side, peer->address());
  ASSERT_GE(side->CreateCmQp(active), 0);
  ASSERT_EQ(side->CmConnect(active, {}), 0);
  const EventCopy request = peer->NextEvent();
  ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
  ASSERT_GE(peer->CreateCmQp(request.id), 0);
  ASSERT_EQ(peer->Accept(request.id, {}), 0);
  ExpectEvent(*side, RDMA_CM_EVENT_ESTABLISHED);
  ExpectEvent(*peer, RDMA_CM_EVENT_ESTABLISHED);
  device.Remove();
  ExpectEvent(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  ExpectEvent(*peer, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(DeviceRemoval, ADeviceThatReturnsServesNewIds) {
  ASSERT_NO_FATAL_FAILURE(MakeIdsAndRemove());
  ids.ExpectOneEach(*side, RDMA_CM_EVENT_DEVICE_REMOVAL);
  side.reset();  // the kernel's device ends with its last user
  peer.reset();
  device.Return();
  side = std::make_unique<Side>(Place::kLocalProcess);
  EXPECT_TRUE(side->worker().Call(&ListStep, 0).has_test_device);
  IdsOfEveryState again;
  ASSERT_NO_FATAL_FAILURE(again.Make(*side, address()));
}

TEST_F(DeviceRemoval, AWildcardListenerHearsTheDeviceThatReturned) {
  const int listener = side->CreateId();
  ASSERT_EQ(side->Bind(listener, "0.0.0.0", 0), 0);
  ASSERT_EQ(side->Listen(listener), 0);
  ids.port = static_cast<uint16_t>(side->PortOf(listener));
  device.Remove();
  device.Return();
  EXPECT_FALSE(side->NextEvent(kQuiet_ms).found);
  Side client(Place::kLocalProcess);
  const int active = ids.Resolved(client, address());
  ASSERT_GE(client.CreateCmQp(active), 0);
  ASSERT_EQ(client.CmConnect(active, {}), 0);
  const EventCopy request = side->NextEvent();
  ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
  EXPECT_EQ(side->Reject(request.id), 0);  // else an RNIC's id waits for it
}

}  // namespace
}  // namespace rdma_contract
