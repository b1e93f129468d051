#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <cstring>

#include "shim/rdmacm/fake_host.h"

namespace {

const sockaddr_in& Ipv4(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_in*>(address);
}

TEST(GetAddrInfo, ActiveFillsTheDestinationAlone) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.1.1", "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(info->ai_src_len, 0u);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(Ipv4(info->ai_dst_addr).sin_port, htons(7399));
  rdma_freeaddrinfo(info);
}

TEST(GetAddrInfo, PassiveFillsTheSourceAloneAndSaysSo) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_flags, RAI_PASSIVE);
  EXPECT_EQ(info->ai_dst_len, 0u);
  ASSERT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(Ipv4(info->ai_src_addr).sin_addr.s_addr, INADDR_ANY);
  rdma_freeaddrinfo(info);
}

TEST(GetAddrInfo, DatagramHintsGiveUdAndItsPortSpace) {
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_UDP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.1.1", "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_UD);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_UDP);
  rdma_freeaddrinfo(info);
}

TEST(GetAddrInfo, WithoutNamesTheHintsAddressesAreCopied) {
  sockaddr_in source = {}, destination = {};
  source.sin_family = destination.sin_family = AF_INET;
  source.sin_addr.s_addr = htonl(0x7f000101);
  destination.sin_addr.s_addr = htonl(0x7f000102);
  rdma_addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_qp_type = IBV_QPT_RC;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_src_addr = reinterpret_cast<sockaddr*>(&source);
  hints.ai_src_len = sizeof(source);
  hints.ai_dst_addr = reinterpret_cast<sockaddr*>(&destination);
  hints.ai_dst_len = sizeof(destination);
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &info), 0);
  EXPECT_NE(info->ai_src_addr, hints.ai_src_addr);
  EXPECT_EQ(std::memcmp(info->ai_src_addr, &source, sizeof(source)), 0);
  EXPECT_EQ(std::memcmp(info->ai_dst_addr, &destination, sizeof(destination)), 0);
  rdma_freeaddrinfo(info);
}

TEST(GetAddrInfo, FamilyIbReadsTheNodeAsAGidOnlyWhenRaiFamilyAsksForIt) {
  rdma_addrinfo hints = {};
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.1.1", "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET);
  rdma_freeaddrinfo(info);
  hints.ai_flags = RAI_FAMILY;
  ASSERT_EQ(rdma_getaddrinfo("::ffff:127.0.1.1", "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_family, AF_IB);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_ib));
  const auto* gid = reinterpret_cast<const sockaddr_ib*>(info->ai_dst_addr);
  EXPECT_EQ(be64toh(gid->sib_sid), uint64_t{RDMA_PS_TCP} << 16 | 7399);
  rdma_freeaddrinfo(info);
  EXPECT_NE(rdma_getaddrinfo("host.name", "1", &hints, &info), 0);
}

TEST(GetAddrInfo, ErrorsAreTheResolversOrErrno) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_NUMERICHOST;
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(rdma_getaddrinfo("no.number", "1", &hints, &info), EAI_NONAME);
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, nullptr, &info), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
