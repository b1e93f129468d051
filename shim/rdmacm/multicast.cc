// Multicast groups of an id (rdma_join_multicast(3), rdma_leave_multicast(3)): the QP is attached
// when the join's event is fetched, as librdmacm does it.
#include <algorithm>
#include <cstring>
#include <new>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

void Forget(Id& id, const Multicast* multicast) {
  std::lock_guard lock(id.mutex);
  std::erase_if(id.multicasts, [&](const auto& each) { return each.get() == multicast; });
}

int Join(rdma_cm_id* id, const sockaddr* address, uint16_t join_flags, void* context) {
  if (id == nullptr || AddressLength(address) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  auto made = std::unique_ptr<Multicast>(new (std::nothrow) Multicast);
  if (made == nullptr) return Fail(ENOMEM);
  Multicast* multicast = made.get();
  multicast->id = &ours;
  multicast->context = context;
  std::memcpy(&multicast->address, address, AddressLength(address));
  {
    std::lock_guard lock(ours.mutex);
    ours.multicasts.push_back(std::move(made));
  }
  rdma_ucm_join_mcast command = {};
  command.uid = reinterpret_cast<uintptr_t>(multicast);
  command.id = ours.handle;
  command.join_flags = join_flags;
  command.addr_size = static_cast<uint16_t>(AddressLength(address));
  std::memcpy(&command.addr, address, AddressLength(address));
  rdma_ucm_create_id_resp response = {};
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_JOIN_MCAST, command, &response);
      error != 0) {
    Forget(ours, multicast);
    return Fail(error);
  }
  multicast->handle = response.id;
  return Complete(ours);
}

std::unique_ptr<Multicast> TakeOut(Id& id, const sockaddr* address) {
  std::lock_guard lock(id.mutex);
  const auto found =
      std::find_if(id.multicasts.begin(), id.multicasts.end(), [&](const auto& each) {
        return std::memcmp(&each->address, address, AddressLength(address)) == 0;
      });
  if (found == id.multicasts.end()) return nullptr;
  std::unique_ptr<Multicast> multicast = std::move(*found);
  id.multicasts.erase(found);
  return multicast;
}

}  // namespace

int AttachAtJoin(Multicast& multicast, const rdma_ud_param& ud) {
  multicast.mgid = ud.ah_attr.grh.dgid;
  multicast.mlid = ud.ah_attr.dlid;
  if (multicast.id->qp == nullptr) return 0;
  const int error = ibv_attach_mcast(multicast.id->qp, &multicast.mgid, multicast.mlid);
  multicast.attached = error == 0;
  return error;
}

}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
  return rdmaemu::rdmacm::Join(id, addr, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* mc_join_attr, void* context) {
  using namespace rdmaemu::rdmacm;
  if (mc_join_attr == nullptr) return Fail(EINVAL);
  constexpr uint32_t kNeeded = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (mc_join_attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return Fail(ENOTSUP);
  if ((mc_join_attr->comp_mask & kNeeded) != kNeeded) return Fail(EINVAL);
  if (mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return Fail(ENOTSUP);
  return Join(id, mc_join_attr->addr, static_cast<uint16_t>(mc_join_attr->join_flags), context);
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || AddressLength(addr) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  const std::unique_ptr<Multicast> multicast = TakeOut(ours, addr);
  if (multicast == nullptr) return Fail(EADDRNOTAVAIL);
  if (id->qp != nullptr && multicast->attached) {
    ibv_detach_mcast(id->qp, &multicast->mgid, multicast->mlid);
  }
  rdma_ucm_destroy_id command = {};
  command.id = multicast->handle;
  rdma_ucm_destroy_id_resp response = {};
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_LEAVE_MCAST, command, &response);
      error != 0) {
    return Fail(error);
  }
  std::unique_lock lock(ours.mutex);
  ours.acknowledged.wait(lock,
                         [&] { return multicast->events_completed >= response.events_reported; });
  return 0;
}

}  // extern "C"
