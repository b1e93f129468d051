// The verbs objects of a host: plain structs whose fields the transports read. Only class Verbs
// (verbs.h) creates, changes and destroys them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/abi/copy_jobs.h"
#include "emulator/abi/ring.h"
#include "emulator/abi/slab.h"
#include "emulator/base/ids.h"
#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/verbs/arena.h"
#include "emulator/verbs/completion_batch.h"
#include "emulator/verbs/device.h"
#include "emulator/verbs/payload_scope.h"
#include "emulator/verbs/profile.h"

namespace rdmaemu {

struct QueuePair;

// A program's number for an object, never 0. All objects of a host share one number space.
using Handle = uint32_t;

// The route of an address vector's packets.
struct Path {
  NetAddress source;       // one of the device's own addresses
  NetAddress destination;  // IP of the peer; a link-local GID has been converted to its address
  uint8_t source_gid_index = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
  bool by_link_local = false;  // the program named both ends by their link-local GIDs
  bool by_lid = false;         // the program named the peer by its LID, without a GRH
};

struct AsyncEvent {
  ibv_event_type type;
  uint64_t cookie;    // the object's user cookie; a port event's port number
  Handle object = 0;  // the CQ, QP or SRQ; 0: the event belongs to the device or its port
};

// A transport's state of a QP or a group. Each transport derives its own type.
struct TransportState {
  virtual ~TransportState() = default;
};

// Which slots of JobPage::lent have a QP.
struct LentSlots {
  uint32_t used = 0;         // a bit for each slot
  uint32_t next = 0;         // the slot to look at first, so that slots are reused late
  uint32_t last_number = 0;  // of LentPermit::owner, and of offered permits
};

// State that a group of processes shares with its host besides objects.
struct GroupShare {
  // The group's only process. kNone after several processes have run at the same time, and on a
  // host without payload shortcuts. The host may place or copy payloads only while it is certain
  // whose memory an address means.
  ProcessId sole_process = ProcessId::kNone;
  bool awaits_process = true;  // no process has joined since the sole process ended
  JobPage* jobs = nullptr;
  JobReference jobs_place = {};  // without a slot; another host of the same user finds `jobs` there
  LentSlots lent_slots;
  bool has_new_completions = false;  // since the host's last turn ended (abi/host_turn.h)
  std::unique_ptr<TransportState> board;
  std::vector<struct CompletionQueue*> waiting;  // the queues with has_waiting
  uint32_t vain_placing_waits = 0;               // for threads of the process (placing_patience.h)
};

// An open device (ibv_open_device).
struct Context {
  Handle handle;
  GroupId group;
  Device* device;
  CounterId async_counter;
  GroupShare* share;
  std::deque<AsyncEvent> async_events;
};

struct ProtectionDomain {
  Handle handle;
  Context* context;
  uint32_t users = 0;  // MRs, MWs, QPs, SRQs, AHs: EBUSY while above 0
};

struct MemoryRegion {
  Handle handle;
  ProtectionDomain* pd;
  ProcessId process;      // owner of the address space
  uint64_t user_address;  // address of the bytes in that process
  uint64_t iova;          // address of the bytes for keys
  uint64_t length;        // bytes; 0 allowed
  int access;             // IBV_ACCESS_*
  uint32_t lkey, rkey;
  bool remote_valid = true;  // cleared by SEND with invalidate or LOCAL_INV
  uint32_t bound_windows = 0;
  uint32_t order = 0;  // position in its group, from 1
};

struct MemoryWindow {
  Handle handle;
  ProtectionDomain* pd;
  ibv_mw_type type;
  uint32_t rkey;
  MemoryRegion* region = nullptr;  // the bound region; nullptr: unbound
  QueuePair* qp = nullptr;         // type 2: the only QP that may use the window
  uint64_t iova = 0, length = 0;
  int access = 0;
};

// A completion channel: a counter, and a ChannelControl and a ring of ChannelEntry in shared
// memory.
struct CompletionChannel {
  Handle handle;
  Context* context;
  CounterId counter;
  ChannelControl* control;
  Ring ring;
  std::deque<uint64_t> overflow;  // cookies that did not fit into the ring
  uint32_t users = 0;
  Span memory;  // ChannelControl, the ring
};

struct CompletionQueue {
  Handle handle;
  Context* context;
  CompletionChannel* channel = nullptr;
  uint64_t cookie;   // the program's pointer, returned in events
  uint32_t entries;  // entries the program can rely on; the ring may have more
  CqControl* control;
  Ring ring;
  uint32_t producer = 0;       // the host's own count; the shared one is only published
  uint32_t published = 0;      // the shared producer index
  uint32_t consumer_seen = 0;  // the program's index when the host last read it
  bool has_solicited = false;  // among the entries that are not published
  uint32_t users = 0;
  // The open lanes with messages for the queue (abi/send_lane.h), and the most messages in all of
  // them.
  struct OpenLane {
    QueuePair* qp;
    SendLane* lane;
  };
  std::vector<OpenLane> lanes;
  uint32_t lane_room = 0;
  bool is_taking = false;  // the host moves messages from the lanes to the queue

  // Appends a completion. Shows it to the program now, or with the open batch. Raises the channel's
  // event when the queue is armed for it. Returns false when the queue is full (CQ overrun). The
  // completion is then lost, IBV_EVENT_CQ_ERR has been raised, and the caller must move its QP to
  // ERR. Implemented in cq.cc, as rxe_cq_post.
  bool Push(const CqEntry& entry, bool solicited);
  // Returns true when the queue has room for a completion. Completions beside the ring
  // (CqControl::executed) count.
  bool HasRoom() {
    const auto has_room = [&] {
      return ring.usable() - ring.Distance(consumer_seen, producer) > control->CountExecuted();
    };
    if (has_room()) return true;
    consumer_seen = ring.Consumer();
    return has_room();
  }
  // Returns true when the queue has room for a completion, and for `more` after it.
  bool HasRoomFor(uint32_t more) {
    const auto has_room = [&] {
      return ring.usable() - ring.Distance(consumer_seen, producer) >= more + 2;
    };
    if (has_room()) return true;
    consumer_seen = ring.Consumer();
    return has_room();
  }
  // Returns true when the program has polled every completion.
  bool IsDrained() {
    if (producer != published) return false;
    consumer_seen = ring.Consumer();
    return producer == consumer_seen;
  }
  void Publish();
  // Call this before a completion is added. The messages in the queue's lanes precede it.
  void TakeFromLane() {
    if (lane_room != 0) TakeFromLaneNow();
  }
  void TakeFromLaneNow();
  bool Disarm(bool solicited, std::optional<uint32_t> polled);
  // The host has closed the queue's lane `closed`, to which `added` messages were added. Moves the
  // arming from the lane to the control block. Raises its event if a message should have raised it.
  void MoveArming(SendLane& closed, uint32_t added);
  CompletionBatch* batch;
  EventCounters* counters;
  struct AsyncEventRaiser* async;
  Span memory;                  // CqControl, the ring, its ReceiveSlots
  ReceiveSlot* slots;           // one per entry of the ring
  bool has_waiting = false;     // `slots` may hold payloads; set by the transport
  uint32_t async_reported = 0;  // events of this queue that the program has fetched
};

// The SGEs of one receive, stored inline so that the data path allocates no memory. Used like a
// vector.
class SgeList {
 public:
  static constexpr size_t kCapacity = 32;  // the largest max_sge of any profile

  SgeList() {}  // uninitialized storage: zeroing costs more than filling
  SgeList(const SgeList& other) { *this = other; }
  SgeList& operator=(const SgeList& other) {
    size_ = other.size_;
    for (size_t i = 0; i < size_; i++) sges_[i] = other.sges_[i];
    return *this;
  }
  // The caller checks that there is room.
  void push_back(const rxe_sge& sge) { sges_[size_++] = sge; }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const rxe_sge& operator[](size_t i) const { return sges_[i]; }
  rxe_sge& operator[](size_t i) { return sges_[i]; }
  const rxe_sge* data() const { return sges_.data(); }
  const rxe_sge* begin() const { return sges_.data(); }
  const rxe_sge* end() const { return sges_.data() + size_; }

 private:
  size_t size_ = 0;
  std::array<rxe_sge, kCapacity> sges_;
};

// A receive work request, checked and copied from shared memory.
struct RecvWqe {
  RecvWqe() {}  // uninitialized, as SgeList

  uint64_t wr_id;
  uint32_t length;  // sum of the SGEs
  SgeList sges;
};

struct SharedReceiveQueue {
  Handle handle;
  ProtectionDomain* pd;
  uint64_t cookie;
  uint32_t srq_number;
  uint32_t max_sge;
  uint32_t limit = 0;  // fewer receives raise SRQ_LIMIT once; 0: not armed
  Ring ring;
  bool error = false;
  uint32_t users = 0;
  uint32_t max_wr = 0;   // as requested
  uint32_t entries = 0;  // receives that fit into the queue; its ring may be larger
  Span memory;           // the ring
  uint32_t async_reported = 0;
};

struct AddressHandle {
  Handle handle;
  ProtectionDomain* pd;
  ibv_ah_attr attr;
  Path path;
};

struct QueuePair {
  Handle handle;
  uint32_t qpn;
  uint32_t order = 0;  // position in its group, from 1
  ibv_qp_type type;
  Device* device;
  ProtectionDomain* pd;
  CompletionQueue* send_cq;
  CompletionQueue* recv_cq;
  SharedReceiveQueue* srq = nullptr;
  uint64_t cookie;
  ibv_qp_cap cap;    // as requested; the rings are rounded up from it
  bool signal_all;   // sq_sig_all
  ibv_qp_attr attr;  // current attributes, as ibv_query_qp returns; attr.qp_state is the state
  Path path;         // RC, UC: valid from RTR on
  QpControl* control;
  uint32_t send_entries = 0, recv_entries = 0;  // capacity of the queues; the rings may be larger
  Ring send_ring;                               // SendEntry
  Ring recv_ring;                               // rxe_recv_wqe; empty when the QP has an SRQ
  uint32_t doorbell;                            // slot in its group's DoorbellPage
  Span send_memory;                             // QpControl, send_ring
  Span recv_memory;                             // recv_ring; length 0 with an SRQ
  uint32_t async_reported = 0;
  uint32_t multicast_groups = 0;
  uint32_t bound_windows = 0;  // type 2
  std::unique_ptr<TransportState> transport;

  ibv_qp_state state() const { return attr.qp_state; }
  GroupId group() const { return pd->context->group; }
  GroupShare& share() const { return *pd->context->share; }
};

// "RESET", "INIT", ..., as in traces.
const char* StateName(ibv_qp_state state);

// Return the context through which an object was created, and that context's device.
inline const Context& ContextOf(const Context& context) { return context; }
template <class OfAPd>
requires requires(const OfAPd& object) { object.pd; }
const Context& ContextOf(const OfAPd& object) { return *object.pd->context; }
template <class OfAContext>
requires requires(const OfAContext& object) { object.context; }
const Context& ContextOf(const OfAContext& object) { return *object.context; }
template <class Object>
const Device* DeviceOf(const Object& object) {
  return ContextOf(object).device;
}

// The fault rules' interface to asynchronous events. Called for each event before it is queued.
struct AsyncEventDoor {
  virtual ~AsyncEventDoor() = default;
  // Returns false when the event must not be queued. May change the event.
  virtual bool Passes(Context& context, AsyncEvent& event) = 0;
};

// Raises asynchronous events on the context of an object. Implemented by Verbs.
struct AsyncEventRaiser {
  virtual ~AsyncEventRaiser() = default;
  virtual void RaiseQp(QueuePair& qp, ibv_event_type type) = 0;
  virtual void RaiseCq(CompletionQueue& cq, ibv_event_type type) = 0;
  // Moves the messages of the queue's lane to the queue (TransportHooks::TakeFromLane).
  virtual void TakeFromLane(CompletionQueue& cq) = 0;
  virtual void RaiseSrq(SharedReceiveQueue& srq, ibv_event_type type) = 0;
};

// Notifications from Verbs to the transports. Implemented by transport::Engine.
// The counter of a completion channel of this host, or a duplicate of another host's.
struct LaneCounter {
  CounterId here = CounterId::kNone;
  std::shared_ptr<const int> there;
};

struct TransportHooks {
  virtual ~TransportHooks() = default;
  // Called after ibv_modify_qp or an error changed the state. `from` is the previous state.
  // Entering ERR flushes, entering RESET discards everything, entering SQD drains.
  virtual void QpStateChanged(Time now, QueuePair& qp, ibv_qp_state from) = 0;
  // Called after attributes changed without a new state (RTS to RTS: min_rnr_timer, alternate path,
  // ...).
  virtual void QpAttributesChanged(Time now, QueuePair& qp, int attr_mask) = 0;
  virtual void QpDestroyed(Time now, QueuePair& qp) = 0;
  // Moves every payload of the scope to program memory. Ends all copies on the host's behalf from
  // or to the scope's memory. Call this before any step that moves or frees memory, or that revokes
  // the right to it.
  virtual void Quiesce(const PayloadScope& scope) = 0;
  // Moves the messages of lanes to their receives and completions (abi/send_lane.h).
  virtual void CloseLanes() {}
  // Does the same for one CQ, if its lane has messages or leaves no room for a completion.
  virtual void TakeFromLane(CompletionQueue&) {}
  // Returns the shared memory by which the QP receives or sends small messages without this host
  // (abi/send_lane.h). SegmentId::kNone: there is none.
  virtual SegmentId LaneOf(QueuePair&, bool /*receives*/) { return SegmentId::kNone; }
  // Returns the counter that a message raises which the QP sends by its lane.
  virtual LaneCounter LaneCounterOf(QueuePair&) { return {}; }
  virtual void RaiseLaneEvent(QueuePair&) {}
  // Closes the lane by which the QP sends, also at the receiver's host.
  virtual void CloseSentLane(Time, QueuePair&) {}
  // Sets sq_psn and rq_psn to the next PSNs that the QP sends and awaits.
  virtual void ReadPsns(QueuePair&, ibv_qp_attr&) {}
};

// Why a key did not grant access to bytes. The transports convert it to a completion status or NAK.
enum class MemoryFault : uint8_t {
  kKey,     // no such key, another PD, invalidated, a window of another QP
  kAccess,  // the key does not grant this right
  kRange,   // out of the region's bounds
};
// Bytes of a process to which a key granted access.
struct MemoryRef {
  ProcessId process;
  MemoryRange range;
};

// The verbs objects that transports look up and change. Implemented by Verbs.
class VerbsDirectory : public AsyncEventRaiser {
 public:
  // The completions that the transport has not shown to programs yet.
  virtual CompletionBatch& completions() = 0;
  // Returns the QP with this number on the device that owns the address, nullptr when there is
  // none.
  virtual QueuePair* FindQp(const NetAddress& local, uint32_t qpn) = 0;
  // True when packets to the address stay in this host.
  virtual bool IsLocal(const NetAddress& address) = 0;
  // Returns false when no packet can be sent or received at this address of the host. In that case
  // its device was removed, its port is down, or no device has the address any more.
  virtual bool Carries(const NetAddress& local) const = 0;
  // The same for a QP's device and the local address of its connection.
  virtual bool Carries(const QueuePair& qp) const = 0;
  // Returns the QPs attached to a group, on devices that have joined the group. `at` selects the
  // device with that address. nullptr selects all devices, for a sender on this host.
  virtual std::vector<QueuePair*> MulticastReceivers(const NetAddress& group,
                                                     const NetAddress* at) = 0;
  // `pd` is the domain that the region must belong to. `access` is the operation's need: 0 for a
  // gather, IBV_ACCESS_LOCAL_WRITE for a scatter.
  virtual tl::expected<MemoryRef, MemoryFault> ResolveLocal(const ProtectionDomain& pd,
                                                            const rxe_sge& sge, int access) = 0;
  // Looks a key up among regions and windows. `access` is IBV_ACCESS_REMOTE_READ, _WRITE or
  // _ATOMIC. A length of 0 is always granted (measured: zero-byte operations with a bad rkey
  // succeed).
  virtual tl::expected<MemoryRef, MemoryFault> ResolveRemote(const QueuePair& qp, uint32_t rkey,
                                                             uint64_t address, uint64_t length,
                                                             int access) = 0;
  // Returns the region of a remote or local key. nullptr: there is none in this domain, it is
  // invalidated, or the key is a window's.
  virtual const MemoryRegion* FindRegion(const ProtectionDomain& pd, uint32_t key,
                                         bool is_remote) = 0;
  // The same for FLUSH. `access` are rights of kAccessFlush, or 0. The key must be valid also for a
  // length of 0. A whole region has no range to check.
  virtual tl::expected<MemoryRef, MemoryFault> ResolveFlush(const QueuePair& qp, uint32_t rkey,
                                                            uint64_t address, uint64_t length,
                                                            bool whole_region, int access) = 0;
  // Executes SEND with invalidate and LOCAL_INV. kKey when the key does not belong to this PD (and
  // QP).
  virtual tl::expected<void, MemoryFault> Invalidate(QueuePair& qp, uint32_t rkey) = 0;
  // Executes BIND_MW from a send WQE (rxe_send_wr::wr.mw).
  virtual tl::expected<void, MemoryFault> BindWindow(QueuePair& qp, const rxe_send_wr& wr) = 0;
  // Takes the next receive of the QP's own queue or its SRQ out of shared memory. Returns nothing
  // when there is none (RNR). A malformed entry becomes a receive with length 0 and a bad key.
  virtual std::optional<RecvWqe> TakeReceive(QueuePair& qp) = 0;
  // Returns the receive in slot `index` of the QP's own receive ring, as TakeReceive will return it
  // later. Returns nothing when that slot holds no posted receive, and for an SRQ, whose receives
  // other QPs may take.
  virtual std::optional<RecvWqe> PeekReceive(const QueuePair& qp, uint32_t index) = 0;
  virtual bool HasReceive(const QueuePair& qp) = 0;
  // Returns the address handle of a UD send, nullptr when it does not belong to the QP's PD.
  virtual const AddressHandle* FindAh(const QueuePair& qp, Handle ah) = 0;
  // Moves the QP to ERR because of an error (calls TransportHooks::QpStateChanged).
  virtual void FailQp(Time now, QueuePair& qp) = 0;
};

}  // namespace rdmaemu
