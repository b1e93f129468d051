// Verbs of one host: devices, and the objects that programs create on them. Checks, limits and
// errno values are those of the kernel's ib_uverbs and rdma_rxe. Class Verbs owns every object of
// objects.h. The transports access the objects through VerbsDirectory.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/base/random.h"
#include "emulator/base/region_pages.h"
#include "emulator/base/result.h"
#include "emulator/base/scrambled_sequence.h"
#include "emulator/base/survivors.h"
#include "emulator/trace/trace.h"
#include "emulator/verbs/arena.h"
#include "emulator/verbs/device.h"
#include "emulator/verbs/flat_map.h"
#include "emulator/verbs/handle_table.h"
#include "emulator/verbs/multicast.h"
#include "emulator/verbs/objects.h"
#include "emulator/verbs/qp_connection.h"

namespace rdmaemu {

// The number of objects of a group (or a host), by kind.
struct ObjectCounts {
  size_t contexts = 0, pds = 0, mrs = 0, mws = 0, channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
};

// The arguments of ibv_reg_mr. `address` is the program's, and keys address the bytes from `iova`
// on.
struct MrRequest {
  Handle pd;
  int access;  // IBV_ACCESS_*
  uint64_t address, length, iova;
  RegionPages pages = RegionPages::kUnknown;
};
// The arguments of ibv_rereg_mr. `flags` (IBV_REREG_MR_CHANGE_*) selects which members count.
struct ReregRequest {
  uint32_t flags;
  Handle pd;
  int access;
  uint64_t address, length;
};
struct CqRequest {
  Handle context;
  Handle channel;  // 0: none
  uint32_t entries;
  uint32_t completion_vector;
  uint64_t cookie;
};
struct SrqRequest {
  Handle pd;
  uint32_t max_wr, max_sge, limit;
  uint64_t cookie;
};
// Side effects of a device's removal.
struct RemovalHabits {
  bool flushes;       // moves its queue pairs to ERR
  bool raises_fatal;  // raises IBV_EVENT_DEVICE_FATAL on its contexts
};
struct QpRequest {
  Handle pd;
  Handle send_cq, recv_cq;
  Handle srq;  // 0: none
  int type;    // ibv_qp_type
  bool signal_all;
  ibv_qp_cap cap;
  uint64_t cookie;
};

// Every call names the calling group. ENOENT when a handle does not exist, or belongs to another
// group or another context (SetScope). EINVAL when the handle is of another kind
// (lookup_get_idr_uobject, rdma_lookup_get_uobject). Returned pointers are valid until the object
// is destroyed.
class Verbs final : public VerbsDirectory {
 public:
  // Limits of queued events: asynchronous events of one context, and completion events of one
  // channel beyond its ring. Further events are lost.
  static constexpr size_t kMaxAsyncEvents = 4096;
  static constexpr size_t kMaxChannelOverflow = 65536;
  static constexpr uint32_t kChannelSlots = 1024;
  // Limits the contexts of one group, because each costs a descriptor on both sides.
  static constexpr size_t kMaxContexts = 1024;
  static constexpr size_t kMaxChannels = 4096;

  struct Environment {
    SharedMemory& shared_memory;
    EventCounters& counters;
    Memory& memory;
    Random& random;
    trace::Sink& trace;
    IdSpace ids = {};               // for handles and devices
    bool payload_shortcuts = true;  // GroupShare::sole_process
  };
  explicit Verbs(Environment environment);
  ~Verbs() override;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;

  // Call this before the first QP changes its state. `transport` is not owned.
  void SetTransport(TransportHooks* transport) { transport_ = transport; }
  // `door` is not owned. Without a door, every asynchronous event is queued.
  void SetAsyncEventDoor(AsyncEventDoor* door) { async_door_ = door; }

  // ---- devices
  Device& AddDevice(DeviceConfig config);
  // Removes a device. Existing objects still serve calls, as after `rdma link del` while a process
  // holds the device. No packet is sent or received any more, and no new context can open the
  // device. The profile decides whether queue pairs are flushed and contexts get
  // IBV_EVENT_DEVICE_FATAL. `habits` overrides the profile. The device is destroyed with its last
  // context.
  void RemoveDevice(Time now, Device& device, std::optional<RemovalHabits> habits = {});
  // Returns the present devices, in the order of their indices.
  std::vector<Device*> devices();
  // Returns nullptr when there is no such device, or it was removed.
  Device* DeviceByIndex(uint32_t index);
  // AddAddress gives the address the first free entry of the GID table, RemoveAddress frees its
  // entry. Contexts get one IBV_EVENT_GID_CHANGE per changed entry. ENOSPC when the table is full.
  Status AddAddress(Device& device, const HostAddress& address);
  void RemoveAddress(Device& device, const NetAddress& address);
  // ibv_query_device_ex, ibv_query_port: return the profile's values with GUIDs, state and active
  // MTU.
  ibv_device_attr_ex QueryDevice(const Device& device) const;
  ibv_port_attr QueryPort(const Device& device) const;
  // Raises PORT_ACTIVE or PORT_ERR on every context of the device when the state changes.
  void SetPortState(Time now, Device& device, ibv_port_state state);
  // Sets an entry of the port's P_Key table. Raises IBV_EVENT_PKEY_CHANGE on every context when the
  // entry changes. EINVAL when the table has no such entry.
  Status SetPkey(Device& device, uint32_t index, uint16_t pkey);
  // Returns the path of an address vector (checks of ib_init_ah_attr, RoCE). EINVAL for another
  // port, an empty destination or an index beyond the GID table. ENODATA for an empty entry of the
  // GID table (measured). Without GRH the destination is a LID. EINVAL on a port without LIDs, and
  // for a LID that is not unicast.
  Result<Path> ResolvePath(const Device& device, const ibv_ah_attr& attr) const;

  // ---- what a group shares with its host
  // Returns the group's doorbell page. The first call creates the page. ENOMEM.
  Result<Span> DoorbellSpan(GroupId group);
  // Call this only after DoorbellSpan succeeded.
  DoorbellPage& Doorbells(GroupId group);
  // Returns true when the group's queues got completions since the last call.
  bool TakeNewCompletions(GroupId group);
  QueuePair* FindByDoorbell(GroupId group, uint32_t slot);
  // Returns how many slots were ever used. Only a faulty or hostile program sets bits beyond them.
  uint32_t DoorbellSlots(GroupId group) const;
  // EINVAL when the segment does not belong to this group.
  Result<uint64_t> SegmentLength(GroupId group, SegmentId segment) const;
  // Allocates a process's ProcessPage, valid until FreeProcessPage or the group's end. ENOMEM.
  Result<Span> AllocateProcessPage(GroupId group);
  void FreeProcessPage(GroupId group, const Span& page);
  // Adds a process to the group.
  void ProcessJoined(GroupId group, ProcessId process);
  // Call this when a process has ended and its memory no longer exists.
  void ProcessEnded(GroupId group, ProcessId process);
  // Sets the owner of all objects that are created from now on.
  void SetMaker(const Maker& maker) { maker_ = maker; }
  // From now on, calls find only objects of this context. 0: all objects of the group.
  void SetScope(Handle context) { scope_ = context; }
  // Destroys the objects that no process owns any more. Transfers regions of ended processes to the
  // processes that replace them. Call this after a process of the group has ended or was added.
  void EndOrphans(Time now, GroupId group, const Survivors& survivors);
  // Destroys all objects of a group after its last process has ended: QPs first, contexts last.
  void GroupGone(Time now, GroupId group);
  ObjectCounts Counts(GroupId group) const;
  // Returns the host's objects of a kind (QueuePair, MemoryRegion, CompletionQueue), group by
  // group, in the order of their handles. Returns at most `limit` objects.
  template <class T>
  std::vector<const T*> All(size_t limit) const;
  // Returns the process that created an object. The handle must be live.
  ProcessId MakerOf(Handle handle) const { return handles_.MakerOf(handle).process; }

  // Returns the device of a handle's object, nullptr when the handle is stale or another group's.
  const Device* DeviceOfHandle(GroupId group, Handle handle) const {
    const Context* const context = handles_.ContextOf(group, handle);
    return context == nullptr ? nullptr : context->device;
  }

  // ---- contexts
  Result<Context*> Open(GroupId group, uint32_t device_index);  // ENODEV, EMFILE
  Status Close(Time now, GroupId group, Handle context);        // with all objects of the context
  Result<Context*> FindContext(GroupId group, Handle context);
  // Returns kNothingQueued when no event is pending.
  Result<AsyncEvent> TakeAsyncEvent(Time now, GroupId group, Handle context);
  // Returns true while the context and the event's object still exist.
  bool CanQueueAsync(GroupId group, Handle context, const AsyncEvent& event);
  // Queues an event that the door held. Drops it if its context or object was destroyed meanwhile.
  void QueueHeldAsync(GroupId group, Handle context, const AsyncEvent& event);
  // Raises the event on the queue pair, on its queues or on the contexts of its device, depending
  // on the event's type. Returns false when there is no such queue pair.
  bool RaiseOf(GroupId group, Handle qp, ibv_event_type type);
  // Raises the event on every object of the device that can have it. These are queue pairs,
  // completion queues, shared receive queues or contexts.
  void RaiseOnAll(const Device& device, ibv_event_type type);

  // ---- PD, MR, MW
  Result<ProtectionDomain*> AllocPd(GroupId group, Handle context);
  Status DeallocPd(GroupId group, Handle pd);  // EBUSY while in use
  // EINVAL as in ib_check_mr_access, EFAULT as in ib_umem_get, ENOMEM above the profile's max_mr.
  Result<MemoryRegion*> RegMr(GroupId group, ProcessId process, const MrRequest& request);
  // An error leaves the region unchanged. EBUSY while a window is bound.
  Result<MemoryRegion*> ReregMr(GroupId group, ProcessId process, Handle mr,
                                const ReregRequest& request);
  // Returns the order of the process's first region that contains some of the bytes. Returns
  // nothing when there is none.
  std::optional<uint32_t> RegionOrderOf(ProcessId process, const MemoryRange& range) const;
  Status DeregMr(GroupId group, Handle mr);  // EINVAL while a window is bound, as rxe
  Result<MemoryWindow*> AllocMw(GroupId group, Handle pd, int type);
  Status DeallocMw(GroupId group, Handle mw);

  // ---- CQ
  Result<CompletionChannel*> CreateChannel(GroupId group, Handle context);
  Status DestroyChannel(GroupId group, Handle channel);  // EBUSY while a CQ uses it
  // Returns the cookie of the oldest pending event, for a reader that found the ring empty. Takes
  // it from the ring, else from the overflow. kNothingQueued when there is none.
  Result<uint64_t> TakeChannelEvent(GroupId group, Handle channel);
  Result<CompletionQueue*> CreateCq(GroupId group, const CqRequest& request);
  // Moves the queue to other memory. EINVAL when more completions are queued than `entries`.
  Result<CompletionQueue*> ResizeCq(GroupId group, Handle cq, uint32_t entries);
  // Returns how many asynchronous events of the object the program has fetched. Drops events that
  // were not fetched. EBUSY while in use.
  Result<uint32_t> DestroyCq(GroupId group, Handle cq);
  // Raises the queue's event, or a part of it, for a program that has raised the other part itself
  // (ChannelControl, SendLane). EINVAL: the queue has no channel.
  Status RaiseCompletionEvent(GroupId group, Handle cq, EventPart part);
  // Moves the messages of lanes (abi/send_lane.h) to their receives and completions.
  Status CloseLanes(GroupId group, Handle cq);

  // ---- SRQ
  Result<SharedReceiveQueue*> CreateSrq(GroupId group, const SrqRequest& request);
  // `mask`: IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT. A new size moves the queue to other memory.
  Result<SharedReceiveQueue*> ModifySrq(GroupId group, Handle srq, int mask, uint32_t max_wr,
                                        uint32_t limit);
  Result<ibv_srq_attr> QuerySrq(GroupId group, Handle srq);
  Result<uint32_t> DestroySrq(GroupId group, Handle srq);

  // ---- QP
  // EOPNOTSUPP for a type other than RC, UC, UD. EINVAL above the profile's limits.
  Result<QueuePair*> CreateQp(GroupId group, const QpRequest& request);
  // EINVAL as in ib_modify_qp_is_ok and rxe_qp_chk_attr. The caller checks the range of
  // enumerations in `attr` that the mask names.
  Status ModifyQp(Time now, GroupId group, Handle qp, int mask, const ibv_qp_attr& attr);
  // For devices whose connection manager is iw_cm (siw_accept, siw_connect): moves the group's QP
  // to RTS. EINVAL when there is no QP of that number, or it has been connected before.
  Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn);
  Status ConnectQp(Time now, GroupId group, uint32_t qpn, const QpConnection& connection);
  // Moves the QP to ERR and flushes it after its connection has ended. Ignores a missing QP.
  void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn);
  // Acts as VerbsDirectory::FailQp. Ignores a missing QP.
  void FailQp(Time now, GroupId group, Handle qp);
  Result<const QueuePair*> FindQpByHandle(GroupId group, Handle qp);
  // ibv_query_qp. Its `cap` is the capacity of the rings.
  Result<ibv_qp_attr> QueryQp(GroupId group, Handle qp);
  // Returns the memory of the lane by which the QP receives or sends. ENOENT: there is none.
  Result<SegmentId> LaneOf(GroupId group, Handle qp, bool receives);
  // Return the counter that a message raises which the QP sends by its lane, or raise this counter.
  // ENOENT: there is none.
  Result<LaneCounter> LaneCounterOf(GroupId group, Handle qp);
  Status RaiseLaneEvent(GroupId group, Handle qp);
  // Acts as TransportHooks::CloseSentLane.
  Status CloseSentLane(Time now, GroupId group, Handle qp);
  // EBUSY while attached to a multicast group.
  Result<uint32_t> DestroyQp(Time now, GroupId group, Handle qp);

  // ---- AH, multicast
  Result<AddressHandle*> CreateAh(GroupId group, Handle pd, const ibv_ah_attr& attr);
  Status DestroyAh(GroupId group, Handle ah);
  // Returns the errors of MulticastGroups::Attach and Detach.
  Status AttachMcast(GroupId group, Handle qp, const ibv_gid& gid);
  Status DetachMcast(GroupId group, Handle qp, const ibv_gid& gid);
  // Records whether a device (by its index) is a member of a group. Attached QPs receive only on
  // members.
  void SetJoined(uint32_t device, const NetAddress& group, bool joined) {
    multicast_.SetJoined(device, group, joined);
  }

  // ---- VerbsDirectory

  CompletionBatch& completions() override { return completions_; }
  QueuePair* FindQp(const NetAddress& local, uint32_t qpn) override;
  bool IsLocal(const NetAddress& address) override;
  bool Carries(const NetAddress& local) const override;
  bool Carries(const QueuePair& qp) const override;
  std::vector<QueuePair*> MulticastReceivers(const NetAddress& group,
                                             const NetAddress* at) override;
  tl::expected<MemoryRef, MemoryFault> ResolveLocal(const ProtectionDomain& pd, const rxe_sge& sge,
                                                    int access) override;
  tl::expected<MemoryRef, MemoryFault> ResolveRemote(const QueuePair& qp, uint32_t rkey,
                                                     uint64_t address, uint64_t length,
                                                     int access) override;
  const MemoryRegion* FindRegion(const ProtectionDomain& pd, uint32_t key, bool is_remote) override;
  tl::expected<MemoryRef, MemoryFault> ResolveFlush(const QueuePair& qp, uint32_t rkey,
                                                    uint64_t address, uint64_t length,
                                                    bool whole_region, int access) override;
  tl::expected<void, MemoryFault> Invalidate(QueuePair& qp, uint32_t rkey) override;
  tl::expected<void, MemoryFault> BindWindow(QueuePair& qp, const rxe_send_wr& wr) override;
  std::optional<RecvWqe> TakeReceive(QueuePair& qp) override;
  std::optional<RecvWqe> PeekReceive(const QueuePair& qp, uint32_t index) override;
  bool HasReceive(const QueuePair& qp) override;
  const AddressHandle* FindAh(const QueuePair& qp, Handle ah) override;
  void FailQp(Time now, QueuePair& qp) override;
  void RaiseQp(QueuePair& qp, ibv_event_type type) override;
  void RaiseCq(CompletionQueue& cq, ibv_event_type type) override;
  void TakeFromLane(CompletionQueue& cq) override;
  void RaiseSrq(SharedReceiveQueue& srq, ibv_event_type type) override;

 private:
  // The owner of a key. Keys are unique in their upper 24 bits. Every bind changes the lower 8 bits
  // of a window's key.
  struct KeyOwner {
    MemoryRegion* region = nullptr;
    MemoryWindow* window = nullptr;
  };
  struct Group {
    explicit Group(SharedMemory& memory) : arena(memory) {}
    Arena arena;
    Span doorbells;
    std::vector<QueuePair*> by_doorbell;  // by slot; nullptr: free
    std::vector<uint32_t> free_doorbells;
    GroupShare share;
    std::set<ProcessId> processes;  // that have joined
    uint32_t qps_made = 0, mrs_made = 0;
    HandlesByKind handles;
  };

  Group& GroupOf(GroupId group);
  void Quiesce(const PayloadScope& scope) {
    if (transport_ != nullptr) transport_->Quiesce(scope);
  }
  template <class T>
  Result<T*> Find(GroupId group, Handle handle) const;
  // Assigns a handle to the object and counts the object. ENOMEM above `limit` per device, or when
  // the host has no free handle.
  template <class T>
  Result<T*> Adopt(Context& context, int64_t limit, std::unique_ptr<T> object);
  // Subtracts the object from the counts and destroys it.
  template <class T>
  void Drop(Context& context, T& object);

  // Returns the device that has the address, nullptr when there is none.
  const Device* OwnerOf(const NetAddress& address) const;
  // Rebuilds by_address_ from the GID tables.
  void ListAddresses();
  // Sets the first entry of the GID table after its address may have changed.
  void SetLinkLocalGid(Device& device);
  void SetGid(Device& device, size_t index, const NetAddress& gid);
  void SetActiveMtu(Device& device);
  void RaiseOnDevice(const Device& device, const AsyncEvent& event);
  // Calls visit(object) for each object of the kind on the device.
  template <class T, class Visit>
  void EachOn(const Device& device, Visit visit);
  size_t ContextsOf(const Device& device) const;

  void CloseContext(Time now, Context& context);
  // Calls remove(object) for each of the group's objects that has no surviving owner and no user.
  template <class T, class IsFree, class Remove>
  void EndOrphansOf(GroupId group, const Survivors& survivors, IsFree is_free, Remove remove);
  void PushAsync(Context& context, AsyncEvent event);
  void QueueAsync(Context& context, const AsyncEvent& event);
  // Drops the object's events that were not fetched.
  void ForgetAsync(Context& context, Handle object);
  void CountReported(GroupId group, const AsyncEvent& event);

  // Returns a key that a peer cannot guess. ENOMEM when half of all keys are in use.
  Result<uint32_t> NewKey(KeyOwner owner);
  Status CheckRegion(const Profile& profile, ProcessId process, int access, uint64_t address,
                     uint64_t length, RegionPages pages);
  void Unbind(MemoryWindow& window);
  tl::expected<MemoryRegion*, MemoryFault> CheckBind(const QueuePair& qp,
                                                     const MemoryWindow& window,
                                                     const rxe_send_wr& wr);
  // The memory that a remote key grants. `first` is the peer's address of its first byte, `iova` is
  // the region's.
  struct RemoteTarget {
    const MemoryRegion& region;
    uint64_t first;
    uint64_t iova;
    uint64_t length;
  };
  tl::expected<RemoteTarget, MemoryFault> FindRemote(const QueuePair& qp, uint32_t rkey,
                                                     int access);
  void RemoveMr(MemoryRegion& mr);
  void RemoveMw(MemoryWindow& mw);
  void RemoveChannel(CompletionChannel& channel);
  void RemoveCq(CompletionQueue& cq);
  void RemoveSrq(SharedReceiveQueue& srq);
  void RemoveQp(Time now, QueuePair& qp);
  void RemoveAh(AddressHandle& ah);

  // ENOMEM when all slots are in use.
  Result<uint32_t> TakeDoorbell(Group& group, QueuePair* qp);
  void FreeDoorbell(Group& group, uint32_t slot);
  Result<uint32_t> NewQpn(const Profile& profile);
  Result<std::unique_ptr<QueuePair>> NewQp(GroupId group, const QpRequest& request);
  Status MapQueues(Group& group, QueuePair& qp);
  Status CheckQpAttr(const QueuePair& qp, int mask, const ibv_qp_attr& attr) const;
  void ApplyQpAttr(QueuePair& qp, int mask, const ibv_qp_attr& attr);
  Status ModifyIwarpQp(Time now, QueuePair& qp, int mask, const ibv_qp_attr& attr);
  void SetQpState(Time now, QueuePair& qp, ibv_qp_state to);
  void FailQpsOf(Time now, const Device& device);

  Environment environment_;
  CompletionBatch completions_;
  TransportHooks* transport_ = nullptr;
  AsyncEventDoor* async_door_ = nullptr;
  Maker maker_;
  Handle scope_ = 0;
  std::map<uint32_t, Device> devices_;  // by index; a device keeps its address in memory
  uint32_t next_device_index_ = 0;
  std::unordered_map<NetAddress, Device*> by_address_;
  // Set when a device was removed, a port was set down or an address was removed. While false, the
  // host carries every packet, and Carries needs no lookup.
  bool links_may_be_down_ = false;
  HandleTable handles_;
  std::map<GroupId, std::unique_ptr<Group>> groups_;
  std::map<std::pair<uint32_t, ObjectKind>, int64_t> device_counts_;  // by device index
  FlatMap<KeyOwner> keys_;                                            // by the upper 24 bits
  FlatMap<QueuePair*> qps_;  // by QPN, which is unique in the host
  // Assigns all numbers before it repeats one, so that late packets find no QP.
  ScrambledSequence qpns_;
  uint32_t next_srq_number_ = 1;
  MulticastGroups multicast_;
};

}  // namespace rdmaemu
