// Multicast GIDs of ports with link layer InfiniBand: the MGID and the MLID of a group, and the IP
// group that carries it on the wire. All are functions of the group alone, so that hosts need no
// common administrator.
#pragma once

#include <cstdint>

#include "emulator/base/net_address.h"

namespace rdmaemu {

// Whose groups they are: IPoIB's, or those of RDMA CM's port space UDP (cma_set_mgid).
enum class MgidSignature : uint8_t { kIpoib = 0x1b, kRdmaCm = 0x01 };

// Returns the MGID of an IP group in a partition, of link-local scope (ip_ib_mc_map,
// ipv6_ib_mc_map): ff12:401b:PKEY::/96 and the low 28 bits of an IPv4 group, or ff12:601b:PKEY::/48
// and the low 80 bits of an IPv6 group. RDMA CM's signature has 01 for 1b.
NetAddress MgidOf(const NetAddress& group, uint16_t pkey, MgidSignature signature);
// Returns a multicast LID: 0xc001 to 0xfffe, and 0xc000 for the IPoIB broadcast group of the
// default partition.
uint16_t MlidOf(const NetAddress& mgid);
// Returns the IPv4 group that carries an MGID. An IPv4 signature's group has the same low 28 bits.
// Other MGIDs have a hash in 239.0.0.0/8, so that two groups may share an address. Returns any
// other address unchanged.
NetAddress WireGroupOf(const NetAddress& mgid);

}  // namespace rdmaemu
