// Creates, destroys and migrates ids (rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3)).
#include <cstdlib>

#include "shim/rdmacm/internal.h"
#include "shim/rdmacm/lookup.h"

namespace rdmaemu::rdmacm {
namespace {

// The table of ids by the host's handle. An event of an id that was not accepted yet has only the
// handle.
constexpr uint32_t kBuckets = 4096;
constinit union IdStorage {
  constexpr IdStorage() : table() {}
  ~IdStorage() {}  // other threads may still call at exit
  struct {
    Mutex mutex;
    Id* buckets[kBuckets] = {};
  } table;
} g_id_storage;

Mutex& IdsMutex() { return g_id_storage.table.mutex; }
Id*& BucketOf(uint32_t handle) { return g_id_storage.table.buckets[handle % kBuckets]; }

void Unregister(const Id* id) {
  MutexLock lock(IdsMutex());
  Id** link = &BucketOf(id->handle);
  while (*link != nullptr && *link != id) link = &(*link)->next_of_handle;
  if (*link != nullptr) *link = id->next_of_handle;
}

int MoveTo(Id& id, rdma_event_channel* channel, bool synchronous, uint32_t* events_reported) {
  // A lookup's thread writes its event to the id's channel, so the lookup's lock is held while the
  // channel changes.
  std::optional<MutexLock> lookup;
  if (id.lookup != nullptr) lookup.emplace(id.lookup->mutex);
  rdma_ucm_migrate_id command = {};
  command.id = id.handle;
  command.fd = Private(channel).handle;
  rdma_ucm_migrate_resp response = {};
  const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_MIGRATE_ID, command, &response);
  if (error != 0) return error;
  if (id.synchronous) {
    if (id.event != nullptr) {
      rdma_ack_cm_event(id.event);
      id.event = nullptr;
    }
    if (id.channel != channel) rdma_destroy_event_channel(id.channel);
  }
  id.synchronous = synchronous;
  id.channel = channel;
  *events_reported = response.events_reported;
  return 0;
}

}  // namespace

Id* NewId(rdma_event_channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type) {
  UnlockInChildren<IdsMutex>();
  Id* id = Make<Id>();
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
    id->channel = NewChannel(nullptr);
    if (id->channel == nullptr) {
      Free(id);
      return nullptr;
    }
    id->synchronous = true;
    Private(id->channel).is_of_id = true;
  }
  return id;
}

void RegisterId(Id* id) {
  MutexLock lock(IdsMutex());
  Id*& bucket = BucketOf(id->handle);
  id->next_of_handle = bucket;
  bucket = id;
}

Id* FindId(uint32_t handle) {
  MutexLock lock(IdsMutex());
  Id* id = BucketOf(handle);
  while (id != nullptr && id->handle != handle) id = id->next_of_handle;
  return id;
}

void FreeId(Id* id) {
  Unregister(id);
  AbandonLookup(*id);
  while (id->multicasts != nullptr) {
    Multicast* multicast = id->multicasts;
    id->multicasts = multicast->next;
    Free(multicast);
  }
  if (id->device != nullptr) ReleaseDevice(id->device);
  if (id->synchronous) rdma_destroy_event_channel(id->channel);
  std::free(id->route.path_rec);
  Free(id);
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

void DestroyIdSurely(rdma_cm_id& id) {
  Uninterrupted([&] { return rdma_destroy_id(&id) == 0 ? 0 : errno; });
}

void WaitForAcknowledgements(Id& id, uint32_t events_reported) {
  MutexLock lock(id.mutex);
  while (id.events_completed < events_reported) id.acknowledged.Wait(lock);
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
  AbandonLookup(ours);
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
  if (synchronous && ours.synchronous) return Fail(EINVAL);
  if (synchronous) {
    channel = NewChannel(&ChannelOf(ours));
    if (channel == nullptr) return -1;
    Private(channel).is_of_id = true;
  }
  uint32_t events_reported = 0;
  if (const int error = MoveTo(ours, channel, synchronous, &events_reported); error != 0) {
    if (synchronous) rdma_destroy_event_channel(channel);
    return Fail(error);
  }
  WaitForAcknowledgements(ours, events_reported);
  return 0;
}

}  // extern "C"
