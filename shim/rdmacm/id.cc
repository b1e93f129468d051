// The life of an id (rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3)).
#include <cstdlib>
#include <new>
#include <unordered_map>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Ids by the host's handle: an event of an id that was not accepted yet names its handle alone.
struct IdTable {
  std::mutex mutex;
  std::unordered_map<uint32_t, Id*> ids;
};

IdTable& Table() {
  static auto* table = new IdTable;  // never destroyed: other threads may still call at exit
  return *table;
}

}  // namespace

Id* NewId(rdma_event_channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type) {
  auto* id = new (std::nothrow) Id;
  if (id == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  static_cast<rdma_cm_id&>(*id) = {};
  id->context = context;
  id->ps = ps;
  id->qp_type = qp_type;
  id->channel = channel;
  if (channel == nullptr) {
    id->channel = NewChannel();
    if (id->channel == nullptr) {
      delete id;
      return nullptr;
    }
    id->synchronous = true;
  }
  return id;
}

void RegisterId(Id* id) {
  std::lock_guard lock(Table().mutex);
  Table().ids[id->handle] = id;
}

Id* FindId(uint32_t handle) {
  std::lock_guard lock(Table().mutex);
  const auto found = Table().ids.find(handle);
  return found == Table().ids.end() ? nullptr : found->second;
}

void FreeId(Id* id) {
  {
    std::lock_guard lock(Table().mutex);
    const auto found = Table().ids.find(id->handle);
    if (found != Table().ids.end() && found->second == id) Table().ids.erase(found);
  }
  if (id->device != nullptr) ReleaseDevice(id->device);
  if (id->synchronous) rdma_destroy_event_channel(id->channel);
  std::free(id->route.path_rec);
  delete id;
}

int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps,
             ibv_qp_type qp_type) {
  if (id == nullptr) return Fail(EINVAL);
  Id* made = NewId(channel, context, ps, qp_type);
  if (made == nullptr) return -1;
  rdma_ucm_create_id command = {};
  command.uid = reinterpret_cast<uintptr_t>(made);
  command.ps = static_cast<uint16_t>(ps);
  command.qp_type = static_cast<uint8_t>(qp_type);
  rdma_ucm_create_id_resp response = {};
  if (const int error = Call(ChannelOf(*made), RDMA_USER_CM_CMD_CREATE_ID, command, &response);
      error != 0) {
    FreeId(made);
    return Fail(error);
  }
  made->handle = response.id;
  RegisterId(made);
  *id = made;
  return 0;
}

int DestroyOnHost(const Channel& channel, uint32_t handle, uint32_t* events_reported) {
  rdma_ucm_destroy_id command = {};
  command.id = handle;
  rdma_ucm_destroy_id_resp response = {};
  const int error = Call(channel, RDMA_USER_CM_CMD_DESTROY_ID, command, &response);
  *events_reported = response.events_reported;
  return error;
}

void WaitForAcknowledgements(Id& id, uint32_t events_reported) {
  std::unique_lock lock(id.mutex);
  id.acknowledged.wait(lock, [&] { return id.events_completed >= events_reported; });
}

}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space ps) {
  const bool datagram = ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP;
  return rdmaemu::rdmacm::CreateId(channel, id, context, ps, datagram ? IBV_QPT_UD : IBV_QPT_RC);
}

int rdma_destroy_id(rdma_cm_id* id) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  uint32_t events_reported = 0;
  if (const int error = DestroyOnHost(ChannelOf(ours), ours.handle, &events_reported); error != 0) {
    return Fail(error);
  }
  if (id->event != nullptr) {
    rdma_ack_cm_event(id->event);
    id->event = nullptr;
  }
  WaitForAcknowledgements(ours, events_reported);
  FreeId(&ours);
  return 0;
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  const bool synchronous = channel == nullptr;
  if (synchronous) {
    channel = NewChannel();
    if (channel == nullptr) return -1;
  }
  rdma_ucm_migrate_id command = {};
  command.id = ours.handle;
  command.fd = Private(channel).handle;
  rdma_ucm_migrate_resp response = {};
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_MIGRATE_ID, command, &response);
      error != 0) {
    if (synchronous) rdma_destroy_event_channel(channel);
    return Fail(error);
  }
  if (ours.synchronous) {
    if (id->event != nullptr) {
      rdma_ack_cm_event(id->event);
      id->event = nullptr;
    }
    if (id->channel != channel) rdma_destroy_event_channel(id->channel);
  }
  ours.synchronous = synchronous;
  id->channel = channel;
  WaitForAcknowledgements(ours, response.events_reported);
  return 0;
}

}  // extern "C"
