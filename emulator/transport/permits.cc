#include "emulator/transport/permits.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/transport/executions.h"

namespace rdmaemu::transport {
namespace {

constexpr int kRemoteRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Returns which requests the QP may send.
int RightsOf(const QueuePair& qp) {
  return qp.attr.max_rd_atomic == 0 ? IBV_ACCESS_REMOTE_WRITE : kRemoteRights;
}

static_assert(JobPage::kLentPermits == 32, "the bits of LentSlots::used");

// Gives the QP a slot for permits of other hosts. Returns false if there is none.
bool TakeSlot(GroupShare& share, GrantedPermit& granted) {
  LentSlots& slots = share.lent_slots;
  if (slots.used == UINT32_MAX) return false;
  const auto next = [&] { return slots.next = (slots.next + 1) % JobPage::kLentPermits; };
  while ((slots.used >> slots.next & 1) != 0) next();
  slots.used |= uint32_t{1} << slots.next;
  granted.slot = slots.next + 1;
  granted.owner = NextPermitNumber(slots.last_number);
  std::atomic_ref(share.jobs->lent[slots.next].owner)
      .store(granted.owner, std::memory_order_release);
  next();
  return true;
}

}  // namespace

uint32_t NextPermitNumber(uint32_t& last) {
  if (++last == 0) last = 1;
  return last;
}

PermittedRegion Permitted(const MemoryRegion& region, uint32_t key, int access) {
  return {region.iova, region.user_address, region.length, key, static_cast<uint32_t>(access)};
}

bool IsIdleAfter(const QpContext& context, size_t requests) {
  const RequesterState& s = context.requester;
  const QueuePair& qp = *context.qp;
  return qp.type == IBV_QPT_RC && qp.state() == IBV_QPS_RTS && s.requests.size() == requests &&
         s.next_index == qp.send_ring.Producer() && s.next_psn == s.unacked_psn &&
         s.next_psn == s.highest_psn;
}

bool Permits::MayGrant(const QpContext& context, const SendWqe& request) const {
  return environment_.permits && (request.is_read() || request.wr.opcode == IBV_WR_RDMA_WRITE) &&
         request.status == IBV_WC_SUCCESS && request.length > 0 &&
         request.length <= kMaxPermittedBytes && request.sges.size() <= 1 &&
         IsIdleAfter(context, 0) && (context.permit.is_listed || listed_.size() < kMaxPermits) &&
         !environment_.trace.wants_packets() && environment_.permits();
}

QpContext* LocalPeerOf(const Engine::Environment& environment, const QpContext& context) {
  const QueuePair& qp = *context.qp;
  QueuePair* const peer = environment.verbs.FindQp(qp.path.destination, qp.attr.dest_qp_num);
  if (peer == nullptr || peer == &qp || peer->type != IBV_QPT_RC || peer->transport == nullptr ||
      peer->attr.dest_qp_num != qp.qpn) {
    return nullptr;
  }
  return static_cast<QpContext*>(peer->transport.get());
}

bool IsReady(const Engine::Environment& environment, const QpContext& context,
             const QpContext& peer) {
  return AwaitsNext(peer, context) && environment.verbs.Carries(*peer.qp) &&
         environment.verbs.Carries(*context.qp);
}

std::optional<PermittedRegion> RegionToPermit(const Engine::Environment& environment,
                                              const QueuePair& qp, uint32_t rkey, int rights) {
  const MemoryRegion* const region = environment.verbs.FindRegion(*qp.pd, rkey, /*is_remote=*/true);
  if (region == nullptr || region->process != qp.share().sole_process ||
      region->bound_windows != 0) {
    return std::nullopt;
  }
  const MemoryRange range{region->user_address, region->length};
  if (environment.memory.IsShared(region->process, {&range, 1})) return std::nullopt;
  rights &= kRemoteRights & region->access & static_cast<int>(qp.attr.qp_access_flags);
  if (qp.attr.max_dest_rd_atomic == 0) rights &= ~IBV_ACCESS_REMOTE_READ;
  return Permitted(*region, rkey, rights);
}

bool SetOwnHalf(const Engine::Environment& environment, const QpContext& context,
                const SendWqe& request, Permit& permit) {
  const QueuePair& qp = *context.qp;
  const ProcessId process = qp.share().sole_process;
  if (process == ProcessId::kNone || qp.share().jobs == nullptr) return false;
  permit.index = context.requester.next_index;
  permit.mtu_bytes = context.mtu_bytes;
  if (request.is_inline || request.sges.empty()) return true;
  const uint32_t lkey = request.sges[0].lkey;
  const MemoryRegion* const own = environment.verbs.FindRegion(*qp.pd, lkey, false);
  if (own == nullptr || own->process != process) return false;
  permit.own = Permitted(*own, lkey, own->access & IBV_ACCESS_LOCAL_WRITE);
  return true;
}

bool Permits::SetLocalPeer(const QpContext& context, const SendWqe& request, Permit& permit) {
  QpContext* const peer = LocalPeerOf(environment_, context);
  if (peer == nullptr || !IsReady(environment_, context, *peer)) return false;
  const std::optional<PermittedRegion> other =
      RegionToPermit(environment_, *peer->qp, request.wr.wr.rdma.rkey, RightsOf(*context.qp));
  if (!other) return false;
  permit.other = *other;
  permit.pid =
      environment_.memory.PidFor(context.qp->share().sole_process, peer->qp->share().sole_process);
  if (permit.pid == 0) return false;
  // Earlier completions and payloads must be visible before the results of executed requests.
  payloads_.PlaceWaiting(*peer, MemoryRange{other->address, other->length});
  return true;
}

bool Permits::SetRemotePeer(QpContext& context, const SendWqe& request, Permit& permit) {
  GroupShare& share = context.qp->share();
  GrantedPermit& granted = context.permit;
  if (share.jobs_place.fd < 0 ||
      environment_.memory.PidFor(share.sole_process, share.sole_process) == 0) {
    return false;
  }
  if (granted.slot == 0 && !TakeSlot(share, granted)) return false;
  LentPermit& lent = share.jobs->lent[granted.slot - 1];
  const bool is_lent = granted.offered != 0 && lent.permit.Number() == granted.offered &&
                       lent.permit.other.key == request.wr.wr.rdma.rkey;
  if (!is_lent && !Offer(context, request)) return false;
  permit.lent_slot = granted.slot;
  permit.lent_number = granted.offered;
  return true;
}

bool Permits::Offer(QpContext& context, const SendWqe& request) {
  const QueuePair& qp = *context.qp;
  GrantedPermit& granted = context.permit;
  if (granted.skips_left > 0) {
    granted.skips_left--;
    return false;
  }
  if (granted.is_unused) {
    granted.skips_left = std::min((uint32_t{1} << granted.wasted) - 1, kMostSkips);
    granted.wasted = std::min(granted.wasted + 1, 31u);
  }
  granted.offered = NextPermitNumber(qp.share().lent_slots.last_number);
  granted.is_unused = true;
  PermitOffer offer{.destination_qpn = qp.attr.dest_qp_num,
                    .source_qpn = qp.qpn,
                    .psn = context.requester.next_psn,
                    .mtu_bytes = context.mtu_bytes,
                    .rkey = request.wr.wr.rdma.rkey,
                    .rights = static_cast<uint32_t>(RightsOf(qp)),
                    .owner = granted.owner,
                    .number = granted.offered,
                    .is_lane = 0,
                    .page = qp.share().jobs_place};
  offer.page.slot = granted.slot - 1;
  const wire::UdpFlow flow{qp.path.source, qp.path.destination, wire::kRoceUdpPort,
                           wire::kRoceUdpPort};
  if (environment_.sink.OfferPermit(flow, offer.bytes())) return true;
  granted.offered = 0;
  return false;
}

void Permits::Grant(QpContext& context, const SendWqe& request) {
  if (!MayGrant(context, request)) return;
  Permit permit{};
  if (!SetOwnHalf(environment_, context, request, permit)) return;
  if (!(context.peer_is_local ? SetLocalPeer(context, request, permit)
                              : SetRemotePeer(context, request, permit))) {
    return;
  }
  GrantedPermit& granted = context.permit;
  if (!granted.is_listed) {
    granted.is_listed = true;
    listed_.push_back(&context);
  }
  permit.number = NextPermitNumber(granted.last_number);
  granted.is_given = true;
  environment_.verbs.completions().Publish();  // before those of the program
  context.qp->control->permit.Publish(permit);
}

void Permits::InterruptNow(QpContext& context) {
  Settle(context);
  if (std::exchange(context.permit.is_given, false)) context.qp->control->permit.Publish({});
}

void Permits::Settle() {
  for (QpContext* const context : listed_) Settle(*context);
}

// Counts as the engine would have.
void Permits::Settle(QpContext& context) {
  const Executions done =
      Executions::TakeNew(context.qp->control->executed, context.permit.counted);
  if (done.empty()) return;
  context.permit.is_unused = false;
  context.permit.wasted = context.permit.skips_left = 0;
  counters_.messages_sent += done.requests();
  counters_.messages_by_permit += done.requests();
  counters_.bytes_sent += done.bytes();
  done.CountAtRequester(context);
  if (!context.peer_is_local) {
    counters_.packets_sent += done.there();
    counters_.packets_received += done.back();
    return environment_.sink.CountExchanged(done.ForRequester());
  }
  counters_.local_packets += done.there() + done.back();
  if (QpContext* const peer = LocalPeerOf(environment_, context)) done.CountAtResponder(*peer);
}

void Permits::EndAll() {
  if (listed_.empty()) return;
  for (QpContext* const context : listed_) context->qp->control->permit.Publish({});
  for (QpContext* const context : listed_) {
    if (JobPage* const page = context->qp->share().jobs) AwaitExecution(environment_.memory, *page);
  }
  for (QpContext* const context : listed_) {
    Settle(*context);
    GrantedPermit& granted = context->permit;
    granted.is_listed = granted.is_given = false;
    granted.offered = 0;  // the offer may name rights that have ended
  }
  listed_.clear();
}

void Permits::Begin(QpContext& context) {
  if (context.permit.last_number == 0) return;
  (void)Executions::TakeNew(context.qp->control->executed, context.permit.counted);
}

void Permits::Forget(QpContext& context) {
  GrantedPermit& granted = context.permit;
  if (granted.slot == 0) return;
  context.qp->share().lent_slots.used &= ~(uint32_t{1} << (granted.slot - 1));
  granted.slot = 0;
  granted.wasted = granted.skips_left = 0;
}

}  // namespace rdmaemu::transport
