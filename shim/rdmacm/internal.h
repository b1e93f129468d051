// Declarations shared by the files of librdmacm.so.1: the private parts of channels, ids and
// events, the call to the host, and steps that several API functions need. The library contains no
// protocol. The host's connection management acts as the kernel's ucma and cma.
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

// An event channel. `fd` of the public part is the counter of its pending events.
struct Channel : rdma_event_channel {
  uint32_t handle = 0;
  bool is_of_id = false;   // a synchronous id's own
  uint32_t owner_pid = 0;  // a forked child is refused (EACCES), as by the kernel
  int known_as = -1;       // the descriptor in the table of channels (channel.cc)
};

// A device that connection management has opened. The process opens each device once, and all ids
// share the device.
struct Device {
  Device* next = nullptr;
  ibv_context* verbs = nullptr;
  // The beginning of the memory that contains `verbs`. Without this pointer leak checkers report
  // the memory as possibly lost.
  verbs_context* opened = nullptr;
  uint64_t node_guid = 0;  // big endian
  uint32_t index = 0;
  uint32_t generation = 0;   // of the host, because another embedded host may be created later
  ibv_pd* pd = nullptr;      // while ids use the device
  ibv_xrcd* xrcd = nullptr;  // created at the first use
  uint32_t users = 0;        // ids
  bool given_up = false;     // its host was closed, and its descriptors are closed too
  uint8_t max_initiator_depth = 0;
  uint8_t max_responder_resources = 0;
};

struct Id;
struct Lookup;

// The membership of a multicast group.
struct Multicast {
  Multicast* next = nullptr;
  Id* id = nullptr;
  void* context = nullptr;
  sockaddr_storage address = {};
  uint32_t handle = 0;
  uint32_t events_completed = 0;  // under the id's mutex
  ibv_gid mgid = {};
  uint16_t mlid = 0;
  bool send_only = false;  // the QP is not attached, so it receives no messages
  bool attached = false;   // to the id's QP, at MULTICAST_JOIN
};

struct Id : rdma_cm_id {
  uint32_t handle = 0;
  Device* device = nullptr;
  bool synchronous = false;     // has a channel of its own, and each call waits for its event
  bool connect_failed = false;  // CONNECT_ERROR was reported, so a later end is no event
  uint8_t initiator_depth = 0;  // requested by the caller, or offered by the request
  uint8_t responder_resources = 0;
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  std::optional<ibv_qp_init_attr> endpoint_qp;  // rdma_create_ep's, for rdma_get_request
  // rdma_addrinfo's ai_connect. These bytes precede the caller's private data. One length byte
  // counts both.
  uint8_t connect_data[UINT8_MAX] = {};
  uint8_t connect_length = 0;

  Lookup* lookup = nullptr;  // of rdma_resolve_addrinfo, with its result

  Mutex mutex;
  Condition acknowledged;
  uint32_t events_completed = 0;    // under mutex: acknowledged since the id was created
  Multicast* multicasts = nullptr;  // under mutex
  Id* next_of_handle = nullptr;     // in the table of handles, under its mutex
};

struct Event : rdma_cm_event {
  Id* owner = nullptr;             // counts the acknowledgement; the listener for CONNECT_REQUEST
  Multicast* multicast = nullptr;  // of a multicast event
  uint8_t private_data[RDMA_MAX_PRIVATE_DATA] = {};
};

// Returns the channel of a descriptor, or nullptr. Any thread may call this.
Channel* FindChannel(int fd);
// A program may use a copy of the public structure, which has only the descriptor. It may also
// change the descriptor in the structure.
inline Channel& Private(rdma_event_channel* channel) {
  Channel* const found = FindChannel(channel->fd);
  return found != nullptr ? *found : *static_cast<Channel*>(channel);
}
inline Id& Private(rdma_cm_id* id) { return *static_cast<Id*>(id); }
inline Channel& ChannelOf(const Id& id) { return Private(id.channel); }

// Fails as librdmacm does: sets errno and returns -1.
inline int Fail(int error) {
  errno = error;
  return -1;
}
inline int ReturnErrno(int error) { return error == 0 ? 0 : Fail(error); }
inline bool IsDatagram(const rdma_cm_id& id) { return id.qp_type == IBV_QPT_UD; }

// Returns the size of the address by its family. Returns 0 for NULL and for families that RDMA CM
// does not support.
socklen_t AddressLength(const sockaddr* address);

// Makes one command of rdma_user_cm.h on a channel. Returns 0 or a positive errno.
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

// device.cc: AcquireDevice returns the device that the host's reply names. Returns nullptr with
// errno if the device was removed.
Device* AcquireDevice(uint64_t node_guid, uint32_t index);
void ReleaseDevice(Device* device);
// Returns a bit for each device, by its index, that ids use and that is no RNIC.
uint32_t DevicesInUse();
ibv_xrcd* XrcdOf(Device* device);

// channel.cc
// Creates a channel on the host of `beside`, or on the calling thread's host if that is nullptr.
// Returns nullptr with errno on failure.
Channel* NewChannel(const Channel* beside);
bool IsForked(const Channel& channel);

// id.cc: creates the private part of an id, and finds an id by the host's handle.
Id* NewId(rdma_event_channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type);
int CreateId(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps,
             ibv_qp_type qp_type);
void RegisterId(Id* id);
Id* FindId(uint32_t handle);
void FreeId(Id* id);
// Acts as rdma_destroy_id, for callers that cannot report its error.
void DestroyIdSurely(rdma_cm_id& id);
int DestroyOnHost(const Channel& channel, uint32_t handle, uint32_t* events_reported);
void WaitForAcknowledgements(Id& id, uint32_t events_reported);

// resolve.cc: fills the id's public fields with the host's values. Returns 0 or a positive errno.
int QueryAddresses(Id& id);
int QueryGids(Id& id);
int QueryAddressesAndGids(Id& id);
int QueryPaths(Id& id);

// addrinfo.cc: copies one entry for rdma_freeaddrinfo, without its route, connection data and
// successors. Returns nullptr when there is no memory.
rdma_addrinfo* CopyAddrInfo(const rdma_addrinfo& from);
// Copies a name. The copy of NULL is NULL. Returns false when there is no memory.
bool CopyName(const char* from, char** to);

// event.cc: on a synchronous id, waits for the event that ends the operation. Returns 0, or -1 with
// the event's error as errno. On other ids returns 0 at once.
int Complete(Id& id);

// init_qp_attr.cc: all functions return 0 or a positive errno.
int InitQpAttributes(const Id& id, ibv_qp_state state, ibv_qp_attr* attributes, int* mask);
int ModifyQpToReadyToReceive(Id& id, uint8_t responder_resources);
int ModifyQpToReadyToSend(Id& id, uint8_t initiator_depth);
// Calls ibv_modify_qp as a step of a larger operation.
int ModifyQp(ibv_qp* qp, ibv_qp_attr& attributes, int mask);
int ModifyQpToError(const Id& id);

// multicast.cc: attaches the id's QP. Returns 0 or a positive errno.
int AttachAtJoin(Multicast& multicast, const rdma_ud_param& ud);

}  // namespace rdmaemu::rdmacm
