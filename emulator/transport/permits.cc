#include "emulator/transport/permits.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/transport/copy_waits.h"

namespace rdmaemu::transport {
namespace {

constexpr int kRemoteRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Bounds what a hostile program adds to counters at a time.
constexpr uint64_t kMaxCountedAtOnce = uint64_t{1} << 40;

uint64_t Load(uint64_t& counter) {
  return std::atomic_ref(counter).load(std::memory_order_relaxed);
}

// Moves `counted` to the program's numbers, and returns the difference.
Executed::Requests TakeNew(Executed::Requests& shared, Executed::Requests& counted) {
  const auto take = [](uint64_t& now, uint64_t& before) {
    const uint64_t to = Load(now);
    return std::min(to - std::exchange(before, to), kMaxCountedAtOnce);
  };
  return {take(shared.count, counted.count), take(shared.bytes, counted.bytes),
          take(shared.packets, counted.packets)};
}

uint32_t PsnsOf(uint64_t packets) { return static_cast<uint32_t>(packets & wire::kPsnMask); }

PermittedRegion Permitted(const MemoryRegion& region, uint32_t key, int access) {
  return {region.iova, region.user_address, region.length, key, static_cast<uint32_t>(access)};
}

// A thread that may execute a request by a permit that has ended.
struct BegunExecution {
  JobPage& page;
  bool is_recalled = false;

  bool HasEnded() { return std::atomic_ref(page.executes).load(std::memory_order_seq_cst) == 0; }
  std::optional<uint32_t> Recall() {
    if (!std::exchange(is_recalled, true)) {
      std::atomic_ref(page.recalls).fetch_add(1, std::memory_order_seq_cst);
    }
    const uint32_t thread = std::atomic_ref(page.busy).load(std::memory_order_acquire);
    if (HasEnded()) return std::nullopt;
    return thread;
  }
  // A thread outside of its system call begins no copy, because it was recalled.
  bool TakeBack() { return true; }
};

}  // namespace

bool Permits::MayGrant(const QpContext& context, const SendWqe& request) const {
  const RequesterState& s = context.requester;
  const QueuePair& qp = *context.qp;
  return environment_.permits && (request.is_read() || request.wr.opcode == IBV_WR_RDMA_WRITE) &&
         request.status == IBV_WC_SUCCESS && request.length > 0 &&
         request.length <= kMaxPermittedBytes && request.sges.size() <= 1 &&
         context.peer_is_local && qp.type == IBV_QPT_RC && qp.state() == IBV_QPS_RTS &&
         s.requests.empty() && s.next_index == qp.send_ring.Producer() &&
         s.next_psn == s.unacked_psn && s.next_psn == s.highest_psn &&
         (context.permit.is_listed || listed_.size() < kMaxPermits) &&
         !environment_.trace.wants_packets() && environment_.permits();
}

QpContext* Permits::PeerOf(const QpContext& context) const {
  const QueuePair& qp = *context.qp;
  QueuePair* const peer = environment_.verbs.FindQp(qp.path.destination, qp.attr.dest_qp_num);
  if (peer == nullptr || peer == &qp || peer->type != IBV_QPT_RC || peer->transport == nullptr ||
      peer->attr.dest_qp_num != qp.qpn) {
    return nullptr;
  }
  return static_cast<QpContext*>(peer->transport.get());
}

bool Permits::IsReady(const QpContext& context, const QpContext& peer) const {
  const ResponderState& s = peer.responder;
  const ibv_qp_state state = peer.qp->state();
  return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && environment_.verbs.Carries(*peer.qp) &&
         environment_.verbs.Carries(*context.qp) && s.message == Message::kNone &&
         s.responses.empty() && !s.receive && peer.parked[0].trains.empty() &&
         s.expected_psn == context.requester.next_psn;
}

// Returns a permit without number and index. Its pid is 0 if the program must not execute requests.
Permit Permits::PermitFor(const QpContext& context, const QpContext& peer,
                          const SendWqe& request) const {
  const QueuePair &qp = *context.qp, &answers = *peer.qp;
  Permit permit{};
  const ProcessId process = qp.share().sole_process;
  const MemoryRegion* const other =
      environment_.verbs.FindRegion(*answers.pd, request.wr.wr.rdma.rkey, /*is_remote=*/true);
  if (process == ProcessId::kNone || qp.share().jobs == nullptr || other == nullptr ||
      other->process != answers.share().sole_process || other->bound_windows != 0) {
    return {};
  }
  int rights = other->access & static_cast<int>(answers.attr.qp_access_flags) & kRemoteRights;
  if (qp.attr.max_rd_atomic == 0 || answers.attr.max_dest_rd_atomic == 0) {
    rights &= ~IBV_ACCESS_REMOTE_READ;
  }
  permit.other = Permitted(*other, request.wr.wr.rdma.rkey, rights);
  MemoryRange range{other->user_address, other->length};
  if (environment_.memory.IsShared(other->process, {&range, 1})) return {};
  if (!request.is_inline && !request.sges.empty()) {
    const uint32_t lkey = request.sges[0].lkey;
    const MemoryRegion* const own = environment_.verbs.FindRegion(*qp.pd, lkey, false);
    if (own == nullptr || own->process != process) return {};
    permit.own = Permitted(*own, lkey, own->access & IBV_ACCESS_LOCAL_WRITE);
  }
  permit.mtu_bytes = context.mtu_bytes;
  permit.pid = environment_.memory.PidFor(process, other->process);
  return permit;
}

void Permits::Grant(QpContext& context, const SendWqe& request) {
  if (!MayGrant(context, request)) return;
  QpContext* const peer = PeerOf(context);
  if (peer == nullptr || !IsReady(context, *peer)) return;
  Permit permit = PermitFor(context, *peer, request);
  if (permit.pid == 0) return;
  // Earlier completions and payloads must be visible before the results of executed requests.
  payloads_.PlaceWaiting(*peer, MemoryRange{permit.other.address, permit.other.length});
  GrantedPermit& granted = context.permit;
  if (!granted.is_listed) {
    granted.is_listed = true;
    listed_.push_back(&context);
  }
  if (++granted.last_number == 0) granted.last_number = 1;
  permit.number = granted.last_number;
  permit.index = context.requester.next_index;
  granted.is_given = true;
  context.qp->control->permit.Publish(permit);
}

void Permits::InterruptNow(QpContext& context) {
  Settle(context);
  if (std::exchange(context.permit.is_given, false)) context.qp->control->permit.Publish({});
}

void Permits::Settle() {
  for (QpContext* const context : listed_) Settle(*context);
}

// Counts as the engine would have: each WRITE has one acknowledgement, and each READ one request.
void Permits::Settle(QpContext& context) {
  Executed& shared = context.qp->control->executed;
  Executed& counted = context.permit.counted;
  const Executed::Requests writes = TakeNew(shared.writes, counted.writes);
  const Executed::Requests reads = TakeNew(shared.reads, counted.reads);
  if (writes.count == 0 && reads.count == 0) return;
  const uint64_t there = writes.packets + reads.count, back = writes.count + reads.packets;
  counters_.messages_sent += writes.count + reads.count;
  counters_.bytes_sent += writes.bytes + reads.bytes;
  counters_.local_packets += there + back;
  PortCounters& from = context.qp->device->counters;
  from.sent_pkts += there;
  from.rcvd_pkts += back;
  RequesterState& requester = context.requester;
  const uint32_t psns = PsnsOf(writes.packets + reads.packets);
  requester.next_psn = PsnAdd(requester.next_psn, psns);
  requester.unacked_psn = requester.highest_psn = requester.next_psn;
  requester.packets_without_ack = 0;
  QpContext* const peer = PeerOf(context);
  if (peer == nullptr) return;
  PortCounters& to = peer->qp->device->counters;
  to.rcvd_pkts += there;
  to.sent_pkts += back;
  ResponderState& responder = peer->responder;
  responder.expected_psn = PsnAdd(responder.expected_psn, psns);
  if (writes.count > 0) responder.ack_psn = responder.expected_psn;
  responder.msn = PsnAdd(responder.msn, PsnsOf(writes.count + reads.count));
}

void Permits::AwaitCopies(GroupShare& share) {
  if (share.jobs == nullptr) return;
  BegunExecution begun{*share.jobs};
  if (begun.HasEnded()) return;
  int looks = kMostLooks;
  (void)AwaitCopy(environment_.memory, begun, looks);
}

void Permits::EndAll() {
  if (listed_.empty()) return;
  for (QpContext* const context : listed_) context->qp->control->permit.Publish({});
  for (QpContext* const context : listed_) AwaitCopies(context->qp->share());
  for (QpContext* const context : listed_) {
    Settle(*context);
    context->permit.is_listed = context->permit.is_given = false;
  }
  listed_.clear();
}

}  // namespace rdmaemu::transport
