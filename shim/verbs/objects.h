// The program's side of verbs objects: the public structs of verbs.h first, what only this library
// knows behind them. All are zeroed C allocations, so that a pointer to the public struct is a
// pointer to the whole.
#pragma once

#include <pthread.h>
#include <stdlib.h>

#include <cstddef>

#include "emulator/abi/calls.h"
#include "emulator/abi/ring.h"
#include "emulator/abi/slab.h"
#include "emulator/base/uapi.h"
#include "shim/client/client.h"
#include "shim/client/fork_lock.h"
#include "shim/verbs/program_memory.h"

namespace rdmaemu::shim {

using client::ForkLock;
using client::ForkLockGuard;

// What ibv_context::cmd_fd is open on: programs show the descriptor in messages and hand it to
// fcntl. Nothing is ever sent through it.
inline constexpr const char* kCommandFile = "/dev/null";

struct Device {
  ibv_device base;
  // Provider libraries look a little past the struct (mlx5dv_is_supported) and must find nothing.
  char provider_room[1024];
  uint32_t index;
  uint64_t node_guid_be;
};

struct Context {
  verbs_context extended;  // ends with the ibv_context
  char provider_room[512];
  uint32_t handle;
  uint32_t max_inline_bytes;
  uint32_t missing;  // kMissing*
  uint32_t max_read_sges;
  std::atomic<uint32_t> fatal_reported;
};

struct Channel {
  ibv_comp_channel base;
  uint32_t handle;
  ForkLock lock;  // from taking an entry to counting it for its queue
  Ring ring;
};

struct CompletionQueue {
  union {
    ibv_cq base;
    ibv_cq_ex extended;
  };
  ForkLock lock;
  bool single_threaded;  // IBV_CREATE_CQ_ATTR_SINGLE_THREADED: start_poll does not lock
  CqControl* control;
  Ring ring;
  ReceiveSlot* slots;             // one an entry of the ring
  ProgramMemory memory;           // that payloads are placed in
  CqEntry current;                // of start_poll and next_poll
  uint32_t comp_events_reported;  // under the channel's lock
  bool is_forkable;               // in the list of payloads.h
  CompletionQueue *forkable_previous, *forkable_next;
};

struct SharedReceiveQueue {
  ibv_srq base;
  ForkLock lock;
  uint32_t max_sge;
  uint32_t entries;  // what the queue takes; the ring may have more room
  Ring ring;
};

struct QueuePair {
  union {
    ibv_qp base;
    ibv_qp_ex extended;
  };
  bool has_extended;  // made with send_ops_flags
  bool signal_all;
  ForkLock send_lock, recv_lock;
  uint32_t doorbell;
  uint32_t max_send_sge, max_recv_sge;
  uint32_t max_inline_bytes;
  uint32_t send_entries, recv_entries;  // what the queues take; the rings may have more room
  ibv_qp_cap cap;
  QpControl* control;
  Ring send_ring, recv_ring;
  std::byte* slab;       // kSlabBytes an entry of send_ring; nullptr: the host wants no payloads
  ProgramMemory memory;  // that payloads are taken from
  bool has_fence;        // a fence may stand in the send queue: the last one is at `last_fence`
  uint32_t last_fence;
  uint32_t next_ssn;
  // Between wr_start and wr_complete, under send_lock.
  uint32_t started_at;     // producer index to go back to
  uint32_t next_slot;      // where the next request goes
  rxe_send_wqe* building;  // the request that setters fill; nullptr before the first
  int build_error;
};

// A zeroed object; nullptr with ENOMEM.
template <class T>
T* New() {
  return static_cast<T*>(calloc(1, sizeof(T)));
}

inline Device* Of(ibv_device* device) { return reinterpret_cast<Device*>(device); }
inline Context* Of(ibv_context* context) {
  return reinterpret_cast<Context*>(verbs_get_ctx(context));
}
inline Channel* Of(ibv_comp_channel* channel) { return reinterpret_cast<Channel*>(channel); }
inline CompletionQueue* Of(ibv_cq* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
inline CompletionQueue* Of(ibv_cq_ex* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
inline SharedReceiveQueue* Of(ibv_srq* srq) { return reinterpret_cast<SharedReceiveQueue*>(srq); }
inline QueuePair* Of(ibv_qp* qp) { return reinterpret_cast<QueuePair*>(qp); }
inline QueuePair* Of(ibv_qp_ex* qp) { return reinterpret_cast<QueuePair*>(qp); }

inline uint64_t CookieOf(const void* object) { return reinterpret_cast<uintptr_t>(object); }
template <class T>
T* FromCookie(uint64_t cookie) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(cookie));
}

// The handle of the open device that a call is made through.
inline uint32_t HandleOf(ibv_context* context) { return Of(context)->handle; }

// Calls through a context that take a handle and answer nothing, or one struct.
inline int CallOnHandle(CallOp op, ibv_context* context, uint32_t handle) {
  return client::Call(op, HandleIn{handle, HandleOf(context)});
}
template <class Out>
int CallOnHandle(CallOp op, ibv_context* context, uint32_t handle, Out& out) {
  return client::Call(op, HandleIn{handle, HandleOf(context)}, out);
}

// For functions that answer a pointer or -1: sets errno.
inline std::nullptr_t NullWith(int error) {
  errno = error;
  return nullptr;
}
inline int MinusOneWith(int error) {
  errno = error;
  return -1;
}
// For functions that answer an errno value; the real library sets errno as well.
inline int ErrnoWith(int error) {
  if (error != 0) errno = error;
  return error;
}

// The ring at the end of a span, after `before` bytes of control; empty with EPROTO when the host's
// numbers do not fit together.
inline Ring RingAt(std::byte* bytes, const SharedSpan& span, size_t before, uint32_t slots,
                   uint32_t slot_bytes) {
  const bool fits = std::has_single_bit(slots) && std::has_single_bit(slot_bytes) &&
                    slot_bytes >= 8 &&
                    before + sizeof(rxe_queue_buf) + uint64_t{slots} * slot_bytes <= span.length;
  if (bytes == nullptr) return {};
  if (!fits) {
    errno = EPROTO;
    return {};
  }
  return Ring(bytes + before, slots, slot_bytes);
}

// Waits until the program has acknowledged what it was given: destroying an object does. A host
// that is gone has given nothing that it knows of.
inline void WaitForAcks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                        uint32_t reported) {
  pthread_mutex_lock(&mutex);
  while (static_cast<int32_t>(reported - completed) > 0) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

// Fills the operations of a new context.
void SetOperations(Context& context);

// What inline functions of verbs.h reach through a context, by file.
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* out, size_t out_bytes);
int QueryDevice(ibv_context* context, const ibv_query_device_ex_input* input,
                ibv_device_attr_ex* out, size_t out_bytes);
ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type);
int DeallocMw(ibv_mw* mw);
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int PollCq(ibv_cq* cq, int count, ibv_wc* out);
int RequestNotify(ibv_cq* cq, int solicited_only);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

// A completion queue, for ibv_create_cq and ibv_create_cq_ex; nullptr and errno.
CompletionQueue* CreateCompletionQueue(ibv_context* context, uint32_t entries, void* cq_context,
                                       ibv_comp_channel* channel, uint32_t vector);
// What a thread does that polls and finds nothing: copies that the host asks for, or it yields.
void AfterEmptyPoll();
// The readers of ibv_cq_ex that wc_flags asks for.
void SetReaders(CompletionQueue& cq, uint64_t wc_flags);

// A queue pair, for ibv_create_qp and ibv_create_qp_ex; `cap` goes in and out.
QueuePair* CreateQueuePair(ibv_pd* pd, const ibv_qp_init_attr& attr, ibv_qp_cap& cap);
// The wr_* functions of ibv_qp_ex.
void SetBuilders(QueuePair& qp, uint64_t send_ops);

}  // namespace rdmaemu::shim

// Functions that this library gives to programs in C.
#define RDMAEMU_EXPORT extern "C" __attribute__((visibility("default")))
