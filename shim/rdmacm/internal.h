// What the files of librdmacm.so.1 share: the private halves of channels, ids and events, the call
// to the host, and the steps that several API functions take. No protocol lives here: the host's
// connection management does what the kernel's ucma and cma do.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/client/client_abi.h"
#include "shim/client/uninterrupted.h"
#include "shim/rdmacm/sync.h"
#include "shim/rdmacm/ucma_abi.h"

namespace rdmaemu::rdmacm {

using client::Uninterrupted;

// An event channel; `fd` of the public part is the counter of its pending events.
struct Channel : rdma_event_channel {
  uint32_t handle = 0;
  uint32_t owner_pid = 0;  // a forked child is refused (EACCES), as by the kernel
};

// A device that connection management has opened: once a process, shared by all ids.
struct Device {
  Device* next = nullptr;
  ibv_context* verbs = nullptr;
  uint64_t node_guid = 0;  // big endian
  uint32_t index = 0;
  uint32_t generation = 0;   // of the host: one that was embedded may be followed by another
  ibv_pd* pd = nullptr;      // while ids use the device
  ibv_xrcd* xrcd = nullptr;  // made when first asked for
  uint32_t users = 0;        // ids
  bool given_up = false;     // of a host that was closed: its descriptors are
  uint8_t max_initiator_depth = 0;
  uint8_t max_responder_resources = 0;
};

struct Id;
struct Lookup;

// One join of a multicast group.
struct Multicast {
  Multicast* next = nullptr;
  Id* id = nullptr;
  void* context = nullptr;
  sockaddr_storage address = {};
  uint32_t handle = 0;
  uint32_t events_completed = 0;  // under the id's mutex
  ibv_gid mgid = {};
  uint16_t mlid = 0;
  bool send_only = false;  // receives nothing: the QP is not attached
  bool attached = false;   // the id's QP, at MULTICAST_JOIN
};

struct Id : rdma_cm_id {
  uint32_t handle = 0;
  Device* device = nullptr;
  bool synchronous = false;     // has a channel of its own, and each call waits for its event
  bool connect_failed = false;  // CONNECT_ERROR was reported: later endings are not events
  uint8_t initiator_depth = 0;  // what was asked for, or what the request offered
  uint8_t responder_resources = 0;
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  std::optional<ibv_qp_init_attr> endpoint_qp;  // rdma_create_ep's, for rdma_get_request
  // rdma_addrinfo's ai_connect: goes before the caller's private data, under one length byte.
  uint8_t connect_data[UINT8_MAX] = {};
  uint8_t connect_length = 0;

  Lookup* lookup = nullptr;  // rdma_resolve_addrinfo's, with its answer

  Mutex mutex;
  Condition acknowledged;
  uint32_t events_completed = 0;    // under mutex: acknowledged since the id was made
  Multicast* multicasts = nullptr;  // under mutex
  Id* next_of_handle = nullptr;     // in the table of handles, under its mutex
};

struct Event : rdma_cm_event {
  Id* owner = nullptr;             // whose count the acknowledgement goes to: the listener's for
                                   // CONNECT_REQUEST
  Multicast* multicast = nullptr;  // of a multicast event
  uint8_t private_data[RDMA_MAX_PRIVATE_DATA] = {};
};

inline Channel& Private(rdma_event_channel* channel) { return *static_cast<Channel*>(channel); }
inline Id& Private(rdma_cm_id* id) { return *static_cast<Id*>(id); }
inline Channel& ChannelOf(const Id& id) { return Private(id.channel); }

// librdmacm's way to fail: -1 and errno.
inline int Fail(int error) {
  errno = error;
  return -1;
}
inline int ReturnErrno(int error) { return error == 0 ? 0 : Fail(error); }
inline bool IsDatagram(const rdma_cm_id& id) { return id.qp_type == IBV_QPT_UD; }

// sizeof of the address by its family; 0 for NULL and for families that RDMA CM does not know.
socklen_t AddressLength(const sockaddr* address);

// One command of rdma_user_cm.h on a channel. Returns 0 or a positive errno.
int CallBytes(const Channel& channel, uint32_t command, const void* in, uint32_t in_size, void* out,
              uint32_t out_size);
template <class In, class Out>
int Call(const Channel& channel, uint32_t command, const In& in, Out* out) {
  CmCall<In> call = {channel.handle, 0, in};
  return CallBytes(channel, command, &call, sizeof(call), out, sizeof(Out));
}
template <class In>
int Call(const Channel& channel, uint32_t command, const In& in) {
  CmCall<In> call = {channel.handle, 0, in};
  return CallBytes(channel, command, &call, sizeof(call), nullptr, 0);
}

// device.cc: the device that the kernel names in its answers. nullptr with errno: it has gone.
Device* AcquireDevice(uint64_t node_guid, uint32_t index);
void ReleaseDevice(Device* device);
ibv_xrcd* XrcdOf(Device* device);

// channel.cc
// On the host of another one; nullptr: on that which the thread is on. nullptr with errno.
Channel* NewChannel(const Channel* beside);
bool IsForked(const Channel& channel);

// id.cc: makes the private half and finds it again by the kernel's handle.
Id* NewId(rdma_event_channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type);
int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps,
             ibv_qp_type qp_type);
void RegisterId(Id* id);
Id* FindId(uint32_t handle);
void FreeId(Id* id);
// rdma_destroy_id for callers that cannot report its error.
void DestroyIdSurely(rdma_cm_id& id);
int DestroyOnHost(const Channel& channel, uint32_t handle, uint32_t* events_reported);
void WaitForAcknowledgements(Id& id, uint32_t events_reported);

// resolve.cc: fill the id's public fields from the host's. Return 0 or a positive errno.
int QueryAddresses(Id& id);
int QueryGids(Id& id);
int QueryAddressesAndGids(Id& id);
int QueryPaths(Id& id);

// addrinfo.cc: a whole copy for rdma_freeaddrinfo, without route and connection data and without
// what comes after it; nullptr when memory is out.
rdma_addrinfo* CopyAddrInfo(const rdma_addrinfo& from);
// NULL stays NULL; false when memory is out.
bool CopyName(const char* from, char** to);

// event.cc: on a synchronous id, waits for the event that ends the operation and gives its error
// as -1 and errno; on others answers 0 at once.
int Complete(Id& id);

// init_qp_attr.cc: return 0 or a positive errno.
int InitQpAttributes(const Id& id, ibv_qp_state state, ibv_qp_attr* attributes, int* mask);
int ModifyQpToReadyToReceive(Id& id, uint8_t responder_resources);
int ModifyQpToReadyToSend(Id& id, uint8_t initiator_depth);
// ibv_modify_qp as a step of something larger.
int ModifyQp(ibv_qp* qp, ibv_qp_attr& attributes, int mask);
int ModifyQpToError(const Id& id);

// multicast.cc: attaches the id's QP. Returns 0 or a positive errno.
int AttachAtJoin(Multicast& multicast, const rdma_ud_param& ud);

}  // namespace rdmaemu::rdmacm
