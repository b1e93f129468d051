// The program's side of verbs objects. Each starts with the public struct of verbs.h, followed by
// this library's private fields. All are zeroed C allocations, so a pointer to the public struct is
// a pointer to the whole object.
#pragma once

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cstddef>

#include "emulator/abi/calls.h"
#include "emulator/abi/lane_order.h"
#include "emulator/abi/ring.h"
#include "emulator/abi/send_entry.h"
#include "emulator/abi/slab.h"
#include "emulator/base/uapi.h"
#include "shim/client/client.h"
#include "shim/client/fork_lock.h"
#include "shim/verbs/newer_abi.h"
#include "shim/verbs/program_memory.h"

namespace rdmaemu::shim {

using client::ForkLock;
using client::ForkLockGuard;

// The file behind ibv_context::cmd_fd. Programs print the descriptor and pass it to fcntl. No data
// is ever sent through it.
inline constexpr const char* kCommandFile = "/dev/null";

struct Device {
  ibv_device base;
  // Provider libraries read slightly beyond the struct (mlx5dv_is_supported) and must find zeros.
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
  uint32_t clock_khz;  // 0: the device has no timestamps
  uint64_t clock_mask;
  std::atomic<uint32_t> fatal_reported;
};

struct QueuePair;

struct Channel {
  ibv_comp_channel base;
  uint32_t handle;
  ChannelControl* control;
  Ring ring;
  ForkLock lock;     // held while `lanes` changes
  QueuePair* lanes;  // those whose lanes may have events (cq_events.h)
  uint32_t users;    // threads that look at `lanes` or take an event (ChannelUse)
  uint32_t gone;     // of `users`: have never returned from a signal handler (AwaitUsers)
};

struct CompletionQueue {
  union {
    ibv_cq base;
    ibv_cq_ex extended;
  };
  ForkLock lock;
  // Held by a thread that executes a request whose completion it puts here (own_execution.h). A
  // thread that polls or arms the queue does not need it.
  ForkLock execution_lock;
  bool single_threaded;  // IBV_CREATE_CQ_ATTR_SINGLE_THREADED: start_poll does not lock
  bool has_timestamps;   // the program may read when the host has completed a request
  CqControl* control;
  Ring ring;
  uint32_t resizes;      // odd while a thread of this process resizes the queue
  uint32_t armed_later;  // the kind of the armings that the resizing thread must make
  ReceiveSlot* slots;    // one per entry of the ring
  ProgramMemory memory;  // cached checks for placing payloads
  CqEntry current;       // the entry of start_poll and next_poll
  uint32_t comp_events_reported;
  QueuePair* lanes;  // those with a lane for messages (lanes.h); under `lock`
  // Those that have had a lane, by the number of the queue pair. The last one of a place counts.
  static constexpr uint32_t kLanePlaces = 64;  // a power of two
  QueuePair* had_lanes[kLanePlaces];
  SendLane* armed_lane;  // the lane that may have the arming
  uint32_t lane_users;   // threads that arm the queue, or use `armed_lane`
  bool is_forkable;      // is in the list of payloads.h
  CompletionQueue *forkable_previous, *forkable_next;
};

struct SharedReceiveQueue {
  ibv_srq base;
  ForkLock lock;
  uint32_t max_sge;
  uint32_t entries;  // the queue's limit; the ring may be larger
  Ring ring;
};

// The lane by which a queue pair sends messages (lanes.h). Under send_lock.
struct SentLane {
  SendLane* lane;   // nullptr: none
  uint32_t id;      // Permit::lane
  uint32_t number;  // of the opening that has room (AwaitLane)
  bool has_counter;
  bool refuses_counter;                              // the host or the system refuses the counter
  int counter;                                       // of the channel of the receiver's queue
  uint32_t vain_waits, skipped_waits, taken_before;  // for room (AwaitRoom)
};

// The lane by which a queue pair gets messages (lanes.h).
struct ReceivedLane {
  // Under the receive CQ's lock. Written under the queue pair's receive lock, too.
  SendLane* lane;
  uint32_t id, number;  // LaneOffer::lane, LaneOffer::number
  uint32_t receive_index;
  PermittedRegion region;
  ib_uverbs_wc completion;
  QueuePair* next;    // CompletionQueue::lanes; changed under LaneListGuard, too
  LaneCursor cursor;  // while a thread takes messages
  // Under the lock of the CQ's channel.
  bool has_events;              // is in Channel::lanes
  QueuePair* next_with_events;  // Channel::lanes
  // Under the receive lock.
  uint32_t refused_id;    // a lane that the process could not map
  uint32_t next_checked;  // ring index of the next receive that was not checked
  uint32_t room, room_bytes;
};

struct QueuePair {
  union {
    ibv_qp base;
    ibv_qp_ex extended;
    newer::QpEx newer;
  };
  bool has_extended;  // created with send_ops_flags
  bool signal_all;
  ForkLock send_lock, recv_lock;
  uint32_t doorbell;
  uint32_t max_send_sge, max_recv_sge;
  uint32_t max_inline_bytes;
  uint32_t send_entries, recv_entries;  // the queues' limits; the rings may be larger
  ibv_qp_cap cap;
  QpControl* control;
  Ring send_ring, recv_ring;
  bool takes_payloads;   // small payloads are copied when they are posted (payloads.h)
  ProgramMemory memory;  // cached checks for taking payloads
  bool has_fence;        // a fence may be in the send queue; the last one is at `last_fence`
  uint32_t last_fence;
  uint64_t posted_ns;    // when the program last posted a request for the host
  uint64_t executed_ns;  // when it last executed an unsignaled one itself
  bool is_refused;       // the system denies the program the memory of the other process
  SentLane sent;
  ReceivedLane received;
  // Between wr_start and wr_complete, under send_lock.
  uint32_t started_at;  // producer index before the list
  uint32_t next_slot;   // slot of the next request
  SendEntry* building;  // the request that setters fill; nullptr before the first
  int build_error;
};

// Allocates a zeroed object. Returns nullptr with ENOMEM.
template <class T>
T* New() {
  return static_cast<T*>(calloc(1, sizeof(T)));
}

// Frees an object that the program has destroyed. Clears its device, which the program must not use
// again. The allocator does so with small objects alone, and the usage checks read it (shim/layer).
template <class T>
void Free(T* object) {
  explicit_bzero(static_cast<void*>(object), sizeof(void*));
  free(object);
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

// Returns the handle of the open device through which a call is made.
inline uint32_t HandleOf(ibv_context* context) { return Of(context)->handle; }

// Calls through a context that take a handle and return nothing, or one struct.
inline int CallOnHandle(CallOp op, ibv_context* context, uint32_t handle) {
  return client::Call(op, HandleIn{handle, HandleOf(context)});
}
template <class Out>
int CallOnHandle(CallOp op, ibv_context* context, uint32_t handle, Out& out) {
  return client::Call(op, HandleIn{handle, HandleOf(context)}, out);
}

// For functions that return a pointer or -1: sets errno.
inline std::nullptr_t NullWith(int error) {
  errno = error;
  return nullptr;
}
inline int MinusOneWith(int error) {
  errno = error;
  return -1;
}
// For functions that return an errno. The real library sets errno as well.
inline int ErrnoWith(int error) {
  if (error != 0) errno = error;
  return error;
}

// Returns the ring at the end of a span, behind `before` bytes of control data. Returns an empty
// ring and sets EPROTO if the host's numbers are inconsistent.
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
  Ring ring(bytes + before, slots, slot_bytes);
  ring.RememberNumber();
  return ring;
}

// Waits until the program has acknowledged its events, as the destruction of an object requires. A
// host that has ended reports 0 events.
inline void WaitForAcks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed,
                        uint32_t reported) {
  pthread_mutex_lock(&mutex);
  while (static_cast<int32_t>(reported - completed) > 0) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

// Fills the operations of a new context.
void SetOperations(Context& context);

// Operations that inline functions of verbs.h call through a context.
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* out, size_t out_bytes);
int QueryDevice(ibv_context* context, const ibv_query_device_ex_input* input,
                ibv_device_attr_ex* out, size_t out_bytes);
ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type);
int DeallocMw(ibv_mw* mw);
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
// Sets mw.rkey after a BIND of a type 2 window was posted to `qp`, if the device does so. `rkey` is
// the request's. The caller holds the send lock of `qp`.
void SetRkeyAtBind(const ibv_qp& qp, ibv_mw& mw, uint32_t rkey);
int PollCq(ibv_cq* cq, int count, ibv_wc* out);
// Removes the completions of a QP from the queue. The host adds no more completions for this QP.
// Takes the queue's lock.
void PurgeCompletions(CompletionQueue& cq, uint32_t qpn);
int RequestNotify(ibv_cq* cq, int solicited_only);
int QueryRtValues(ibv_context* context, ibv_values_ex* values);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

// Creates a completion queue for ibv_create_cq and ibv_create_cq_ex. Returns nullptr and errno on
// failure.
CompletionQueue* CreateCompletionQueue(ibv_context* context, uint32_t entries, void* cq_context,
                                       ibv_comp_channel* channel, uint32_t vector);
// Called after a poll that found no completion. Makes copies for the host, or lets the host run.
void AfterEmptyPoll();
// Sets the reader functions of ibv_cq_ex that wc_flags requests.
void SetReaders(CompletionQueue& cq, uint64_t wc_flags);

// Creates a queue pair for ibv_create_qp and ibv_create_qp_ex. `cap` is input and output.
QueuePair* CreateQueuePair(ibv_pd* pd, const ibv_qp_init_attr& attr, ibv_qp_cap& cap);
// Sets the wr_* functions of ibv_qp_ex.
void SetBuilders(QueuePair& qp, uint64_t send_ops);

}  // namespace rdmaemu::shim

// Marks functions that this library exports to programs in C.
#define RDMAEMU_EXPORT extern "C" __attribute__((visibility("default")))
