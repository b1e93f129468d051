// Address handles, address handles from received messages, and multicast membership.

#include <endian.h>
#include <netinet/ip.h>
#include <string.h>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

constexpr size_t kIpv4InGrh = 20;  // a RoCEv2 IPv4 header is the last 20 of the GRH's 40 bytes
constexpr int kMaxGids = 4096;

bool ChecksumHolds(const iphdr& header) {
  uint32_t sum = 0;
  uint16_t words[sizeof header / 2];
  memcpy(words, &header, sizeof header);
  for (uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return sum == 0xffff;
}

// Returns 4 or 6, or 0 if the bytes are neither header. The addresses of an IPv6 header may look
// like an IPv4 header, so the checksum decides.
int VersionOf(const ibv_grh& grh, iphdr& ipv4) {
  memcpy(&ipv4, reinterpret_cast<const char*>(&grh) + kIpv4InGrh, sizeof ipv4);
  if (be32toh(grh.version_tclass_flow) >> 28 != 6) return ipv4.version == 4 ? 4 : 0;
  return ipv4.version == 4 && ipv4.ihl == 5 && ChecksumHolds(ipv4) ? 4 : 6;
}

ibv_gid MappedGid(uint32_t address_be) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  memcpy(gid.raw + 12, &address_be, sizeof address_be);
  return gid;
}

// Returns the index of our own address to which the message was sent. Returns -1 if the table has
// no such entry.
int FindGid(ibv_context* context, uint8_t port, const ibv_gid& gid) {
  ibv_gid found;
  for (int i = 0; i < kMaxGids && ibv_query_gid(context, port, i, &found) == 0; i++) {
    if (memcmp(&found, &gid, sizeof gid) == 0) return i;
  }
  return MinusOneWith(ENOENT);
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ibv_ah* ah = New<ibv_ah>();
  if (ah == nullptr) return nullptr;
  CreateAhIn in{};
  in.pd = pd->handle;
  in.context = HandleOf(pd->context);
  in.attr = *attr;
  HandleOut reply{};
  const int error = client::Call(CallOp::kCreateAh, in, reply);
  if (error != 0) {
    free(ah);
    return NullWith(error);
  }
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = reply.handle;
  return ah;
}

RDMAEMU_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  const int error = CallOnHandle(CallOp::kDestroyAh, ah->context, ah->handle);
  if (error == 0) Free(ah);
  return ErrnoWith(error);
}

// Follows ibv_create_ah_from_wc(3). Returns 0, or -1 and errno.
RDMAEMU_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attr) {
  memset(attr, 0, sizeof *attr);
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  attr->is_global = 1;
  iphdr ipv4;
  ibv_gid own;
  switch (VersionOf(*grh, ipv4)) {
    case 4:
      own = MappedGid(ipv4.daddr);
      attr->grh.dgid = MappedGid(ipv4.saddr);
      attr->grh.hop_limit = ipv4.ttl;
      attr->grh.traffic_class = ipv4.tos;
      break;
    case 6: {
      const uint32_t first = be32toh(grh->version_tclass_flow);
      own = grh->dgid;
      attr->grh.dgid = grh->sgid;
      attr->grh.hop_limit = grh->hop_limit;
      attr->grh.traffic_class = static_cast<uint8_t>(first >> 20);
      attr->grh.flow_label = first & 0xfffff;
      break;
    }
    default:
      return MinusOneWith(EPROTONOSUPPORT);
  }
  const int index = FindGid(context, port, own);
  if (index < 0) return -1;
  attr->grh.sgid_index = static_cast<uint8_t>(index);
  return 0;
}

RDMAEMU_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

// An emulated port's MAC is 02:00:a:b:c:d. A link-local GID contains it as EUI-64.
RDMAEMU_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr* attr, uint8_t mac[6],
                                               uint16_t* vid) {
  const uint8_t* gid = attr->grh.dgid.raw;
  const bool is_mapped = memcmp(gid, MappedGid(0).raw, 12) == 0;
  const bool is_link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
  if (is_mapped) {
    mac[0] = 0x02;
    mac[1] = 0x00;
    memcpy(mac + 2, gid + 12, 4);
  } else if (is_link_local && gid[11] == 0xff && gid[12] == 0xfe) {
    mac[0] = gid[8] ^ 0x02;
    mac[1] = gid[9];
    mac[2] = gid[10];
    memcpy(mac + 3, gid + 13, 3);
  } else {
    return -ErrnoWith(EHOSTUNREACH);
  }
  if (vid != nullptr) *vid = 0xffff;  // no VLAN
  return 0;
}

namespace {
int Membership(CallOp op, const ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return ErrnoWith(client::Call(op, McastIn{qp->handle, lid, 0, *gid, HandleOf(qp->context)}));
}
}  // namespace

RDMAEMU_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return Membership(CallOp::kAttachMcast, qp, gid, lid);
}
RDMAEMU_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return Membership(CallOp::kDetachMcast, qp, gid, lid);
}
