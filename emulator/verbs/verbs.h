// Verbs of one host: devices and the objects that programs make on them, with the checks, limits
// and errno values of the kernel's ib_uverbs and rdma_rxe. It owns every object of objects.h;
// the transports see them through VerbsDirectory.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
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

// How many objects a group (or a host) has, by kind.
struct ObjectCounts {
  size_t contexts = 0, pds = 0, mrs = 0, mws = 0, channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
};

// What ibv_reg_mr asks for; `address` is the program's, keys name the bytes from `iova` on.
struct MrRequest {
  Handle pd;
  int access;  // IBV_ACCESS_*
  uint64_t address, length, iova;
  RegionPages pages = RegionPages::kUnknown;
};
// `pd`, `access` and the translation count as `flags` (IBV_REREG_MR_CHANGE_*) says.
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
// What a device's removal does besides taking it away.
struct RemovalHabits {
  bool flushes;       // its queue pairs go to ERR
  bool raises_fatal;  // its contexts hear IBV_EVENT_DEVICE_FATAL
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

// Every call names the group that asks. A handle that does not exist, or is of another group or
// another context (SetScope), is ENOENT; one of another kind is EINVAL (lookup_get_idr_uobject,
// rdma_lookup_get_uobject). Pointers that calls answer are valid until the object is destroyed.
class Verbs final : public VerbsDirectory {
 public:
  // Asynchronous events of one context, and completion events of one channel beyond its ring,
  // that wait for the program; further ones are lost.
  static constexpr size_t kMaxAsyncEvents = 4096;
  static constexpr size_t kMaxChannelOverflow = 65536;
  static constexpr uint32_t kChannelSlots = 1024;
  // Contexts of one group: each costs a descriptor on both sides.
  static constexpr size_t kMaxContexts = 1024;
  static constexpr size_t kMaxChannels = 4096;

  struct Environment {
    SharedMemory& shared_memory;
    EventCounters& counters;
    Memory& memory;
    Random& random;
    trace::Sink& trace;
    IdSpace ids = {};               // of handles and devices
    bool payload_shortcuts = true;  // GroupShare::sole_process
  };
  explicit Verbs(Environment environment);
  ~Verbs() override;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;

  // Must be set before the first QP changes its state; not owned.
  void SetTransport(TransportHooks* transport) { transport_ = transport; }
  // Not owned; without one every asynchronous event passes.
  void SetAsyncEventDoor(AsyncEventDoor* door) { async_door_ = door; }

  // ---- devices
  Device& AddDevice(DeviceConfig config);
  // What exists answers on, as after `rdma link del` on a process that holds the device; but no
  // packet passes any more, and nothing new opens it. Where the profile says so, its work is
  // flushed and its contexts hear IBV_EVENT_DEVICE_FATAL, or where `habits` are given, as they say.
  // The device ends with its last context.
  void RemoveDevice(Time now, Device& device, std::optional<RemovalHabits> habits = {});
  // Those that are there, in the order of their indices.
  std::vector<Device*> devices();
  // nullptr when there is none, or it was removed.
  Device* DeviceByIndex(uint32_t index);
  // The address gets the first free entry of the GID table, or loses its own. Contexts hear
  // IBV_EVENT_GID_CHANGE, one for each entry that changed. ENOSPC when the table is full.
  Status AddAddress(Device& device, const HostAddress& address);
  void RemoveAddress(Device& device, const NetAddress& address);
  // ibv_query_device_ex, ibv_query_port: the profile's values with GUIDs, state and active MTU.
  ibv_device_attr_ex QueryDevice(const Device& device) const;
  ibv_port_attr QueryPort(const Device& device) const;
  // Raises PORT_ACTIVE or PORT_ERR on every context of the device when the state changes.
  void SetPortState(Time now, Device& device, ibv_port_state state);
  // An entry of the port's P_Key table; IBV_EVENT_PKEY_CHANGE on every context when it changes.
  // EINVAL: the table has no such entry.
  Status SetPkey(Device& device, uint32_t index, uint16_t pkey);
  // Where an address vector leads (ib_init_ah_attr checks, RoCE): EINVAL without GRH, for another
  // port, or for a GID table entry or destination that is empty.
  Result<Path> ResolvePath(const Device& device, const ibv_ah_attr& attr) const;

  // ---- what a group shares with its host
  // The group's doorbells; made by the first call. ENOMEM.
  Result<Span> DoorbellSpan(GroupId group);
  // Only after DoorbellSpan succeeded.
  DoorbellPage& Doorbells(GroupId group);
  QueuePair* FindByDoorbell(GroupId group, uint32_t slot);
  // Slots that were ever given out: bits beyond them are a program's mischief.
  uint32_t DoorbellSlots(GroupId group) const;
  // EINVAL when the segment is not this group's.
  Result<uint64_t> SegmentLength(GroupId group, SegmentId segment) const;
  // Memory for the one process's ProcessPage, until FreeProcessPage or the group's end. ENOMEM.
  Result<Span> AllocateProcessPage(GroupId group);
  void FreeProcessPage(GroupId group, const Span& page);
  // A process said that it is of the group.
  void ProcessJoined(GroupId group, ProcessId process);
  // A process has ended; its memory is gone.
  void ProcessEnded(GroupId group, ProcessId process);
  // Whom the objects that are made from now on belong to.
  void SetMaker(const Maker& maker) { maker_ = maker; }
  // From now on calls find what was made through this context alone. 0: what is of the group.
  void SetScope(Handle context) { scope_ = context; }
  // Destroys what belongs to nobody any more, and gives regions of processes that have ended to
  // those that stand in for them. Call this whenever a process of the group has ended, or one was
  // added to it.
  void EndOrphans(Time now, GroupId group, const Survivors& survivors);
  // The group's last process has gone: QPs first, contexts last.
  void GroupGone(Time now, GroupId group);
  ObjectCounts Counts(GroupId group) const;

  // The device that a handle's object belongs to; nullptr when it is stale or another group's.
  const Device* DeviceOfHandle(GroupId group, Handle handle) const {
    const Context* const context = handles_.ContextOf(group, handle);
    return context == nullptr ? nullptr : context->device;
  }

  // ---- contexts
  Result<Context*> Open(GroupId group, uint32_t device_index);  // ENODEV, EMFILE
  Status Close(Time now, GroupId group, Handle context);        // with all that was made on it
  Result<Context*> FindContext(GroupId group, Handle context);
  // kNothingQueued when none is pending.
  Result<AsyncEvent> TakeAsyncEvent(Time now, GroupId group, Handle context);
  // The context and what the event is of are there still.
  bool CanQueueAsync(GroupId group, Handle context, const AsyncEvent& event);
  // Queues an event that the door kept, unless its context or object has gone meanwhile.
  void QueueHeldAsync(GroupId group, Handle context, const AsyncEvent& event);
  // Raises the event on the queue pair, on its queues or on the contexts of its device, whatever it
  // is of. False: there is no such queue pair.
  bool RaiseOf(GroupId group, Handle qp, ibv_event_type type);
  // Raises the event on all that it can be of: the queue pairs, completion queues or shared receive
  // queues on the device, or its contexts.
  void RaiseOnAll(const Device& device, ibv_event_type type);

  // ---- PD, MR, MW
  Result<ProtectionDomain*> AllocPd(GroupId group, Handle context);
  Status DeallocPd(GroupId group, Handle pd);  // EBUSY while in use
  // EINVAL as ib_check_mr_access, EFAULT as ib_umem_get, ENOMEM above the profile's max_mr.
  Result<MemoryRegion*> RegMr(GroupId group, ProcessId process, const MrRequest& request);
  // On an error the region stays as it was. EBUSY with a window bound.
  Result<MemoryRegion*> ReregMr(GroupId group, ProcessId process, Handle mr,
                                const ReregRequest& request);
  // The order of the process's first region that has some of the bytes; nothing: it has none.
  std::optional<uint32_t> RegionOrderOf(ProcessId process, const MemoryRange& range) const;
  Status DeregMr(GroupId group, Handle mr);  // EINVAL with a window bound, as rxe
  Result<MemoryWindow*> AllocMw(GroupId group, Handle pd, int type);
  Status DeallocMw(GroupId group, Handle mw);

  // ---- CQ
  Result<CompletionChannel*> CreateChannel(GroupId group, Handle context);
  Status DestroyChannel(GroupId group, Handle channel);  // EBUSY while a CQ uses it
  // The cookie of the oldest event that is neither taken nor in reach of the reader who found the
  // ring empty. kNothingQueued when there is none.
  Result<uint64_t> TakeChannelEvent(GroupId group, Handle channel);
  Result<CompletionQueue*> CreateCq(GroupId group, const CqRequest& request);
  // Moves the queue to other memory. EINVAL when fewer entries are asked for than are waiting.
  Result<CompletionQueue*> ResizeCq(GroupId group, Handle cq, uint32_t entries);
  // Answers how many asynchronous events of the object the program has fetched; those it has not
  // are dropped. EBUSY while in use.
  Result<uint32_t> DestroyCq(GroupId group, Handle cq);

  // ---- SRQ
  Result<SharedReceiveQueue*> CreateSrq(GroupId group, const SrqRequest& request);
  // `mask`: IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT. A new size moves the queue to other memory.
  Result<SharedReceiveQueue*> ModifySrq(GroupId group, Handle srq, int mask, uint32_t max_wr,
                                        uint32_t limit);
  Result<ibv_srq_attr> QuerySrq(GroupId group, Handle srq);
  Result<uint32_t> DestroySrq(GroupId group, Handle srq);

  // ---- QP
  // EOPNOTSUPP for a type other than RC, UC, UD; EINVAL above the profile's limits.
  Result<QueuePair*> CreateQp(GroupId group, const QpRequest& request);
  // EINVAL as ib_modify_qp_is_ok and rxe_qp_chk_attr. Enumerations in `attr` must be in range
  // where the mask names them.
  Status ModifyQp(Time now, GroupId group, Handle qp, int mask, const ibv_qp_attr& attr);
  // For a device whose connection manager is iw_cm (siw_accept, siw_connect): the group's QP goes
  // to RTS. EINVAL: there is none of that number, or it has been connected already.
  Status CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn);
  Status ConnectQp(Time now, GroupId group, uint32_t qpn, const QpConnection& connection);
  // Its connection has ended: the QP, if it is there still, goes to ERR and flushes.
  void DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn);
  // If it is there still, as VerbsDirectory::FailQp.
  void FailQp(Time now, GroupId group, Handle qp);
  Result<const QueuePair*> FindQpByHandle(GroupId group, Handle qp);
  // ibv_query_qp: `cap` in it is what the rings hold.
  Result<ibv_qp_attr> QueryQp(GroupId group, Handle qp);
  // EBUSY while attached to a multicast group.
  Result<uint32_t> DestroyQp(Time now, GroupId group, Handle qp);

  // ---- AH, multicast
  Result<AddressHandle*> CreateAh(GroupId group, Handle pd, const ibv_ah_attr& attr);
  Status DestroyAh(GroupId group, Handle ah);
  // Errors as MulticastGroups::Attach and Detach.
  Status AttachMcast(GroupId group, Handle qp, const ibv_gid& gid);
  Status DetachMcast(GroupId group, Handle qp, const ibv_gid& gid);
  // Whether a device (by its index) is a member of a group: attached QPs receive only then.
  void SetJoined(uint32_t device, const NetAddress& group, bool joined) {
    multicast_.SetJoined(device, group, joined);
  }

  // ---- VerbsDirectory
  QueuePair* FindQp(const NetAddress& local, uint32_t qpn) override;
  bool IsLocal(const NetAddress& address) override;
  bool Carries(const NetAddress& local) const override;
  bool Carries(const QueuePair& qp) const override;
  std::vector<QueuePair*> MulticastReceivers(const NetAddress& group,
                                             const NetAddress* at) override;
  tl::expected<MemoryRef, MemoryFault> ResolveLocal(const QueuePair& qp, const rxe_sge& sge,
                                                    int access) override;
  tl::expected<MemoryRef, MemoryFault> ResolveRemote(const QueuePair& qp, uint32_t rkey,
                                                     uint64_t address, uint64_t length,
                                                     int access) override;
  tl::expected<void, MemoryFault> Invalidate(QueuePair& qp, uint32_t rkey) override;
  tl::expected<void, MemoryFault> BindWindow(QueuePair& qp, const rxe_send_wr& wr) override;
  std::optional<RecvWqe> TakeReceive(QueuePair& qp) override;
  bool HasReceive(const QueuePair& qp) override;
  const AddressHandle* FindAh(const QueuePair& qp, Handle ah) override;
  void FailQp(Time now, QueuePair& qp) override;
  void RaiseQp(QueuePair& qp, ibv_event_type type) override;
  void RaiseCq(CompletionQueue& cq, ibv_event_type type) override;
  void RaiseSrq(SharedReceiveQueue& srq, ibv_event_type type) override;

 private:
  // Who a key belongs to. Keys are unique in their upper 24 bits; a window's lower 8 change with
  // every bind.
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
    uint32_t qps_made = 0, mrs_made = 0;
    HandlesByKind handles;
  };

  Group& GroupOf(GroupId group);
  void Quiesce(const PayloadScope& scope) {
    if (transport_ != nullptr) transport_->Quiesce(scope);
  }
  template <class T>
  Result<T*> Find(GroupId group, Handle handle) const;
  // Gives the object its handle and counts it. ENOMEM above `limit` a device or when the host has
  // no more handles.
  template <class T>
  Result<T*> Adopt(Context& context, int64_t limit, std::unique_ptr<T> object);
  // Uncounts and destroys.
  template <class T>
  void Drop(Context& context, T& object);

  // The device that has the address; nullptr when none has.
  const Device* OwnerOf(const NetAddress& address) const;
  // Looks the addresses up anew in the GID tables.
  void ListAddresses();
  // Sets the first entry of the GID table, whose address may have changed.
  void SetLinkLocalGid(Device& device);
  void SetGid(Device& device, size_t index, const NetAddress& gid);
  void SetActiveMtu(Device& device);
  void RaiseOnDevice(const Device& device, const AsyncEvent& event);
  // Calls visit(object) for each object of the kind on the device.
  template <class T, class Visit>
  void EachOn(const Device& device, Visit visit);
  size_t ContextsOf(const Device& device) const;

  void CloseContext(Time now, Context& context);
  // Calls remove(object) for each of the group's objects that has no survivor and no user.
  template <class T, class IsFree, class Remove>
  void EndOrphansOf(GroupId group, const Survivors& survivors, IsFree is_free, Remove remove);
  void PushAsync(Context& context, AsyncEvent event);
  void QueueAsync(Context& context, const AsyncEvent& event);
  // Drops the object's events that were not fetched.
  void ForgetAsync(Context& context, Handle object);
  void CountReported(GroupId group, const AsyncEvent& event);

  // A key that cannot be guessed. ENOMEM when half of all are taken.
  Result<uint32_t> NewKey(KeyOwner owner);
  Status CheckRegion(const Profile& profile, ProcessId process, int access, uint64_t address,
                     uint64_t length, RegionPages pages);
  void Unbind(MemoryWindow& window);
  tl::expected<MemoryRegion*, MemoryFault> CheckBind(const QueuePair& qp,
                                                     const MemoryWindow& window,
                                                     const rxe_send_wr& wr);
  void RemoveMr(MemoryRegion& mr);
  void RemoveMw(MemoryWindow& mw);
  void RemoveChannel(CompletionChannel& channel);
  void RemoveCq(CompletionQueue& cq);
  void RemoveSrq(SharedReceiveQueue& srq);
  void RemoveQp(Time now, QueuePair& qp);
  void RemoveAh(AddressHandle& ah);

  // ENOMEM when all slots are taken.
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
  TransportHooks* transport_ = nullptr;
  AsyncEventDoor* async_door_ = nullptr;
  Maker maker_;
  Handle scope_ = 0;
  std::map<uint32_t, Device> devices_;  // by index; their objects stay where they are
  uint32_t next_device_index_ = 0;
  std::unordered_map<NetAddress, Device*> by_address_;
  // A device was removed, a port taken down or an address taken away since the host began: until
  // then every packet passes, and nobody needs to look.
  bool links_may_be_down_ = false;
  HandleTable handles_;
  std::map<GroupId, std::unique_ptr<Group>> groups_;
  std::map<std::pair<uint32_t, ObjectKind>, int64_t> device_counts_;  // by device index
  FlatMap<KeyOwner> keys_;                                            // by the upper 24 bits
  FlatMap<QueuePair*> qps_;  // by QPN, which is unique in the host
  // Round all of their space before one comes again, so that late packets find nobody.
  ScrambledSequence qpns_;
  uint32_t next_srq_number_ = 1;
  MulticastGroups multicast_;
};

}  // namespace rdmaemu
