// rdma_getaddrinfo(3): the effect of the hints' flags, types and addresses on the result.
#include <netdb.h>

#include <cerrno>

#include "tests/contract/support/direct.h"

#include <infiniband/ib.h>

namespace rdma_contract {
namespace {

class GetAddrInfo : public testing::Test {
 protected:
  // `error` is the errno of a result of -1.
  int Ask(const char* node, const char* service, const rdma_addrinfo* wanted) {
    rdma_addrinfo* found = nullptr;
    errno = 0;
    const int result = rdma_getaddrinfo(node, service, wanted, &found);
    error = errno;
    info.reset(found);
    return result;
  }
  static const sockaddr_in& Ipv4(const sockaddr* address) {
    return *reinterpret_cast<const sockaddr_in*>(address);
  }
  rdma_addrinfo hints{};
  AddrInfo info;
  int error = 0;
  const std::string here = LocalAddress();
};

TEST_F(GetAddrInfo, AnActiveSideHasADestination) {
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0);
  EXPECT_EQ(info->ai_flags, 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(Ipv4(info->ai_dst_addr).sin_addr.s_addr, SocketAddress(here, 0).sin_addr.s_addr);
  EXPECT_EQ(ntohs(Ipv4(info->ai_dst_addr).sin_port), 7399);
  EXPECT_EQ(info->ai_src_len, 0u);
  EXPECT_EQ(info->ai_src_addr, nullptr);
  EXPECT_EQ(info->ai_next, nullptr);
}

TEST_F(GetAddrInfo, APassiveSideHasASource) {
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0);
  EXPECT_EQ(info->ai_flags, RAI_PASSIVE);
  ASSERT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(ntohs(Ipv4(info->ai_src_addr).sin_port), 7399);
  EXPECT_EQ(info->ai_dst_len, 0u);
}

TEST_F(GetAddrInfo, APassiveSideWithoutANodeIsTheWildcard) {
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_family = AF_INET;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(nullptr, "7399", &hints), 0);
  ASSERT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(Ipv4(info->ai_src_addr).sin_addr.s_addr, INADDR_ANY);
}

TEST_F(GetAddrInfo, WithoutANodeAnActiveSideGoesToItself) {
  hints.ai_family = AF_INET;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(nullptr, "7399", &hints), 0);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(Ipv4(info->ai_dst_addr).sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST_F(GetAddrInfo, WithoutAServiceThePortIsZero) {
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(here.c_str(), nullptr, &hints), 0);
  EXPECT_EQ(Ipv4(info->ai_dst_addr).sin_port, 0);
}

TEST_F(GetAddrInfo, WithoutHintsItIsReliable) {
  ASSERT_EQ(Ask(here.c_str(), "7399", nullptr), 0);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
}

TEST_F(GetAddrInfo, PortSpacesAndTypesFollowEachOther) {
  struct Case {
    int space, type, found_space, found_type;
  };
  for (const Case& each :
       {Case{RDMA_PS_TCP, 0, RDMA_PS_TCP, IBV_QPT_RC},
        Case{RDMA_PS_UDP, 0, RDMA_PS_UDP, IBV_QPT_UD},
        Case{RDMA_PS_IPOIB, 0, RDMA_PS_IPOIB, IBV_QPT_UD},
        Case{0, IBV_QPT_RC, RDMA_PS_TCP, IBV_QPT_RC}, Case{0, IBV_QPT_UD, RDMA_PS_UDP, IBV_QPT_UD},
        Case{RDMA_PS_IB, IBV_QPT_RC, RDMA_PS_IB, IBV_QPT_RC},
        Case{RDMA_PS_IB, IBV_QPT_UD, RDMA_PS_IB, IBV_QPT_UD},
        Case{0, IBV_QPT_UC, RDMA_PS_TCP, IBV_QPT_UC},
        Case{0, IBV_QPT_XRC_SEND, RDMA_PS_TCP, IBV_QPT_XRC_SEND}}) {
    hints.ai_port_space = each.space;
    hints.ai_qp_type = each.type;
    ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0) << each.space << " " << each.type;
    EXPECT_EQ(info->ai_port_space, each.found_space) << each.space << " " << each.type;
    EXPECT_EQ(info->ai_qp_type, each.found_type) << each.space << " " << each.type;
  }
}

TEST_F(GetAddrInfo, AFamilyChoosesAmongTheAddresses) {
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_family = AF_INET6;
  ASSERT_EQ(Ask("fd00::1", "7399", &hints), 0);
  EXPECT_EQ(info->ai_family, AF_INET6);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in6));
  EXPECT_NE(Ask(here.c_str(), "7399", &hints), 0);
}

TEST_F(GetAddrInfo, ALinkLocalAddressKeepsItsScope) {
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_NUMERICHOST;
  ASSERT_EQ(Ask("fe80::1%lo", "7399", &hints), 0);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in6));
  EXPECT_EQ(reinterpret_cast<sockaddr_in6*>(info->ai_dst_addr)->sin6_scope_id, 1u);
}

TEST_F(GetAddrInfo, ANumericHostIsNotLookedUp) {
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_NUMERICHOST;
  EXPECT_EQ(Ask("localhost", "7399", &hints), EAI_NONAME);
  EXPECT_EQ(Ask("127.0.0.1", "7399", &hints), 0);
  hints.ai_flags = 0;
  EXPECT_EQ(Ask("localhost", "7399", &hints), 0);
}

TEST_F(GetAddrInfo, ServicesHaveNamesToo) {
  hints.ai_port_space = RDMA_PS_TCP;
  EXPECT_EQ(Ask(here.c_str(), "no-such-service", &hints), EAI_SERVICE);
}

TEST_F(GetAddrInfo, NoRouteAndSourceAddressesChangeNothingElse) {
  sockaddr_in source = SocketAddress(here, 0);
  hints.ai_flags = RAI_NOROUTE;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_src_addr = Cast(source);
  hints.ai_src_len = sizeof source;
  ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0);
  ASSERT_EQ(info->ai_src_len, sizeof source);
  EXPECT_NE(info->ai_src_addr, hints.ai_src_addr);
  EXPECT_EQ(memcmp(info->ai_src_addr, &source, sizeof source), 0);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(info->ai_route_len, 0);
  EXPECT_EQ(info->ai_connect_len, 0);
}

TEST_F(GetAddrInfo, APassiveSideKeepsTheNodesAddressNotTheHints) {
  sockaddr_in source = SocketAddress("192.0.2.9", 9);
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_src_addr = Cast(source);
  hints.ai_src_len = sizeof source;
  ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0);
  EXPECT_EQ(Ipv4(info->ai_src_addr).sin_addr.s_addr, SocketAddress(here, 0).sin_addr.s_addr);
}

TEST_F(GetAddrInfo, WithoutNamesTheHintsAreCopied) {
  sockaddr_in source = SocketAddress(here, 1), destination = SocketAddress(here, 2);
  hints.ai_flags = RAI_NOROUTE;
  hints.ai_family = AF_INET;
  hints.ai_qp_type = IBV_QPT_UD;
  hints.ai_port_space = RDMA_PS_IB;
  hints.ai_src_addr = Cast(source);
  hints.ai_src_len = sizeof source;
  hints.ai_dst_addr = Cast(destination);
  hints.ai_dst_len = sizeof destination;
  ASSERT_EQ(Ask(nullptr, nullptr, &hints), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_UD);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_IB);
  EXPECT_EQ(memcmp(info->ai_src_addr, &source, sizeof source), 0);
  EXPECT_EQ(memcmp(info->ai_dst_addr, &destination, sizeof destination), 0);
}

TEST_F(GetAddrInfo, AGidIsReadWhenTheFamilyAndANumberAreAskedFor) {
  hints.ai_flags = RAI_FAMILY | RAI_NUMERICHOST;
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask("fe80::2:c903:1:2", "7399", &hints), 0);
  EXPECT_EQ(info->ai_family, AF_IB);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_ib));
  sockaddr_ib address;
  memcpy(&address, info->ai_dst_addr, sizeof address);
  EXPECT_EQ(address.sib_family, AF_IB);
  EXPECT_EQ(ntohs(address.sib_pkey), 0xffff);
  EXPECT_EQ(be64toh(address.sib_sid), uint64_t{RDMA_PS_TCP} << 16 | 7399);
  EXPECT_EQ(be64toh(address.sib_sid_mask), RDMA_IB_IP_PS_MASK | RDMA_IB_IP_PORT_MASK);
  EXPECT_EQ(address.sib_addr.sib_raw[0], 0xfe);
}

TEST_F(GetAddrInfo, AnIbFamilyWithoutTheFlagIsNoHint) {
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(Ask(here.c_str(), "7399", &hints), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
}

TEST_F(GetAddrInfo, NothingAtAllIsInvalid) {
  EXPECT_EQ(Ask(nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(error, EINVAL);
}

TEST_F(GetAddrInfo, FreeingNothingIsFine) { rdma_freeaddrinfo(nullptr); }

}  // namespace
}  // namespace rdma_contract
