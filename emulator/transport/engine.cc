#include "emulator/transport/engine.h"

#include <algorithm>

#include "emulator/transport/completer.h"
#include "emulator/transport/core.h"
#include "emulator/transport/dispatcher.h"
#include "emulator/transport/parking.h"
#include "emulator/transport/requester.h"
#include "emulator/transport/responder.h"
#include "emulator/transport/train_form.h"
#include "emulator/transport/unreliable.h"
#include "emulator/transport/wire_in.h"

namespace rdmaemu::transport {

static_assert(kMaxFormPayloadBytes >= kWirePacketsPerTurn * wire::kMaxMtuBytes);

class Engine::Impl final : public Receiver {
 public:
  explicit Impl(Environment environment)
      : core_(environment),
        completer_(core_),
        requester_(core_, completer_),
        responder_(core_),
        unreliable_(core_, completer_, *this),
        parking_(core_, responder_, completer_, [this](Time now, std::unique_ptr<Train> train) {
          HandleLocal(now, std::move(train), /*may_park=*/false);
        }) {
    core_.lanes.OnAcknowledged([this](Time now, QpContext& context, uint32_t before_psn) {
      completer_.AcknowledgeBefore(now, context, before_psn);
    });
  }

  void Doorbell(Time now, QueuePair& qp) {
    QpContext& context = core_.ContextOf(qp);
    if (qp.state() != IBV_QPS_ERR) return core_.MakeReady(context);
    completer_.Flush(now, context);
    if (qp.device->profile.flush_receives_posted_in_error) responder_.Flush(now, context);
  }

  WireIn& wire_in() { return wire_in_; }

  Naming Direct(const Train& train, const std::shared_ptr<DirectForm>& form) {
    QueuePair* const qp = core_.env.verbs.FindQp(train.destination, train.headers.destination_qpn);
    if (qp == nullptr || qp->type != IBV_QPT_RC ||
        dispatcher_.Refusal(*qp, train, /*counts=*/false) != nullptr) {
      return Naming::kNever;
    }
    QpContext& context = core_.ContextOf(*qp);
    dispatcher_.RequestArrives(context, train);
    return core_.targets.Name(context, train, form);
  }

  void TakeOffer(const wire::UdpFlow& flow, const PermitOffer& offer, const OpenJobPage& page_of) {
    QueuePair* const qp = core_.env.verbs.FindQp(flow.destination, offer.destination_qpn);
    if (qp == nullptr) return;
    QpContext& context = core_.ContextOf(*qp);
    core_.lent_permits.Settle(context);
    core_.lent_permits.Lend(context, flow, offer, page_of);
  }

  void TakeLaneOffer(Time now, const wire::UdpFlow& flow, const PermitOffer& offer,
                     const OpenLane& open_lane) {
    QueuePair* const qp = core_.env.verbs.FindQp(flow.destination, offer.destination_qpn);
    if (qp != nullptr) core_.lanes.TakeOffer(now, core_.ContextOf(*qp), flow, offer, open_lane);
  }

  Status ReadPlaced(const Train& train, std::span<std::byte> payload) {
    return core_.targets.Read(train.headers.destination_qpn, train.headers.psn, payload);
  }

  void Deliver(Time now, Train& train) override { dispatcher_.Deliver(now, train, nullptr); }

  void Expire(Time now) {
    for (uint32_t i = 0; i < kExpirationsPerCall; ++i) {
      QpContext* context = core_.PopExpired(now);
      if (context == nullptr) return;
      completer_.Expire(now, *context);
    }
  }

  std::optional<Time> NextDeadline() const {
    Earliest next;
    next.Note(core_.NextDeadline());
    next.Note(parking_.NextDeadline());
    next.Note(core_.fills.NextDeadline());
    return next.deadline();
  }
  void DropStaleDeadlines() { core_.DropStaleDeadlines(); }
  bool AwaitsCopies() const { return parking_.AwaitsCopies(); }
  bool AwaitsForms() const { return !core_.fills.empty(); }
  uint64_t direct_sends() const { return requester_.direct_sends(); }
  bool HasFilledForms() { return core_.fills.AnyEnded(); }
  void FinishForms() { core_.fills.FinishAll(); }
  void StopCopies() {
    core_.fills.FinishAll();
    core_.targets.Withdraw();
    core_.EndPermits();
  }
  void EndPermits() { core_.EndPermits(); }
  void CountExecuted() {
    core_.permits.Settle();
    core_.lent_permits.Settle();
    core_.lanes.Settle();
  }
  bool AwaitsApplication() const { return core_.AwaitsReceive(); }

  bool Take(Time now) {
    const CompletionBatch::Scope batch(core_.env.verbs.completions());
    const uint64_t enough_sent = core_.counters.packets_sent + kWirePacketsPerWork;
    core_.is_wire_full = false;
    for (uint32_t i = 0; i < kTurnsPerWork && core_.counters.packets_sent < enough_sent &&
                         !core_.doors.interrupts && !core_.is_wire_full;
         ++i) {
      QpContext* context = core_.round.Pop();
      if (context == nullptr) break;
      if (Turn(now, *context)) core_.MakeReady(*context);
    }
    return core_.HasLocal() || requester_.has_noted() || AwaitsCopies() || AwaitsForms();
  }

  bool Deliver(Time now) {
    const CompletionBatch::Scope batch(core_.env.verbs.completions());
    const bool unparked = parking_.AwaitsCopies() && parking_.Turn(now, kTrainsPerWork);
    const bool filled = !core_.fills.is_idle() && core_.fills.Turn(now);
    HandleLostForms(now);
    requester_.SendNoted(now);
    DeliverSomeLocal(now);
    return unparked || filled || core_.HasLocal() || !core_.round.empty();
  }

  void SendPosted(Time now, GroupId group) {
    core_.sends_now = true;
    std::vector<QpContext*> posted;  // a copy, because a turn changes the round
    for (QpContext* each = core_.round.first(); each != nullptr; each = each->round_next) {
      if (each->qp->group() == group) posted.push_back(each);
    }
    for (QpContext* const context : posted) {
      const uint32_t turns = context->qp->type == IBV_QPT_RC ? 1 : kTurnsPerSendPosted;
      for (uint32_t i = 0; i < turns && context->in_round && !core_.doors.interrupts; ++i) {
        core_.round.Remove(*context);
        if (Turn(now, *context)) core_.MakeReady(*context);
      }
    }
    core_.sends_now = false;
    requester_.SendNoted(now);
    if (!posted.empty()) DeliverSomeLocal(now);
  }

  void StateChanged(Time now, QueuePair& qp, ibv_qp_state from) {
    core_.EndPermits();
    QpContext& context = core_.ContextOf(qp);
    switch (qp.state()) {
      case IBV_QPS_RESET:
        Reset(context);
        return TellEnded(now, qp);
      case IBV_QPS_INIT:
        if (from == IBV_QPS_RESET) SyncRing(context);
        return;
      case IBV_QPS_RTR:
        return Rtr(context);
      case IBV_QPS_RTS:
        return Rts(context, from);
      case IBV_QPS_SQD:
        context.requester.drained = false;
        qp.attr.sq_draining = 1;
        return completer_.CheckDrained(context);
      case IBV_QPS_ERR:
        EndPayloads(context);
        core_.SetDeadline(context, std::nullopt);
        core_.round.Remove(context);
        if (core_.env.trace.wants_records()) TraceError(now, qp);
        completer_.Flush(now, context);
        responder_.Flush(now, context);
        if (from != IBV_QPS_ERR && qp.srq != nullptr &&
            qp.device->profile.raises_last_wqe_reached) {
          core_.env.verbs.RaiseQp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
        }
        core_.BeginLife(context);
        return TellEnded(now, qp);
      default:
        return;
    }
  }

  void AttributesChanged(QueuePair& qp) {
    core_.EndPermits();
    Readdress(core_.ContextOf(qp));
  }
  void Destroyed(Time now, QueuePair& qp) {
    EndPayloads(core_.ContextOf(qp));
    core_.Forget(qp);
    TellEnded(now, qp);
  }
  void Quiesce(const PayloadScope& scope) {
    StopCopies();
    if (const auto* const ended = std::get_if<ProcessPayloads>(&scope)) {
      core_.fills.Forget(ended->process);
    }
    core_.payloads.Quiesce(scope);
    const auto* const of_region = std::get_if<RegionPayloads>(&scope);
    if (of_region == nullptr || !of_region->ends) return;
    core_.RegionEnded(of_region->region.lkey, parking_.AwaitsCopies());
  }
  void CloseLanes() { core_.lanes.EndAll(); }
  void TakeFromLane(CompletionQueue& cq) { core_.lanes.TakeFrom(cq); }
  SegmentId LaneOf(QueuePair& qp, bool receives) {
    return Lanes::LaneOf(core_.ContextOf(qp), receives);
  }
  LaneCounter LaneCounterOf(QueuePair& qp) { return core_.lanes.CounterOf(core_.ContextOf(qp)); }
  void CloseSentLane(Time now, QueuePair& qp) {
    core_.lanes.CloseEverywhere(now, core_.ContextOf(qp));
  }
  void RaiseLaneEvent(QueuePair& qp) { core_.lanes.RaiseEvent(core_.ContextOf(qp)); }
  // As rxe_qp_to_attr. RESET forgets the PSNs, and each later state has its own.
  void ReadPsns(QueuePair& qp, ibv_qp_attr& attr) {
    const QpContext& context = core_.ContextOf(qp);
    CountExecuted();
    if (qp.state() != IBV_QPS_INIT) attr.rq_psn = context.responder.expected_psn;
    if (qp.state() != IBV_QPS_INIT && qp.state() != IBV_QPS_RTR) {
      attr.sq_psn = context.requester.next_psn;
    }
  }
  const EngineCounters& counters() {
    CountExecuted();
    return core_.counters;
  }

 private:
  // Fails the requests of forms whose payload could not be read. Sends the others again, as a QP
  // without a timer would not do that.
  void HandleLostForms(Time now) {
    // The QP begins again with its oldest lost request, so that one is last.
    const std::vector<FormFills::Lost> all = core_.fills.TakeLost();
    for (auto each = all.rbegin(); each != all.rend(); ++each) {
      const FormFills::Lost& lost = *each;
      QpContext* const context = core_.Find(lost.qp);
      if (context == nullptr || context->epoch != lost.epoch) continue;
      if (lost.is_unreadable) {
        completer_.FailRequest(now, *context, lost.psn, IBV_WC_LOC_PROT_ERR);
      } else if (PsnDiff(lost.psn, context->requester.unacked_psn) >= 0 &&
                 PsnDiff(lost.psn, context->requester.next_psn) < 0) {
        SeekTo(*context, lost.psn);
        core_.MakeReady(*context);
      }
    }
  }
  void TellEnded(Time now, QueuePair& qp) {
    core_.env.verbs.completions().Publish();
    if (core_.env.qp_ends != nullptr) core_.env.qp_ends->QpEnded(now, qp);
  }

  // Ends the payloads of an ended QP, because the program may reuse its buffers.
  void EndPayloads(QpContext& context) {
    parking_.Drop(context);
    Quiesce(QpPayloads{*context.qp});
  }

  void SyncRing(QpContext& context) {
    RequesterState& s = context.requester;
    s.consumer = s.next_index = context.qp->send_ring.Consumer();
  }

  void Reset(QpContext& context) {
    QueuePair& qp = *context.qp;
    EndPayloads(context);
    core_.ForgetPermits(context);
    core_.SetDeadline(context, std::nullopt);
    core_.round.Remove(context);
    context.requester = {};
    context.responder = {};
    context.refused_epoch = 0;
    core_.BeginLife(context);
    if (!qp.send_ring) return;
    qp.send_ring.SetConsumer(qp.send_ring.Producer());
    SyncRing(context);
  }

  void Readdress(QpContext& context) {
    const QueuePair& qp = *context.qp;
    if (qp.type == IBV_QPT_UD) {
      context.mtu_bytes = wire::kMaxMtuBytes;  // a message is one packet of any size
      return;
    }
    context.mtu_bytes = MtuBytes(qp.attr.path_mtu);
    context.peer_is_local = core_.env.verbs.IsLocal(qp.path.destination);
  }

  void Rtr(QpContext& context) {
    ResponderState& s = context.responder;
    const QueuePair& qp = *context.qp;
    Readdress(context);
    s.expected_psn = s.ack_psn = qp.attr.rq_psn & wire::kPsnMask;
    s.resources.assign(qp.attr.max_dest_rd_atomic, {});
    s.next_resource = 0;
  }

  void Rts(QpContext& context, ibv_qp_state from) {
    RequesterState& s = context.requester;
    const QueuePair& qp = *context.qp;
    Readdress(context);
    if (from == IBV_QPS_RTR) {
      core_.permits.Begin(context);
      s.next_psn = s.unacked_psn = s.highest_psn = qp.attr.sq_psn & wire::kPsnMask;
      s.retries_left = qp.attr.retry_cnt;
      s.rnr_retries_left = qp.attr.rnr_retry;
      s.window.Reset(qp.device->profile.rc.max_unacked_packets);
    }
    core_.MakeReady(context);
  }

  bool Turn(Time now, QpContext& context) {
    const bool is_rc = context.qp->type == IBV_QPT_RC;
    const bool answers_left = is_rc && responder_.Turn(now, context);
    const bool requests_left =
        is_rc ? requester_.Turn(now, context) : unreliable_.Turn(now, context);
    completer_.CheckDrained(context);
    return answers_left || requests_left;
  }

  void DeliverSomeLocal(Time now) {
    responder_.CollectAcks(true);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kTrainsPerWork && bytes < kLocalBytesPerWork && core_.HasLocal() &&
                         !core_.doors.interrupts;
         ++i) {
      bytes += DeliverLocal(now);
    }
    responder_.SendCollectedAcks(now);
  }

  // Delivers the oldest local train. Returns its payload bytes.
  uint64_t DeliverLocal(Time now) {
    std::unique_ptr<Train> train = core_.TakeLocal();
    const uint64_t bytes = train->length();
    HandleLocal(now, std::move(train), /*may_park=*/true);
    return bytes;
  }

  void HandleLocal(Time now, std::unique_ptr<Train> train, bool may_park) {
    train->source_failed = false;
    QpContext* origin = train->info().request ? core_.Find(train->origin) : nullptr;
    // The request's sender has flushed or dropped the request. Its memory may have another use now.
    const bool stale =
        train->info().request && (origin == nullptr || origin->epoch != train->epoch);
    if (origin != nullptr && !stale && IsSourceEnded(*train, *origin)) {
      completer_.FailRequest(now, *origin, train->headers.psn, IBV_WC_LOC_PROT_ERR);
    } else if (stale || IsRevoked(now, *train)) {
      core_.counters.dropped_sender_gone += train->packets;
    } else {
      const uint32_t psn = train->headers.psn;
      dispatcher_.Deliver(now, *train, may_park ? &train : nullptr);
      if (train == nullptr) return;  // the train waits for a copy
      // The delivery may have destroyed the sender (a QP that is connected to itself).
      if (train->source_failed && (origin = core_.Find(train->origin)) != nullptr) {
        completer_.FailRequest(now, *origin, psn, IBV_WC_LOC_PROT_ERR);
      }
    }
    core_.GiveBack(std::move(train));
  }

  // Returns true when a region of the request was deregistered after the request was sent. The
  // program may have changed the memory. UC and UD requests have completed already.
  bool IsSourceEnded(const Train& train, const QpContext& origin) const {
    if (!core_.HasRegionEndedSince(train) || train.is_bytes || train.placed ||
        train.pieces.empty()) {
      return false;
    }
    const SendWqe* const request = completer_.RequestOf(origin, train.headers.psn);
    return request != nullptr && std::ranges::any_of(request->sges, [&](const rxe_sge& sge) {
             return core_.HasEndedSince(train, sge.lkey);
           });
  }

  // Returns true when a READ response must not be delivered, because the right to its memory was
  // revoked after it was sent. The responding QP then sends a NAK.
  bool IsRevoked(Time now, const Train& train) {
    if (train.info().request || train.pieces.empty() || train.placed) return false;
    QpContext* const answerer = core_.Find(train.answerer);
    if (answerer == nullptr) return true;
    // The program of an ended QP may use its memory again. Responses before the QP's own NAK are
    // delivered, because the requester gets the NAK only after them.
    if (answerer->epoch != train.answerer_epoch &&
        answerer->refused_epoch != train.answerer_epoch) {
      return true;
    }
    if (responder_.MayStillRead(*answerer, train)) return false;
    if (TakesRequests(answerer->qp->state())) {
      responder_.FailRead(now, *answerer, train.headers.psn);
    }
    return true;
  }

  void TraceError(Time now, const QueuePair& qp) {
    core_.env.trace.Write({.time = now,
                           .process = ProcessId::kNone,
                           .kind = "qp.error",
                           .object = "qp " + std::to_string(qp.qpn),
                           .what = "flush",
                           .fields = {}});
  }

  Core core_;
  Completer completer_;
  Requester requester_;
  Responder responder_;
  Unreliable unreliable_;
  Parking parking_;
  Dispatcher dispatcher_{core_, completer_, responder_, unreliable_, parking_};
  WireIn wire_in_{core_, responder_, dispatcher_};
};

Engine::Engine(Environment environment) : impl_(std::make_unique<Impl>(environment)) {}
Engine::~Engine() = default;

void Engine::Doorbell(Time now, QueuePair& qp) { impl_->Doorbell(now, qp); }
void Engine::SendPosted(Time now, GroupId group) { impl_->SendPosted(now, group); }
void Engine::Receive(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
                     const NetAddress* at) {
  impl_->wire_in().Receive(now, flow, packets, at);
}
void Engine::ReceiveTrains(Time now, const NextTrain& next, bool are_placed) {
  impl_->wire_in().ReceiveTrains(now, next, are_placed);
}
Naming Engine::Direct(const Train& train, const std::shared_ptr<DirectForm>& form) {
  return impl_->Direct(train, form);
}
void Engine::TakeOffer(const wire::UdpFlow& flow, const PermitOffer& offer,
                       const OpenJobPage& page_of) {
  impl_->TakeOffer(flow, offer, page_of);
}
void Engine::TakeLaneOffer(Time now, const wire::UdpFlow& flow, const PermitOffer& offer,
                           const OpenLane& open_lane) {
  impl_->TakeLaneOffer(now, flow, offer, open_lane);
}
Status Engine::ReadPlaced(const Train& train, std::span<std::byte> payload) {
  return impl_->ReadPlaced(train, payload);
}
void Engine::ReceiveKept(Time now, const wire::UdpFlow& flow, const wire::Packet& packet) {
  impl_->wire_in().ReceiveKept(now, flow, packet);
}
void Engine::Expire(Time now) { impl_->Expire(now); }
std::optional<Time> Engine::NextDeadline() const { return impl_->NextDeadline(); }
void Engine::DropStaleDeadlines() { impl_->DropStaleDeadlines(); }
bool Engine::Take(Time now) { return impl_->Take(now); }
bool Engine::Deliver(Time now) { return impl_->Deliver(now); }
bool Engine::Work(Time now) {
  impl_->Take(now);
  return impl_->Deliver(now);
}
void Engine::QpStateChanged(Time now, QueuePair& qp, ibv_qp_state from) {
  impl_->StateChanged(now, qp, from);
}
void Engine::QpAttributesChanged(Time, QueuePair& qp, int) { impl_->AttributesChanged(qp); }
void Engine::Quiesce(const PayloadScope& scope) { impl_->Quiesce(scope); }
void Engine::CloseLanes() { impl_->CloseLanes(); }
void Engine::TakeFromLane(CompletionQueue& cq) { impl_->TakeFromLane(cq); }
void Engine::ReadPsns(QueuePair& qp, ibv_qp_attr& attr) { impl_->ReadPsns(qp, attr); }
SegmentId Engine::LaneOf(QueuePair& qp, bool receives) { return impl_->LaneOf(qp, receives); }
LaneCounter Engine::LaneCounterOf(QueuePair& qp) { return impl_->LaneCounterOf(qp); }
void Engine::CloseSentLane(Time now, QueuePair& qp) { impl_->CloseSentLane(now, qp); }
void Engine::RaiseLaneEvent(QueuePair& qp) { impl_->RaiseLaneEvent(qp); }
bool Engine::AwaitsApplication() const { return impl_->AwaitsApplication(); }
bool Engine::AwaitsCopies() const { return impl_->AwaitsCopies(); }
bool Engine::AwaitsForms() const { return impl_->AwaitsForms(); }
bool Engine::HasFilledForms() { return impl_->HasFilledForms(); }
void Engine::FinishForms() { impl_->FinishForms(); }
void Engine::StopCopies() { impl_->StopCopies(); }
void Engine::EndPermits() { impl_->EndPermits(); }
void Engine::CountExecuted() { impl_->CountExecuted(); }
void Engine::QpDestroyed(Time now, QueuePair& qp) { impl_->Destroyed(now, qp); }
const EngineCounters& Engine::counters() const { return impl_->counters(); }
uint64_t Engine::direct_sends() const { return impl_->direct_sends(); }

}  // namespace rdmaemu::transport
