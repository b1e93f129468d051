// Ids with InfiniBand's addresses (sockaddr_ib, AF_IB).
#pragma once

#include <endian.h>
#include <infiniband/ib.h>

#include "tests/contract/support/direct.h"

namespace rdma_contract {

class AfIb : public ConnectedTest {
 protected:
  static sockaddr_ib Address(const ibv_gid& gid, rdma_port_space space, uint16_t port,
                             uint16_t pkey = 0xffff) {
    sockaddr_ib address{};
    address.sib_family = AF_IB;
    address.sib_pkey = htons(pkey);
    memcpy(&address.sib_addr, gid.raw, sizeof gid.raw);
    address.sib_sid = htobe64((static_cast<uint64_t>(space) << 16) + port);
    address.sib_sid_mask =
        htobe64(RDMA_IB_IP_PS_MASK | (port != 0 ? RDMA_IB_IP_PORT_MASK : uint64_t{0}));
    return address;
  }
  static sockaddr_ib Any(rdma_port_space space, uint16_t port = 0) {
    return Address({}, space, port);
  }
  static int Bind(const CmId& id, sockaddr_ib address) {
    return ErrnoOf(rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address)));
  }
  static int Resolve(const CmId& id, sockaddr_ib address) {
    return ErrnoOf(
        rdma_resolve_addr(id.get(), nullptr, reinterpret_cast<sockaddr*>(&address), 2000));
  }
  static sockaddr_ib LocalOf(const CmId& id) {
    sockaddr_ib address;
    memcpy(&address, rdma_get_local_addr(id.get()), sizeof address);
    return address;
  }
  ibv_gid FirstGid() {
    const CmId probe = NewId(channel.get());
    EXPECT_EQ(BindTo(probe.get(), here), 0);
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(probe->verbs, 1, 0, &gid), 0);
    return gid;
  }
};

}  // namespace rdma_contract
