// Addresses and routes (rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3)), and the
// id's public fields, which are copied from the host.
#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

template <class KernelAddress>
void PutAddress(KernelAddress& out, uint16_t& out_size, const sockaddr* address) {
  out_size = static_cast<uint16_t>(AddressLength(address));
  if (out_size != 0) std::memcpy(&out, address, out_size);
}

void TakeAddress(sockaddr_storage& out, const void* address, size_t size) {
  std::memcpy(&out, address, std::min(size, sizeof(out)));
}

// Stores the device to which the host bound the id. Does nothing if the id has no device.
int TakeDevice(Id& id, uint64_t node_guid, uint32_t index, uint8_t port_num) {
  if (node_guid == 0) return 0;
  if (id.device == nullptr) {
    Device* device = AcquireDevice(node_guid, index);
    if (device == nullptr) return errno != 0 ? errno : ENODEV;
    id.device = device;
    id.verbs = device->verbs;
    if (id.pd == nullptr) id.pd = device->pd;
  }
  id.port_num = port_num;
  return 0;
}

// Converts ibv_path_record (a subnet manager's format) to the unpacked struct of the id.
ibv_sa_path_rec Unpack(const ibv_path_record& record) {
  ibv_sa_path_rec path = {};
  path.dgid = record.dgid;
  path.sgid = record.sgid;
  path.dlid = record.dlid;
  path.slid = record.slid;
  const uint32_t flow_and_hops = ntohl(record.flowlabel_hoplimit);
  path.flow_label = htonl(flow_and_hops >> 8);
  path.hop_limit = static_cast<uint8_t>(flow_and_hops);
  path.traffic_class = record.tclass;
  path.reversible = record.reversible_numpath >> 7;
  path.numb_path = record.reversible_numpath & 0x7f;
  path.pkey = record.pkey;
  path.sl = static_cast<uint8_t>(ntohs(record.qosclass_sl) & 0xf);
  path.mtu_selector = record.mtu >> 6;
  path.mtu = record.mtu & 0x3f;
  path.rate_selector = record.rate >> 6;
  path.rate = record.rate & 0x3f;
  path.packet_life_time_selector = record.packetlifetime >> 6;
  path.packet_life_time = record.packetlifetime & 0x3f;
  return path;
}

}  // namespace

socklen_t AddressLength(const sockaddr* address) {
  if (address == nullptr) return 0;
  switch (address->sa_family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case AF_IB:
      return sizeof(sockaddr_ib);
    default:
      return 0;
  }
}

int QueryAddresses(Id& id) {
  rdma_ucm_query command = {};
  command.id = id.handle;
  command.option = RDMA_USER_CM_QUERY_ADDR;
  rdma_ucm_query_addr_resp response = {};
  if (const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_QUERY, command, &response);
      error != 0) {
    return error;
  }
  TakeAddress(id.route.addr.src_storage, &response.src_addr, response.src_size);
  TakeAddress(id.route.addr.dst_storage, &response.dst_addr, response.dst_size);
  id.route.addr.addr.ibaddr.pkey = response.pkey;
  return TakeDevice(id, response.node_guid, response.ibdev_index, response.port_num);
}

int QueryGids(Id& id) {
  rdma_ucm_query command = {};
  command.id = id.handle;
  command.option = RDMA_USER_CM_QUERY_GID;
  rdma_ucm_query_addr_resp response = {};
  if (const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_QUERY, command, &response);
      error != 0) {
    return error;
  }
  rdma_ib_addr& gids = id.route.addr.addr.ibaddr;
  sockaddr_ib address;
  std::memcpy(&address, &response.src_addr, sizeof(address));
  std::memcpy(&gids.sgid, &address.sib_addr, sizeof(gids.sgid));
  gids.pkey = address.sib_pkey;
  std::memcpy(&address, &response.dst_addr, sizeof(address));
  std::memcpy(&gids.dgid, &address.sib_addr, sizeof(gids.dgid));
  return 0;
}

int QueryAddressesAndGids(Id& id) {
  if (const int error = QueryAddresses(id); error != 0) return error;
  return id.verbs == nullptr ? 0 : QueryGids(id);
}

int QueryPaths(Id& id) {
  rdma_ucm_query command = {};
  command.id = id.handle;
  command.option = RDMA_USER_CM_QUERY_PATH;
  CmQueryPathOut response = {};
  if (const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_QUERY, command, &response);
      error != 0) {
    return error;
  }
  const size_t count = std::min<size_t>(response.num_paths, std::size(response.paths));
  ibv_sa_path_rec* paths = nullptr;
  if (count != 0) {
    paths = static_cast<ibv_sa_path_rec*>(std::calloc(count, sizeof(*paths)));
    if (paths == nullptr) return ENOMEM;
    for (size_t i = 0; i < count; ++i) {
      ibv_path_record record;
      static_assert(sizeof(record) == sizeof(response.paths[i].path_rec));
      std::memcpy(&record, response.paths[i].path_rec, sizeof(record));
      paths[i] = Unpack(record);
      // As in librdmacm, `preference` holds the path's flags, which distinguish several paths.
      paths[i].preference = static_cast<uint8_t>(response.paths[i].flags);
    }
  }
  std::free(id.route.path_rec);
  id.route.path_rec = paths;
  id.route.num_paths = static_cast<int>(count);
  return 0;
}

}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || AddressLength(addr) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  rdma_ucm_bind command = {};
  command.id = ours.handle;
  PutAddress(command.addr, command.addr_size, addr);
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_BIND, command); error != 0) {
    return Fail(error);
  }
  return ReturnErrno(Uninterrupted([&] { return QueryAddressesAndGids(ours); }));
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || AddressLength(dst_addr) == 0) return Fail(EINVAL);
  if (src_addr != nullptr && AddressLength(src_addr) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  rdma_ucm_resolve_addr command = {};
  command.id = ours.handle;
  command.timeout_ms = static_cast<uint32_t>(timeout_ms);
  PutAddress(command.src_addr, command.src_size, src_addr);
  PutAddress(command.dst_addr, command.dst_size, dst_addr);
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_RESOLVE_ADDR, command); error != 0) {
    return Fail(error);
  }
  // The resolved addresses are copied when the event is fetched. Until then the id's destination is
  // the requested address.
  std::memcpy(&id->route.addr.dst_storage, dst_addr, AddressLength(dst_addr));
  return Complete(ours);
}

int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  if (IsForked(ChannelOf(ours))) return Fail(EACCES);
  if (id->verbs == nullptr) return Fail(EINVAL);  // the real library crashes here
  rdma_ucm_resolve_route command = {};
  command.id = ours.handle;
  command.timeout_ms = static_cast<uint32_t>(timeout_ms);
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_RESOLVE_ROUTE, command);
      error != 0) {
    return Fail(error);
  }
  return Complete(ours);
}

static __be16 PortOf(const sockaddr* address) {
  switch (address->sa_family) {
    case AF_INET:
      return reinterpret_cast<const sockaddr_in*>(address)->sin_port;
    case AF_INET6:
      return reinterpret_cast<const sockaddr_in6*>(address)->sin6_port;
    case AF_IB: {
      sockaddr_ib ib;
      std::memcpy(&ib, address, sizeof(ib));
      return htons(static_cast<uint16_t>(be64toh(ib.sib_sid)));
    }
    default:
      return 0;
  }
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return PortOf(&id->route.addr.src_addr); }

__be16 rdma_get_dst_port(rdma_cm_id* id) { return PortOf(&id->route.addr.dst_addr); }

}  // extern "C"
