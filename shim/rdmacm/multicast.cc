// Multicast groups of an id (rdma_join_multicast(3), rdma_leave_multicast(3)). As in librdmacm,
// fetching the event of the join attaches the QP.
#include <cstring>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Removes the first membership for which `match` returns true from the id's list, and returns it.
template <class Match>
Multicast* TakeOut(Id& id, Match match) {
  MutexLock lock(id.mutex);
  Multicast** link = &id.multicasts;
  while (*link != nullptr && !match(**link)) link = &(*link)->next;
  Multicast* found = *link;
  if (found != nullptr) *link = found->next;
  return found;
}

void PutIn(Id& id, Multicast* multicast) {
  MutexLock lock(id.mutex);
  multicast->next = id.multicasts;
  id.multicasts = multicast;
}

int Join(rdma_cm_id* id, const sockaddr* address, uint16_t join_flags, void* context) {
  if (id == nullptr || AddressLength(address) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  Multicast* multicast = Make<Multicast>();
  if (multicast == nullptr) return Fail(ENOMEM);
  multicast->id = &ours;
  multicast->context = context;
  multicast->send_only = join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  std::memcpy(&multicast->address, address, AddressLength(address));
  PutIn(ours, multicast);
  rdma_ucm_join_mcast command = {};
  command.uid = reinterpret_cast<uintptr_t>(multicast);
  command.id = ours.handle;
  command.join_flags = join_flags;
  command.addr_size = static_cast<uint16_t>(AddressLength(address));
  std::memcpy(&command.addr, address, AddressLength(address));
  rdma_ucm_create_id_resp response = {};
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_JOIN_MCAST, command, &response);
      error != 0) {
    Free(TakeOut(ours, [&](const Multicast& each) { return &each == multicast; }));
    return Fail(error);
  }
  multicast->handle = response.id;
  return Complete(ours);
}

}  // namespace

int AttachAtJoin(Multicast& multicast, const rdma_ud_param& ud) {
  multicast.mgid = ud.ah_attr.grh.dgid;
  multicast.mlid = ud.ah_attr.dlid;
  if (multicast.id->qp == nullptr || multicast.send_only) return 0;
  const int error = Uninterrupted(
      [&] { return ibv_attach_mcast(multicast.id->qp, &multicast.mgid, multicast.mlid); });
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
  if (mc_join_attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return Fail(EINVAL);
  return Join(id, mc_join_attr->addr, static_cast<uint16_t>(mc_join_attr->join_flags), context);
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || AddressLength(addr) == 0) return Fail(EINVAL);
  Id& ours = Private(id);
  Multicast* multicast = TakeOut(ours, [&](const Multicast& each) {
    return std::memcmp(&each.address, addr, AddressLength(addr)) == 0;
  });
  if (multicast == nullptr) return Fail(EADDRNOTAVAIL);
  if (id->qp != nullptr && multicast->attached) {
    Uninterrupted([&] { return ibv_detach_mcast(id->qp, &multicast->mgid, multicast->mlid); });
  }
  rdma_ucm_destroy_id command = {};
  command.id = multicast->handle;
  rdma_ucm_destroy_id_resp response = {};
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_LEAVE_MCAST, command, &response);
      error != 0) {
    PutIn(ours, multicast);  // its events may not be acknowledged yet
    return Fail(error);
  }
  {
    MutexLock lock(ours.mutex);
    while (multicast->events_completed < response.events_reported) {
      ours.acknowledged.Wait(lock);
    }
  }
  Free(multicast);
  return 0;
}

}  // extern "C"
