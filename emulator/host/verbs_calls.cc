#include "emulator/host/verbs_calls.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace rdmaemu {
namespace {

// The calling process and the time of the call.
struct Caller {
  Verbs& verbs;
  Time now;
  GroupId group;
  ProcessId process;
};

// A handler gets its In unchecked and a zeroed Out. It returns an errno or 0, and appends
// descriptors for the reply.
using Descriptors = std::vector<ReplyDescriptor>;

int ErrorOf(const Status& status) { return status ? 0 : status.error().code; }

template <class T>
int ErrorOf(const Result<T>& result) {
  return result ? 0 : result.error().code;
}

void CopyText(std::string_view text, std::span<char> to) { text.copy(to.data(), to.size() - 1); }

// ---- devices

int ListDevices(const Caller& caller, const ListDevicesIn&, ListDevicesOut& out, Descriptors&) {
  const std::vector<Device*> devices = caller.verbs.devices();
  out.count = static_cast<uint32_t>(std::min<size_t>(devices.size(), kMaxDevices));
  for (uint32_t i = 0; i < out.count; i++) {
    const Device& device = *devices[i];
    DeviceEntry& entry = out.devices[i];
    CopyText(device.name, entry.name);
    CopyText("uverbs" + std::to_string(device.index & IdSpace::Part(0).last()), entry.dev_name);
    CopyText(device.profile.name, entry.profile);
    entry.node_guid = device.node_guid;
    entry.index = device.index;
    entry.node_type = device.profile.node_type;
    entry.transport_type = device.profile.transport;
  }
  return 0;
}

int OpenDevice(const Caller& caller, const OpenDeviceIn& in, OpenDeviceOut& out,
               Descriptors& descriptors) {
  const Result<Context*> context = caller.verbs.Open(caller.group, in.index);
  if (!context) return ErrorOf(context);
  const Profile& profile = (*context)->device->profile;
  out.context = (*context)->handle;
  out.completion_vectors = profile.completion_vectors;
  out.max_inline_bytes = profile.max_inline_bytes;
  if (!profile.serves_immediate_data) out.missing |= kMissingImmediateData;
  if (!profile.serves_extended_calls) out.missing |= kMissingExtendedCalls;
  if (profile.device.orig_attr.atomic_cap == IBV_ATOMIC_NONE) out.missing |= kMissingAtomics;
  if (profile.device.orig_attr.max_mw == 0) out.missing |= kMissingWindows;
  if (profile.refuses_receives_in_reset) out.missing |= kMissingReceivesInReset;
  if (!profile.completes_misaligned_atomics) out.missing |= kMissingMisalignedAtomics;
  if (!profile.serves_flushes()) out.missing |= kMissingFlushes;
  if (!profile.serves_atomic_writes() && !profile.builds_atomic_writes)
    out.missing |= kMissingAtomicWrites;
  if (!profile.purges_completions) out.missing |= kMissingPurge;
  if (!profile.accepts_early_sends) out.missing |= kMissingEarlySends;
  if (!profile.sets_rkey_at_bind) out.missing |= kMissingRkeyAtBind;
  out.max_read_sges = static_cast<uint32_t>(profile.device.orig_attr.max_sge_rd);
  out.clock_khz = static_cast<uint32_t>(profile.device.hca_core_clock);
  out.clock_mask = profile.device.completion_timestamp_mask;
  descriptors.push_back((*context)->async_counter);
  return 0;
}

int CloseDevice(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.Close(caller.now, caller.group, in.handle));
}

int QueryDevice(const Caller& caller, const HandleIn& in, QueryDeviceOut& out, Descriptors&) {
  const Result<Context*> context = caller.verbs.FindContext(caller.group, in.handle);
  if (!context) return ErrorOf(context);
  out.attr = caller.verbs.QueryDevice(*(*context)->device);
  return 0;
}

int QueryClock(const Caller& caller, const HandleIn& in, QueryClockOut& out, Descriptors&) {
  const Result<Context*> context = caller.verbs.FindContext(caller.group, in.handle);
  if (!context) return ErrorOf(context);
  if ((*context)->device->profile.device.hca_core_clock == 0) return EOPNOTSUPP;
  out.now_ns = static_cast<uint64_t>(caller.now.time_since_epoch().count());
  return 0;
}

// Returns the device of a context, EINVAL when the device lacks the port.
Result<Device*> DeviceOfPort(const Caller& caller, uint32_t handle, uint32_t port) {
  const Result<Context*> context = caller.verbs.FindContext(caller.group, handle);
  if (!context) return tl::make_unexpected(context.error());
  if (port != Device::kPort) return Fail(EINVAL);
  return (*context)->device;
}

int QueryPort(const Caller& caller, const QueryPortIn& in, QueryPortOut& out, Descriptors&) {
  const Result<Device*> device = DeviceOfPort(caller, in.context, in.port);
  if (!device) return ErrorOf(device);
  out.attr = caller.verbs.QueryPort(**device);
  return 0;
}

int QueryGids(const Caller& caller, const QueryGidsIn& in, QueryGidsOut& out, Descriptors&) {
  const Result<Device*> device = DeviceOfPort(caller, in.context, in.port);
  if (!device) return ErrorOf(device);
  const auto table = static_cast<uint32_t>((*device)->profile.port.gid_tbl_len);
  if (in.first >= table || in.count > kMaxGidsPerCall) return EINVAL;
  out.count = std::min(in.count, table - in.first);
  if (!(*device)->profile.has_ip_gids) {
    // An RNIC's only GID is its MAC (siw_query_gid). Its type is none of RoCE's.
    out.entries[0].port_num = in.port;
    out.entries[0].gid = MacGidOf((*device)->node_guid);
    return 0;
  }
  for (uint32_t i = 0; i < out.count; i++) {
    const uint32_t index = in.first + i;
    ibv_gid_entry& entry = out.entries[i];
    entry.gid_index = index;
    entry.port_num = in.port;
    if (index >= (*device)->gids.size() || (*device)->gids[index].IsZero()) continue;
    entry.gid = (*device)->gids[index].ToGid();
    entry.gid_type = (*device)->has_lids() ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
  }
  return 0;
}

// An index beyond the table is ENOENT, because sysfs, which the library reads, has no such file
// (measured).
int QueryPkey(const Caller& caller, const QueryPkeyIn& in, QueryPkeyOut& out, Descriptors&) {
  const Result<Device*> device = DeviceOfPort(caller, in.context, in.port);
  if (!device) return ErrorOf(device);
  const std::vector<uint16_t>& pkeys = (*device)->pkeys;
  if (in.index < 0 || static_cast<size_t>(in.index) >= pkeys.size()) return ENOENT;
  out.pkey_be = htons(pkeys[static_cast<size_t>(in.index)]);
  return 0;
}

int GetAsyncEvent(const Caller& caller, const HandleIn& in, GetAsyncEventOut& out, Descriptors&) {
  const auto event = caller.verbs.TakeAsyncEvent(caller.now, caller.group, in.handle);
  if (!event) return ErrorOf(event);
  out.type = event->type;
  out.cookie = event->cookie;
  return 0;
}

// ---- memory

int AllocPd(const Caller& caller, const AllocPdIn& in, HandleOut& out, Descriptors&) {
  const auto pd = caller.verbs.AllocPd(caller.group, in.context);
  if (pd) out.handle = (*pd)->handle;
  return ErrorOf(pd);
}

int DeallocPd(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DeallocPd(caller.group, in.handle));
}

int FillMr(const Result<MemoryRegion*>& mr, MrOut& out) {
  if (!mr) return ErrorOf(mr);
  out.handle = (*mr)->handle;
  out.lkey = (*mr)->lkey;
  out.rkey = (*mr)->rkey;
  return 0;
}

int RegMr(const Caller& caller, const RegMrIn& in, MrOut& out, Descriptors&) {
  return FillMr(caller.verbs.RegMr(caller.group, caller.process,
                                   {in.pd, in.access, in.address, in.length, in.iova, in.pages}),
                out);
}

int ReregMr(const Caller& caller, const ReregMrIn& in, MrOut& out, Descriptors&) {
  return FillMr(caller.verbs.ReregMr(caller.group, caller.process, in.handle,
                                     {in.flags, in.pd, in.access, in.address, in.length}),
                out);
}

int DeregMr(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DeregMr(caller.group, in.handle));
}

int AllocMw(const Caller& caller, const AllocMwIn& in, MwOut& out, Descriptors&) {
  const auto mw = caller.verbs.AllocMw(caller.group, in.pd, in.type);
  if (!mw) return ErrorOf(mw);
  out.handle = (*mw)->handle;
  out.rkey = (*mw)->rkey;
  return 0;
}

int DeallocMw(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DeallocMw(caller.group, in.handle));
}

// ---- completion

int CreateChannel(const Caller& caller, const HandleIn& in, CreateChannelOut& out,
                  Descriptors& descriptors) {
  const auto channel = caller.verbs.CreateChannel(caller.group, in.handle);
  if (!channel) return ErrorOf(channel);
  out.handle = (*channel)->handle;
  out.slots = Verbs::kChannelSlots;
  out.ring = (*channel)->memory;
  descriptors.push_back((*channel)->counter);
  return 0;
}

int DestroyChannel(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DestroyChannel(caller.group, in.handle));
}

int TakeChannelOverflow(const Caller& caller, const HandleIn& in, TakeChannelOverflowOut& out,
                        Descriptors&) {
  const Result<uint64_t> cookie = caller.verbs.TakeChannelEvent(caller.group, in.handle);
  if (cookie) out.cq_cookie = *cookie;
  return ErrorOf(cookie);
}

int FillCq(const Result<CompletionQueue*>& cq, CqOut& out) {
  if (!cq) return ErrorOf(cq);
  out.handle = (*cq)->handle;
  out.entries = (*cq)->entries;
  out.slots = (*cq)->ring.usable() + 1;
  out.queue = (*cq)->memory;
  return 0;
}

int CreateCq(const Caller& caller, const CreateCqIn& in, CqOut& out, Descriptors&) {
  return FillCq(caller.verbs.CreateCq(caller.group, {in.context, in.channel, in.entries,
                                                     in.completion_vector, in.cookie}),
                out);
}

int ResizeCq(const Caller& caller, const ResizeCqIn& in, CqOut& out, Descriptors&) {
  return FillCq(caller.verbs.ResizeCq(caller.group, in.handle, in.entries), out);
}

int RaiseCq(const Caller& caller, const RaiseCqIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.RaiseCompletionEvent(caller.group, in.handle, in.part));
}

int OpenLane(const Caller& caller, const OpenLaneIn& in, OpenLaneOut& out,
             Descriptors& descriptors) {
  const Result<SegmentId> lane = caller.verbs.LaneOf(caller.group, in.handle, in.receives != 0);
  if (!lane) return ErrorOf(lane);
  out.lane = static_cast<uint32_t>(*lane);
  descriptors.push_back(*lane);
  return 0;
}

int OpenLaneCounter(const Caller& caller, const HandleIn& in, Nothing&, Descriptors& descriptors) {
  const Result<LaneCounter> counter = caller.verbs.LaneCounterOf(caller.group, in.handle);
  if (!counter) return ErrorOf(counter);
  descriptors.push_back(counter->there != nullptr ? ReplyDescriptor(counter->there)
                                                  : ReplyDescriptor(counter->here));
  return 0;
}

int CloseSentLane(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.CloseSentLane(caller.now, caller.group, in.handle));
}

int RaiseLaneEvent(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.RaiseLaneEvent(caller.group, in.handle));
}

int CloseLanes(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.CloseLanes(caller.group, in.handle));
}

int DestroyCq(const Caller& caller, const HandleIn& in, DestroyCqOut& out, Descriptors&) {
  const Result<uint32_t> reported = caller.verbs.DestroyCq(caller.group, in.handle);
  if (reported) out.async_events_reported = *reported;
  return ErrorOf(reported);
}

// ---- queues

int FillSrq(const Result<SharedReceiveQueue*>& srq, SrqOut& out) {
  if (!srq) return ErrorOf(srq);
  const Ring& ring = (*srq)->ring;
  out.handle = (*srq)->handle;
  out.srq_number = (*srq)->srq_number;
  out.max_wr = (*srq)->max_wr;
  out.max_sge = (*srq)->max_sge;
  out.slots = ring.usable() + 1;
  out.slot_bytes = ring.slot_bytes();
  out.entries = (*srq)->entries;
  out.queue = (*srq)->memory;
  return 0;
}

int CreateSrq(const Caller& caller, const CreateSrqIn& in, SrqOut& out, Descriptors&) {
  return FillSrq(
      caller.verbs.CreateSrq(caller.group, {in.pd, in.max_wr, in.max_sge, in.limit, in.cookie}),
      out);
}

int ModifySrq(const Caller& caller, const ModifySrqIn& in, SrqOut& out, Descriptors&) {
  return FillSrq(caller.verbs.ModifySrq(caller.group, in.handle, in.mask, in.max_wr, in.limit),
                 out);
}

int QuerySrq(const Caller& caller, const HandleIn& in, QuerySrqOut& out, Descriptors&) {
  const Result<ibv_srq_attr> attr = caller.verbs.QuerySrq(caller.group, in.handle);
  if (attr) out.attr = *attr;
  return ErrorOf(attr);
}

int DestroySrq(const Caller& caller, const HandleIn& in, DestroyOut& out, Descriptors&) {
  const Result<uint32_t> reported = caller.verbs.DestroySrq(caller.group, in.handle);
  if (reported) out.async_events_reported = *reported;
  return ErrorOf(reported);
}

int CreateQp(const Caller& caller, const CreateQpIn& in, CreateQpOut& out, Descriptors&) {
  const Result<QueuePair*> made = caller.verbs.CreateQp(
      caller.group,
      {in.pd, in.send_cq, in.recv_cq, in.srq, in.type, in.signal_all != 0, in.cap, in.cookie});
  if (!made) return ErrorOf(made);
  const QueuePair& qp = **made;
  out.handle = qp.handle;
  out.qpn = qp.qpn;
  out.doorbell = qp.doorbell;
  out.cap = qp.cap;
  out.send_entries = qp.send_entries;
  out.recv_entries = qp.recv_entries;
  out.send_slots = qp.send_ring.usable() + 1;
  out.send_slot_bytes = qp.send_ring.slot_bytes();
  out.send_queue = qp.send_memory;
  if (qp.srq == nullptr) {
    out.recv_slots = qp.recv_ring.usable() + 1;
    out.recv_slot_bytes = qp.recv_ring.slot_bytes();
    out.recv_queue = qp.recv_memory;
  }
  return 0;
}

// Checks the values of enumerations as bytes, because code must not read an out-of-range value as
// the enumeration's type. Returns false when the mask selects such a value. Replaces such values
// that the mask does not select by a harmless value.
bool SaneEnumerations(ModifyQpIn& in) {
  const auto sane = [&](int bit, auto& field, int least, int most) {
    int value;
    static_assert(sizeof field == sizeof value);
    std::memcpy(&value, &field, sizeof value);
    if (value >= least && value <= most) return true;
    std::memcpy(&field, &least, sizeof least);
    return (in.mask & bit) == 0;
  };
  return sane(IBV_QP_STATE, in.attr.qp_state, IBV_QPS_RESET, IBV_QPS_ERR) &&
         sane(IBV_QP_CUR_STATE, in.attr.cur_qp_state, IBV_QPS_RESET, IBV_QPS_ERR) &&
         sane(IBV_QP_PATH_MTU, in.attr.path_mtu, IBV_MTU_256, IBV_MTU_4096) &&
         sane(IBV_QP_PATH_MIG_STATE, in.attr.path_mig_state, IBV_MIG_MIGRATED, IBV_MIG_ARMED);
}

int ModifyQp(const Caller& caller, const ModifyQpIn& asked, Nothing&, Descriptors&) {
  ModifyQpIn in = asked;
  if (!SaneEnumerations(in)) return EINVAL;
  return ErrorOf(caller.verbs.ModifyQp(caller.now, caller.group, in.handle, in.mask, in.attr));
}

int QueryQp(const Caller& caller, const HandleIn& in, QueryQpOut& out, Descriptors&) {
  const auto qp = caller.verbs.FindQpByHandle(caller.group, in.handle);
  const auto attr = caller.verbs.QueryQp(caller.group, in.handle);
  if (!qp) return ErrorOf(qp);
  if (!attr) return ErrorOf(attr);
  out.attr = *attr;
  out.cap = attr->cap;
  out.signal_all = (*qp)->signal_all ? 1 : 0;
  return 0;
}

int DestroyQp(const Caller& caller, const HandleIn& in, DestroyOut& out, Descriptors&) {
  const Result<uint32_t> reported = caller.verbs.DestroyQp(caller.now, caller.group, in.handle);
  if (reported) out.async_events_reported = *reported;
  return ErrorOf(reported);
}

// ---- AH, multicast

int CreateAh(const Caller& caller, const CreateAhIn& in, HandleOut& out, Descriptors&) {
  const auto ah = caller.verbs.CreateAh(caller.group, in.pd, in.attr);
  if (ah) out.handle = (*ah)->handle;
  return ErrorOf(ah);
}

int DestroyAh(const Caller& caller, const HandleIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DestroyAh(caller.group, in.handle));
}

int AttachMcast(const Caller& caller, const McastIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.AttachMcast(caller.group, in.qp, in.gid));
}

int DetachMcast(const Caller& caller, const McastIn& in, Nothing&, Descriptors&) {
  return ErrorOf(caller.verbs.DetachMcast(caller.group, in.qp, in.gid));
}

// ---- the table

template <auto kHandler>
struct Call;
template <class In, class Out, int (*kHandler)(const Caller&, const In&, Out&, Descriptors&)>
struct Call<kHandler> {
  template <class TableIn, class TableOut, uint32_t kTraits>
  static Reply Do(const Caller& caller, std::span<const std::byte> bytes) {
    static_assert(std::is_same_v<In, TableIn> && std::is_same_v<Out, TableOut>);
    Reply reply;
    In in{};
    const bool nothing = (kTraits & kInMayBeEmpty) != 0 && bytes.empty();
    if (bytes.size() != sizeof in && !nothing) {
      reply.error = EINVAL;
      return reply;
    }
    if (!nothing) std::memcpy(static_cast<void*>(&in), bytes.data(), sizeof in);
    if constexpr (requires { in.context; }) caller.verbs.SetScope(in.context);
    // Allocate the reply as zeroed bytes, so that every byte that a handler does not write is 0,
    // including padding.
    reply.body.resize(sizeof(Out));
    reply.error =
        kHandler(caller, in, *reinterpret_cast<Out*>(reply.body.data()), reply.descriptors);
    caller.verbs.SetScope(0);
    if (reply.error != 0 || std::is_same_v<Out, Nothing>) reply.body.clear();
    return reply;
  }
};

// The handlers in the order of the call numbers, which index this table.
constexpr Reply (*kHandlers[])(const Caller&, std::span<const std::byte>) = {
#define RDMAEMU_HANDLER(name, In, Out, about, route, traits) Call<name>::Do<In, Out, traits>,
    RDMAEMU_VERBS_CALLS(RDMAEMU_HANDLER)
#undef RDMAEMU_HANDLER
};

}  // namespace

Reply DispatchVerbs(Verbs& verbs, Time now, GroupId group, ProcessId process, CallOp op,
                    std::span<const std::byte> in) {
  const size_t index = static_cast<size_t>(op) - static_cast<size_t>(CallOp::kListDevices);
  if (index >= std::size(kHandlers)) {  // also for an op below the first
    Reply reply;
    reply.error = ENOSYS;
    return reply;
  }
  return kHandlers[index]({verbs, now, group, process}, in);
}

}  // namespace rdmaemu
