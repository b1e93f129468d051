// Binding, port spaces, address and route resolution, options: the conflicts, and the calls that
// fail for an id in the wrong state.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Address : public ConnectionTest {
 protected:
  int Bound(const std::string& address, uint16_t to_port, rdma_port_space space = RDMA_PS_TCP) {
    const int id = active.CreateId(space);
    EXPECT_GE(id, 0);
    return -active.Bind(id, address, to_port);
  }
  const std::string here = LocalAddress();
};

TEST_F(Address, ANewIdHasNothing) {
  const int id = active.CreateId();
  const IdFields fields = active.FieldsOf(id);
  EXPECT_FALSE(fields.has_verbs);
  EXPECT_FALSE(fields.has_qp);
  EXPECT_TRUE(fields.has_channel);
  EXPECT_EQ(fields.event, -1);
  EXPECT_EQ(fields.source.sin_family, 0);
  EXPECT_EQ(active.PortOf(id), 0);
}

TEST_F(Address, PortSpacesHaveTheirQpTypes) {
  EXPECT_EQ(active.FieldsOf(active.CreateId(RDMA_PS_TCP)).qp_type, IBV_QPT_RC);
  EXPECT_EQ(active.FieldsOf(active.CreateId(RDMA_PS_UDP)).qp_type, IBV_QPT_UD);
  EXPECT_EQ(active.FieldsOf(active.CreateId(RDMA_PS_IPOIB)).qp_type, IBV_QPT_UD);
  EXPECT_EQ(active.CreateId(static_cast<rdma_port_space>(7)), -EINVAL);
}

TEST_F(Address, BindingToAnAddressChoosesTheDevice) {
  if (IsIwarp()) GTEST_SKIP() << kGidsAreMacs;
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, here, 0), 0);
  const IdFields fields = active.FieldsOf(id);
  EXPECT_TRUE(fields.has_verbs);
  EXPECT_TRUE(fields.has_pd);
  EXPECT_EQ(fields.port_num, 1);
  EXPECT_EQ(memcmp(&fields.source_gid, GidOf(here).raw, 16), 0);
  EXPECT_NE(active.PortOf(id), 0);
}

TEST_F(Address, BindingToTheWildcardChoosesNone) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, "0.0.0.0", 0), 0);
  EXPECT_FALSE(active.FieldsOf(id).has_verbs);
  EXPECT_NE(active.PortOf(id), 0);
}

TEST_F(Address, AnIdBindsOnce) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, here, 0), 0);
  EXPECT_EQ(active.Bind(id, here, 0), EINVAL);
}

TEST_F(Address, AForeignAddressIsRefused) { EXPECT_EQ(Bound("192.0.2.55", 0), -EADDRNOTAVAIL); }

TEST_F(Address, TheSameAddressAndPortIsInUse) {
  const uint16_t port = UnusedPort();
  ASSERT_EQ(Bound(here, port), 0);
  EXPECT_EQ(Bound(here, port), -EADDRINUSE);
}

TEST_F(Address, TheWildcardAndAnAddressExcludeEachOther) {
  const uint16_t one = UnusedPort();
  ASSERT_EQ(Bound(here, one), 0);
  EXPECT_EQ(Bound("0.0.0.0", one), -EADDRNOTAVAIL);
  const uint16_t other = UnusedPort();
  ASSERT_EQ(Bound("0.0.0.0", other), 0);
  EXPECT_EQ(Bound(here, other), -EADDRNOTAVAIL);
}

TEST_F(Address, PortSpacesAreApart) {
  const uint16_t port = UnusedPort();
  ASSERT_EQ(Bound(here, port, RDMA_PS_TCP), 0);
  EXPECT_EQ(Bound(here, port, RDMA_PS_UDP), 0);
}

TEST_F(Address, ADestroyedIdFreesItsPort) {
  const uint16_t port = UnusedPort();
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, here, port), 0);
  ASSERT_EQ(active.DestroyId(id), 0);
  EXPECT_EQ(Bound(here, port), 0);
}

TEST_F(Address, TwoIdsThatReuseBothBindAndNeitherListens) {
  const uint16_t port = UnusedPort();
  const int a = active.CreateId(), b = active.CreateId();
  ASSERT_EQ(active.SetReuse(a, 1), 0);
  ASSERT_EQ(active.SetReuse(b, 1), 0);
  ASSERT_EQ(active.Bind(a, here, port), 0);
  ASSERT_EQ(active.Bind(b, here, port), 0);
  EXPECT_EQ(active.Listen(a), EADDRINUSE);
  EXPECT_EQ(active.Listen(b), EADDRINUSE);
}

TEST_F(Address, ReuseOnOneSideOnlyDoesNotHelp) {
  const uint16_t port = UnusedPort();
  const int a = active.CreateId(), b = active.CreateId();
  ASSERT_EQ(active.Bind(a, here, port), 0);
  ASSERT_EQ(active.SetReuse(b, 1), 0);
  EXPECT_EQ(active.Bind(b, here, port), EADDRINUSE);
}

TEST_F(Address, AnUnboundIdListensOnAPortOfItsOwn) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Listen(id), 0);
  EXPECT_NE(active.PortOf(id), 0);
  EXPECT_EQ(active.Listen(id), EINVAL);
}

TEST_F(Address, AListenerDoesNotConnect) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, here, 0), 0);
  ASSERT_EQ(active.Listen(id), 0);
  EXPECT_EQ(active.CmConnect(id, {}), EINVAL);
  EXPECT_EQ(active.ResolveAddr(id, here, 1), EINVAL);
}

TEST_F(Address, AWildcardListenerIsReachedByEveryAddress) {
  const int id = passive.CreateId();
  ASSERT_EQ(passive.Bind(id, "0.0.0.0", 0), 0);
  ASSERT_EQ(passive.Listen(id), 0);
  listener = id;
  port = static_cast<uint16_t>(passive.PortOf(id));
  ASSERT_NO_FATAL_FAILURE(Request());
  ASSERT_NO_FATAL_FAILURE(AcceptRequest());
  ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(Address, ResolutionFillsTheIdWhenItsEventIsFetched) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  const int id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(id, here, 7777), 0);
  EXPECT_FALSE(active.FieldsOf(id).has_verbs);
  EXPECT_EQ(ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED).id, id);
  const IdFields fields = active.FieldsOf(id);
  EXPECT_TRUE(fields.has_verbs);
  EXPECT_EQ(fields.port_num, 1);
  EXPECT_EQ(fields.num_paths, 0);
  EXPECT_EQ(ntohs(fields.destination.sin_port), 7777);
  EXPECT_NE(fields.source.sin_port, 0);
  ASSERT_EQ(active.ResolveRoute(id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active.FieldsOf(id).num_paths, 1);
}

TEST_F(Address, StepsOutOfOrderAreRefused) {
  const int id = active.CreateId();
  ConnectSpec none;
  none.null_parameters = true;
  EXPECT_EQ(active.CmConnect(id, none), EINVAL);
  EXPECT_EQ(active.Disconnect(id), EINVAL);
  EXPECT_EQ(active.Reject(id), EINVAL);
  EXPECT_EQ(active.Establish(id), EINVAL);
  ASSERT_EQ(active.ResolveAddr(id, here, 7777), 0);
  EXPECT_EQ(active.ResolveAddr(id, here, 7777), EINVAL);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(active.ResolveAddr(id, here, 7777), EINVAL);
  EXPECT_EQ(active.CmConnect(id, {}), EINVAL);
  ASSERT_EQ(active.ResolveRoute(id), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active.ResolveRoute(id), EINVAL);
  EXPECT_EQ(active.Bind(id, here, 0), EINVAL);
  EXPECT_EQ(active.Listen(id), EINVAL);
}

TEST_F(Address, ASourceThatIsNotOursIsRefused) {
  const int id = active.CreateId();
  EXPECT_EQ(active.ResolveAddr(id, here, 1, "192.0.2.55"), EADDRNOTAVAIL);
}

TEST_F(Address, ABoundIdKeepsItsPortWhenItResolves) {
  const int id = active.CreateId();
  ASSERT_EQ(active.Bind(id, here, 0), 0);
  const int port = active.PortOf(id);
  ASSERT_EQ(active.ResolveAddr(id, here, 1), 0);
  ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(active.PortOf(id), port);
}

TEST_F(Address, OptionsCheckTheirLength) {
  const int id = active.CreateId();
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 8, 1), 0);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 8, 4), EINVAL);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 1), 0);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 14, 4), EINVAL);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1, 1), EINVAL);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 1, 4), 0);
  EXPECT_EQ(active.SetOption(id, RDMA_OPTION_ID, 77, 1, 4), ENOSYS);
  EXPECT_EQ(active.SetOption(id, 7, 0, 1, 4), ENOSYS);
}

TEST_F(Address, DestroyingAnIdDropsItsUnfetchedEvents) {
  const int id = active.CreateId();
  ASSERT_EQ(active.ResolveAddr(id, here, 1), 0);
  ASSERT_EQ(active.DestroyId(id), 0);
  ExpectQuiet(active);
}

TEST(Devices, AreListedByTheConnectionManagerToo) {
  int count = 0;
  ibv_context** list = rdma_get_devices(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_GE(count, 1);
  bool found = false;
  for (int i = 0; i < count; ++i) found |= ibv_get_device_name(list[i]->device) == DeviceName();
  EXPECT_TRUE(found);
  EXPECT_EQ(list[count], nullptr);
  rdma_free_devices(list);
}

}  // namespace
}  // namespace rdma_contract
