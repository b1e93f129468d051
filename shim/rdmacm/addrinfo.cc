// Addresses by name (rdma_getaddrinfo(3)), through the C library's getaddrinfo. The ibacm service
// would convert an IP address to an IB address. rdmaemu has no such service, so the IP address is
// kept.
#include <endian.h>
#include <netdb.h>

#include <cstdlib>
#include <cstring>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Makes a copy that rdma_freeaddrinfo frees. Returns false when there is no memory.
bool CopyAddress(const sockaddr* from, socklen_t length, sockaddr** to, socklen_t* to_length) {
  if (from == nullptr || length == 0) return true;
  *to = static_cast<sockaddr*>(std::calloc(1, length));
  if (*to == nullptr) return false;
  std::memcpy(*to, from, length);
  *to_length = length;
  return true;
}

// With RAI_FAMILY, AF_IB defines how the node is parsed: as a GID in IPv6 notation.
bool IsGid(const rdma_addrinfo& hints) {
  return hints.ai_family == AF_IB && (hints.ai_flags & RAI_FAMILY) != 0;
}

bool CopyAsGid(const sockaddr* from, int port_space, sockaddr** to, socklen_t* to_length) {
  sockaddr_in6 ipv6;
  std::memcpy(&ipv6, from, sizeof(ipv6));
  const uint16_t port = be16toh(ipv6.sin6_port);
  sockaddr_ib ib = {};
  ib.sib_family = AF_IB;
  ib.sib_pkey = 0xffff;
  ib.sib_flowinfo = ipv6.sin6_flowinfo;
  std::memcpy(&ib.sib_addr, &ipv6.sin6_addr, sizeof(ib.sib_addr));
  ib.sib_sid = htobe64((static_cast<uint64_t>(port_space) << 16) + port);
  ib.sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK | (port != 0 ? RDMA_IB_IP_PORT_MASK : uint64_t{0}));
  ib.sib_scope_id = ipv6.sin6_scope_id;
  return CopyAddress(reinterpret_cast<const sockaddr*>(&ib), sizeof(ib), to, to_length);
}

addrinfo HintsFor(const rdma_addrinfo& hints) {
  addrinfo out = {};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) out.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) out.ai_flags |= AI_NUMERICHOST;
  if (hints.ai_family != AF_IB) {
    out.ai_family = hints.ai_family;
  } else if (IsGid(hints)) {
    out.ai_family = AF_INET6;
    out.ai_flags |= AI_NUMERICHOST;
  }
  switch (hints.ai_qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      out.ai_socktype = SOCK_STREAM;
      break;
    case IBV_QPT_UD:
      out.ai_socktype = SOCK_DGRAM;
      break;
    default:
      break;
  }
  switch (hints.ai_port_space) {
    case RDMA_PS_TCP:
      out.ai_protocol = IPPROTO_TCP;
      break;
    case RDMA_PS_IPOIB:
    case RDMA_PS_UDP:
      out.ai_protocol = IPPROTO_UDP;
      break;
    case RDMA_PS_IB:
      if (out.ai_socktype == SOCK_STREAM) out.ai_protocol = IPPROTO_TCP;
      if (out.ai_socktype == SOCK_DGRAM) out.ai_protocol = IPPROTO_UDP;
      break;
    default:
      break;
  }
  return out;
}

// Returns 0, an EAI_* code, or -1 with errno.
int TakeFirst(const addrinfo& found, const rdma_addrinfo* hints, rdma_addrinfo& info) {
  info.ai_family = found.ai_family;
  info.ai_qp_type = found.ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
  info.ai_port_space = found.ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (hints != nullptr && hints->ai_qp_type != 0) info.ai_qp_type = hints->ai_qp_type;
  if (hints != nullptr && hints->ai_port_space != 0) info.ai_port_space = hints->ai_port_space;
  const bool passive = hints != nullptr && (hints->ai_flags & RAI_PASSIVE) != 0;
  if (passive) info.ai_flags = RAI_PASSIVE;
  sockaddr** address = passive ? &info.ai_src_addr : &info.ai_dst_addr;
  socklen_t* length = passive ? &info.ai_src_len : &info.ai_dst_len;
  bool copied =
      CopyName(found.ai_canonname, passive ? &info.ai_src_canonname : &info.ai_dst_canonname);
  if (hints != nullptr && IsGid(*hints) && found.ai_family == AF_INET6) {
    info.ai_family = AF_IB;
    copied = copied && CopyAsGid(found.ai_addr, info.ai_port_space, address, length);
  } else {
    copied = copied && CopyAddress(found.ai_addr, found.ai_addrlen, address, length);
  }
  return copied ? 0 : Fail(ENOMEM);
}

int Resolve(const char* node, const char* service, const rdma_addrinfo* hints,
            rdma_addrinfo& info) {
  addrinfo wanted = {};
  if (hints != nullptr) wanted = HintsFor(*hints);
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(node, service, hints != nullptr ? &wanted : nullptr, &found);
      error != 0) {
    return error;
  }
  const int result = TakeFirst(*found, hints, info);
  freeaddrinfo(found);
  return result;
}

int TakeHints(const rdma_addrinfo& hints, rdma_addrinfo& info) {
  info.ai_flags = hints.ai_flags;
  info.ai_family = hints.ai_family;
  info.ai_qp_type = hints.ai_qp_type;
  info.ai_port_space = hints.ai_port_space;
  return CopyAddress(hints.ai_dst_addr, hints.ai_dst_len, &info.ai_dst_addr, &info.ai_dst_len)
             ? 0
             : Fail(ENOMEM);
}

}  // namespace

bool CopyName(const char* from, char** to) {
  if (from == nullptr) return true;
  *to = strdup(from);
  return *to != nullptr;
}

rdma_addrinfo* CopyAddrInfo(const rdma_addrinfo& from) {
  auto* to = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (to == nullptr) return nullptr;
  to->ai_flags = from.ai_flags;
  to->ai_family = from.ai_family;
  to->ai_qp_type = from.ai_qp_type;
  to->ai_port_space = from.ai_port_space;
  if (CopyAddress(from.ai_src_addr, from.ai_src_len, &to->ai_src_addr, &to->ai_src_len) &&
      CopyAddress(from.ai_dst_addr, from.ai_dst_len, &to->ai_dst_addr, &to->ai_dst_len) &&
      CopyName(from.ai_src_canonname, &to->ai_src_canonname) &&
      CopyName(from.ai_dst_canonname, &to->ai_dst_canonname)) {
    return to;
  }
  rdma_freeaddrinfo(to);
  return nullptr;
}

}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** res) {
  using namespace rdmaemu::rdmacm;
  if (res == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return Fail(EINVAL);
  }
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return Fail(ENOMEM);
  int result = node != nullptr || service != nullptr ? Resolve(node, service, hints, *info)
                                                     : TakeHints(*hints, *info);
  if (result == 0 && hints != nullptr && info->ai_src_len == 0 &&
      !CopyAddress(hints->ai_src_addr, hints->ai_src_len, &info->ai_src_addr, &info->ai_src_len)) {
    result = Fail(ENOMEM);
  }
  if (result != 0) {
    rdma_freeaddrinfo(info);
    return result;
  }
  *res = info;
  return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo* res) {
  while (res != nullptr) {
    rdma_addrinfo* next = res->ai_next;
    std::free(res->ai_src_addr);
    std::free(res->ai_dst_addr);
    std::free(res->ai_src_canonname);
    std::free(res->ai_dst_canonname);
    std::free(res->ai_route);
    std::free(res->ai_connect);
    std::free(res);
    res = next;
  }
}

}  // extern "C"
