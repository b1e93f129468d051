// Ids with InfiniBand's addresses (sockaddr_ib, AF_IB), as far as a RoCE device supports them.
// Wildcards bind and listen, and a GID selects a device, but no route can be resolved.
#include <cerrno>

#include "tests/contract/support/af_ib.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

TEST_F(AfIb, AWildcardBindsAndGetsAPortOfItsPortSpace) {
  const CmId id = NewId(channel.get());
  ASSERT_EQ(Bind(id, Any(RDMA_PS_TCP)), 0);
  EXPECT_EQ(id->verbs, nullptr);
  const sockaddr_ib local = LocalOf(id);
  EXPECT_EQ(local.sib_family, AF_IB);
  EXPECT_EQ(be64toh(local.sib_sid) >> 16, uint64_t{RDMA_PS_TCP});
  EXPECT_NE(be64toh(local.sib_sid) & 0xffff, 0u);
  EXPECT_EQ(be64toh(local.sib_sid_mask), ~uint64_t{0});
  EXPECT_EQ(PortOf(id.get()), be64toh(local.sib_sid) & 0xffff);
}

TEST_F(AfIb, TheServiceIdSaysThePort) {
  const CmId probe = NewId(channel.get());
  ASSERT_EQ(BindTo(probe.get(), here), 0);
  const uint16_t free = static_cast<uint16_t>(PortOf(probe.get()) ^ 1);
  const CmId id = NewId(channel.get());
  const int error = Bind(id, Any(RDMA_PS_TCP, free));
  if (error == EADDRNOTAVAIL) GTEST_SKIP() << "port " << free << " is taken";
  ASSERT_EQ(error, 0);
  EXPECT_EQ(PortOf(id.get()), free);
}

TEST_F(AfIb, AnotherPortSpacesServiceIdIsNotSupported) {
  const CmId id = NewId(channel.get(), RDMA_PS_UDP);
  EXPECT_EQ(Bind(id, Any(RDMA_PS_TCP)), EPROTONOSUPPORT);
}

TEST_F(AfIb, ThePortSpaceIbTakesTheServiceIdsPortSpace) {
  const CmId id = NewId(channel.get(), RDMA_PS_IB);
  ASSERT_EQ(Bind(id, Any(RDMA_PS_TCP)), 0);
  EXPECT_EQ(be64toh(LocalOf(id).sib_sid) >> 16, uint64_t{RDMA_PS_TCP});
  // It is TCP's port, so an IPv4 id cannot have the port as well.
  const CmId other = NewId(channel.get());
  EXPECT_EQ(BindTo(other.get(), here, PortOf(id.get())), EADDRNOTAVAIL);
}

TEST_F(AfIb, AGidIsNoAddressOfARoceDevice) {
  const CmId id = NewId(channel.get());
  EXPECT_EQ(Bind(id, Address(FirstGid(), RDMA_PS_TCP, 0)), ENODEV);
  EXPECT_EQ(Bind(id, Any(RDMA_PS_TCP)), 0);
}

TEST_F(AfIb, AGidLeadsToItsDeviceAndNoRouteLeadsOn) {
  if (IsIwarp()) GTEST_SKIP() << kGidsAreMacs;
  const ibv_gid gid = FirstGid();
  const CmId id = NewId(nullptr);
  ASSERT_EQ(Resolve(id, Address(gid, RDMA_PS_TCP, 1)), 0);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
  const sockaddr_ib local = LocalOf(id);
  EXPECT_EQ(memcmp(&local.sib_addr, gid.raw, sizeof gid.raw), 0);
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(id.get(), 2000)), ENODEV);
}

TEST_F(AfIb, AnUnknownGidHasNoDevice) {
  ibv_gid gid{};
  gid.raw[0] = 0x20;
  gid.raw[15] = 9;
  const CmId id = NewId(channel.get());
  EXPECT_EQ(Resolve(id, Address(gid, RDMA_PS_TCP, 1)), ENODEV);
}

TEST_F(AfIb, AWildcardListenerRefusesRequestsOfIpIds) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  // The CM finds the listener for them, but their GIDs are no addresses for the new id.
  listener = NewId(passive_channel.get());
  ASSERT_EQ(Bind(listener, Any(RDMA_PS_TCP)), 0);
  ASSERT_EQ(ErrnoOf(rdma_listen(listener.get(), 4)), 0);
  active = Requesting(listener.get(), "hello");
  Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(AfIb, ADatagramListenerToo) {
  if (IsIwarp()) GTEST_SKIP() << kNoDatagrams;
  listener = NewId(passive_channel.get(), RDMA_PS_UDP);
  ASSERT_EQ(Bind(listener, Any(RDMA_PS_UDP)), 0);
  ASSERT_EQ(ErrnoOf(rdma_listen(listener.get(), 4)), 0);
  active = Requesting(listener.get(), "hello");
  Expect(channel.get(), RDMA_CM_EVENT_UNREACHABLE, 2);
  EXPECT_FALSE(IsReadable(passive_channel.get()));
}

TEST_F(AfIb, FamiliesAreNotMixed) {
  const CmId ib = NewId(channel.get()), ip = NewId(channel.get());
  ASSERT_EQ(Bind(ib, Any(RDMA_PS_TCP)), 0);
  EXPECT_EQ(ResolveTo(ib.get(), here, 1), EINVAL);
  ASSERT_EQ(BindTo(ip.get(), here), 0);
  EXPECT_EQ(Resolve(ip, Address(FirstGid(), RDMA_PS_TCP, 1)), EINVAL);
}

}  // namespace
}  // namespace rdma_contract
