#include "emulator/transport/lanes.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "emulator/transport/core.h"
#include "emulator/transport/executions.h"
#include "emulator/transport/placing_patience.h"
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {
namespace {

// A lane takes at most this part of the receiver's CQ. Many programs create a CQ for as many
// completions as there are receives.
constexpr uint32_t kPartOfCq = 2;

// Returns what all completions of SENDs to the QP have in common (FinishReceive).
ib_uverbs_wc CompletionOf(const QueuePair& qp) {
  ib_uverbs_wc wc{};
  const Device& device = *qp.device;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = IBV_WC_RECV;
  wc.qp_num = qp.qpn;
  wc.port_num = qp.attr.port_num;
  wc.vendor_err = device.profile.vendor_errors.Of(IBV_WC_SUCCESS, false);
  if (device.profile.marks_grh && (!device.has_lids() || !qp.path.by_lid)) {
    wc.wc_flags = IBV_WC_GRH;
  }
  if (device.has_lids()) wc.slid = LidOf(qp.path.destination);
  return wc;
}

// Moves `counted` to the lane's numbers. Returns what is new.
Executions TakeNew(SendLane& lane, uint32_t number, CountedMessages& counted) {
  const uint32_t all = lane.CountOf(number);
  const uint32_t more = all - std::exchange(counted.count, all);
  if (more == 0) return {};
  LaneMessage& last = lane.MessageAt(all - 1);
  const uint64_t bytes = std::atomic_ref(last.bytes).load(std::memory_order_relaxed);
  const uint64_t extra = std::atomic_ref(last.extra_bytes).load(std::memory_order_relaxed);
  return Executions::OfSends(more, bytes - std::exchange(counted.bytes, bytes),
                             extra - std::exchange(counted.extra_bytes, extra));
}

}  // namespace

bool Lanes::MayUse() const {
  const Engine::Environment& env = core_.env;
  return env.lanes != nullptr && env.permits && !env.trace.wants_packets() && env.permits();
}

bool Lanes::MayGrant(const QpContext& context, const SendWqe& request, size_t unfinished) const {
  return (request.wr.opcode == IBV_WR_SEND || request.wr.opcode == IBV_WR_SEND_WITH_IMM) &&
         request.status == IBV_WC_SUCCESS && request.length <= kMaxLaneBytes &&
         request.sges.size() <= 1 && IsIdleAfter(context, unfinished) && MayUse();
}

std::shared_ptr<LaneMemory> Lanes::Make(const Segment& segment) {
  return {new LaneMemory(*core_.env.lanes, segment),
          [live = live_](LaneMemory* memory) { delete memory; }};
}

bool Lanes::HasMemory(SentLane& sent) {
  if (sent.memory) return true;
  if (static_cast<size_t>(live_.use_count()) > kMaxLanes) return false;
  const Result<Segment> segment = core_.env.lanes->CreateSegment(sizeof(SendLane));
  if (!segment) return false;
  new (segment->bytes.data()) SendLane{};
  sent.memory = Make(*segment);
  return true;
}

SentLane& Lanes::Renewed(QpContext& context) {
  if (!context.sent_lane) context.sent_lane = std::make_unique<SentLane>();
  SentLane& sent = *context.sent_lane;
  if (sent.counted.count > 0) sent.patience.Succeeded();
  sent.counted = {};
  return sent;
}

void Lanes::Prepare(Time now, QpContext& context, const SendWqe& request) {
  if (!context.peer_is_local || !MayGrant(context, request, 1)) return;
  latest_ = now;
  SentLane& sent = Renewed(context);
  QpContext* const peer = LocalPeerOf(core_.env, context);
  if (peer == nullptr || !IsReady(core_.env, context, *peer) || !MayLend(*peer) ||
      !sent.patience.MayTry() || !HasMemory(sent) || !Lend(*peer, sent.memory)) {
    return;
  }
  sent.number = peer->received_lane->number;
}

void Lanes::Grant(Time now, QpContext& context, const SendWqe& request) {
  if (!MayGrant(context, request, 0)) return;
  latest_ = now;
  Permit permit{};
  if (!SetOwnHalf(core_.env, context, request, permit)) return;
  SentLane& sent = Renewed(context);
  if (!(context.peer_is_local ? IsOpenHere(context) : IsOpenElsewhere(context))) return;
  sent.is_open = true;
  senders_.push_back(&context);
  permit.lane = static_cast<uint32_t>(sent.memory->segment());
  permit.lane_number = sent.number;
  permit.number = NextPermitNumber(context.permit.last_number);
  core_.env.verbs.completions().Publish();  // before those of the program
  context.qp->control->permit.Publish(permit);
}

bool Lanes::IsOpenHere(const QpContext& context) const {
  const SentLane& sent = *context.sent_lane;
  const QpContext* const peer = LocalPeerOf(core_.env, context);
  return peer != nullptr && IsReceiving(*peer) && peer->received_lane->memory == sent.memory &&
         peer->received_lane->number == sent.number &&
         sent.memory->lane().Psn() == context.requester.next_psn;
}

bool Lanes::IsOpenElsewhere(QpContext& context) {
  SentLane& sent = *context.sent_lane;
  if (!sent.memory) {
    Offer(context);
    return false;
  }
  SendLane& lane = sent.memory->lane();
  const LaneCount added = lane.Added();
  if (added.number == 0 || (added.number & LaneCount::kClosed) != 0 || added.count != 0 ||
      added.number == sent.number || lane.Psn() != context.requester.next_psn) {
    Offer(context);
    return false;
  }
  sent.number = added.number;
  return true;
}

void Lanes::Offer(QpContext& context) {
  SentLane& sent = *context.sent_lane;
  const QueuePair& qp = *context.qp;
  // The other host opens the lane again by itself, unless it has lost the offer.
  if (sent.grants_until_offer > 0) {
    sent.grants_until_offer--;
    return;
  }
  sent.grants_until_offer = kGrantsBetweenOffers;
  if (sent.number == 0) sent.memory.reset();  // the other host has not opened the last one
  if (!HasMemory(sent)) return;
  const PermitOffer offer{.destination_qpn = qp.attr.dest_qp_num,
                          .source_qpn = qp.qpn,
                          .psn = context.requester.next_psn,
                          .mtu_bytes = context.mtu_bytes,
                          .rkey = 0,
                          .rights = 0,
                          .owner = 0,
                          .number = 0,
                          .is_lane = 1,
                          .page = {.segment = static_cast<uint32_t>(sent.memory->segment()),
                                   .fd = core_.env.lanes->Descriptor(sent.memory->segment())}};
  const wire::UdpFlow flow{qp.path.source, qp.path.destination, wire::kRoceUdpPort,
                           wire::kRoceUdpPort};
  if (offer.page.fd < 0 || !core_.env.sink.OfferPermit(flow, offer.bytes())) sent.memory.reset();
}

void Lanes::RequestArrives(QpContext& context, const Train& request) {
  CloseIfReceiving(latest_, context);
  if (!context.sent_lane || !context.sent_lane->is_open) return;
  if (!MayBeInALane(request)) CloseSent(latest_, context);
}

void Lanes::TakeOffer(Time now, QpContext& context, const wire::UdpFlow& flow,
                      const PermitOffer& offer, const Engine::OpenLane& open_lane) {
  const QueuePair& qp = *context.qp;
  if (!MayUse() || qp.type != IBV_QPT_RC || qp.attr.dest_qp_num != offer.source_qpn ||
      flow.source != qp.path.destination || flow.destination != qp.path.source ||
      context.mtu_bytes != offer.mtu_bytes) {
    return;
  }
  latest_ = now;
  CloseIfReceiving(now, context);  // this also counts the messages
  if (!IsReadyToAnswer(context) || context.responder.expected_psn != offer.psn ||
      !MayLend(context)) {
    return;
  }
  const bool is_known = context.received_lane && context.received_lane->is_from_elsewhere &&
                        context.received_lane->reference.segment == offer.page.segment &&
                        context.received_lane->reference.fd == offer.page.fd;
  if (!is_known) {
    if (static_cast<size_t>(live_.use_count()) > kMaxLanes) return;
    const Result<Segment> segment = open_lane(offer.page);
    if (!segment) return;
    context.received_lane = std::make_unique<ReceivedLane>();
    context.received_lane->memory = Make(*segment);
    context.received_lane->is_from_elsewhere = true;
    context.received_lane->reference = offer.page;
  }
  (void)Lend(context, context.received_lane->memory);
}

void Lanes::OpenIfDue(Time now, QpContext& context) {
  ReceivedLane& received = *context.received_lane;
  if (!std::exchange(received.is_due, false) || received.is_open) return;
  if (received.counted.count > 0) received.patience.Succeeded();
  if (!received.patience.MayTry() || !MayUse() || !IsReadyToAnswer(context)) return;
  latest_ = now;
  (void)Lend(context, received.memory);
}

bool Lanes::MayLend(const QpContext& context) const {
  const QueuePair& qp = *context.qp;
  const bool is_answering = qp.state() == IBV_QPS_RTS || context.responder.established;
  return is_answering && core_.env.verbs.Carries(qp) && qp.srq == nullptr &&
         qp.share().sole_process != ProcessId::kNone && context.responder.receive_key != 0 &&
         std::atomic_ref(qp.recv_cq->control->refuses_lanes).load(std::memory_order_relaxed) == 0;
}

bool Lanes::Lend(QpContext& context, const std::shared_ptr<LaneMemory>& memory) {
  QueuePair& qp = *context.qp;
  CompletionQueue& cq = *qp.recv_cq;
  if (!MayLend(context) || !memory->lane().IsQuiet()) return false;
  const MemoryRegion* const region =
      core_.env.verbs.FindRegion(*qp.pd, context.responder.receive_key, false);
  if (region == nullptr || region->process != qp.share().sole_process ||
      (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return false;
  }
  CloseIfReceiving(latest_, context);
  if (!context.received_lane) context.received_lane = std::make_unique<ReceivedLane>();
  ReceivedLane& received = *context.received_lane;
  // A program that arms the queue has one lane: its arming is in that lane.
  const bool is_first = cq.lanes.empty();
  const bool uses_events = std::atomic_ref(cq.control->uses_events).load() != 0;
  if (!is_first && (cq.is_taking || cq.lanes.size() >= kMostLanesOfCq ||
                    (cq.channel != nullptr && uses_events))) {
    return false;
  }
  // The messages of all lanes must fit into the CQ.
  const uint32_t most = cq.ring.usable() / kPartOfCq;
  const uint32_t room = std::min({SendLane::kMessages, qp.recv_entries, most - cq.lane_room});
  if (room == 0 || !cq.HasRoomFor(cq.lane_room + room)) return false;
  last_number_ = (last_number_ + 1) & ~LaneCount::kClosed;
  if (last_number_ == 0) last_number_ = 1;
  received.memory = memory;
  received.is_open = true;
  received.number = last_number_;
  received.receive_index = qp.recv_ring.Consumer();
  received.counted = {};
  received.counted_taken = received.moving = received.lost = 0;
  received.is_delivering = received.closes = false;
  received.room = room;
  cq.lane_room += room;
  cq.lanes.push_back({&qp, &memory->lane()});
  receivers_.push_back(&context);
  const bool has_counter = is_first && cq.channel != nullptr;
  memory->lane().SetCounterFd(has_counter ? cq.counters->Descriptor(cq.channel->counter) : -1);
  memory->lane().Open(received.number, context.responder.expected_psn);
  qp.control->lane.Publish(
      {.number = received.number,
       .takes_arming = is_first ? 1u : 0u,
       .lane = static_cast<uint32_t>(memory->segment()),
       .receive_index = received.receive_index,
       .region = Permitted(*region, context.responder.receive_key, IBV_ACCESS_LOCAL_WRITE),
       .completion = CompletionOf(qp)});
  // The program gets the completions after the offer, and messages after the completions.
  core_.env.verbs.completions().Publish();
  ShowCompleted(context);
  memory->lane().Admit(room);
  return true;
}

void Lanes::CloseSent(Time now, QpContext& context) {
  latest_ = now;
  SentLane& sent = *context.sent_lane;
  sent.is_open = false;
  std::erase(senders_, &context);
  context.qp->control->permit.Publish({});
  (void)sent.memory->lane().Close(sent.number);
  SettleSent(context);
  QpContext* const peer = LocalPeerOf(core_.env, context);
  if (peer != nullptr && peer->received_lane && peer->received_lane->is_open &&
      peer->received_lane->memory == sent.memory) {
    CloseReceived(now, *peer);
  }
}

void Lanes::SettleSent(QpContext& context) {
  SentLane& sent = *context.sent_lane;
  const Executions done = TakeNew(sent.memory->lane(), sent.number, sent.counted);
  if (done.empty()) return;
  core_.counters.messages_sent += done.requests();
  core_.counters.messages_by_lane += done.requests();
  core_.counters.bytes_sent += done.bytes();
  context.qp->device->counters.rdma_sends += done.requests();
  done.CountAtRequester(context);
  if (context.peer_is_local) {
    core_.counters.local_packets += done.there() + done.back();
    return;
  }
  core_.counters.packets_sent += done.there();
  core_.counters.packets_received += done.back();
  core_.env.sink.CountExchanged(done.ForRequester());
}

void Lanes::SettleReceived(QpContext& context) {
  ReceivedLane& received = *context.received_lane;
  SendLane& lane = received.memory->lane();
  if (const Executions done = TakeNew(lane, received.number, received.counted); !done.empty()) {
    done.CountAtResponder(context);
    if (received.is_from_elsewhere) {
      core_.counters.packets_received += done.there();
      core_.counters.packets_sent += done.back();
      core_.env.sink.CountExchanged(done.ForResponder());
    }
  }
  const LaneCount taken = lane.Taken();
  if (taken.number == received.number) CountTaken(context, taken.count);
}

// The program may write any number.
void Lanes::CountTaken(QpContext& context, uint32_t taken) {
  ReceivedLane& received = *context.received_lane;
  const uint32_t more = taken - received.counted_taken;
  if (more > received.counted.count - received.counted_taken) return;
  received.counted_taken = taken;
  context.qp->device->counters.rdma_recvs += more;
}

void Lanes::CloseReceived(Time now, QpContext& context) {
  QueuePair& qp = *context.qp;
  CompletionQueue& cq = *qp.recv_cq;
  ReceivedLane& received = *context.received_lane;
  qp.control->lane.Publish({});
  const std::shared_ptr<LaneMemory> memory = received.memory;
  SendLane& lane = memory->lane();
  const uint32_t all = lane.Close(received.number);
  // A message has failed its QP, or another one. The lane closes behind it.
  received.closes = received.is_delivering;
  if (received.closes) return;
  SettleReceived(context);
  cq.MoveArming(lane, all);
  if (all != 0) MoveMessages(now, cq);
  if (!received.is_open) return;  // MoveMessages has closed it
  if (all != 0 && TakesRequests(qp.state())) AwaitPlaced(context, all);
  received.is_open = false;
  cq.lane_room -= received.room;
  std::erase_if(cq.lanes, [&qp](const CompletionQueue::OpenLane& each) { return each.qp == &qp; });
  std::erase(receivers_, &context);
}

void Lanes::AwaitPlaced(QpContext& context, uint32_t before) {
  ReceivedLane& received = *context.received_lane;
  SendLane& lane = received.memory->lane();
  const auto unplaced = [&] { return before - lane.Placed() - received.moving - received.lost; };
  PlacingPatience patience(core_.env.memory, context.qp->share());
  if (!patience.Await([&] { return unplaced() == 0; })) received.lost += unplaced();
  context.qp->recv_ring.SetConsumer(received.receive_index + before);
}

QpContext* Lanes::NextOf(const CompletionQueue& cq, const LaneOrder& order) {
  QpContext* next = nullptr;
  for (const CompletionQueue::OpenLane& each : cq.lanes) {
    QpContext& context = core_.ContextOf(*each.qp);
    const LaneCursor& cursor = context.received_lane->cursor;
    if (order.IsDue(cursor) && !context.received_lane->is_delivering &&
        (next == nullptr || cursor.next_ns < next->received_lane->cursor.next_ns)) {
      next = &context;
    }
  }
  return next;
}

void Lanes::MoveMessages(Time now, CompletionQueue& cq) {
  LaneOrder order;
  const auto each_lane = [&](auto look) {
    for (const CompletionQueue::OpenLane& each : cq.lanes) {
      ReceivedLane& received = *core_.ContextOf(*each.qp).received_lane;
      look(*each.lane, received.number, received.cursor);
    }
  };
  each_lane([&](SendLane& lane, uint32_t number, LaneCursor& at) { order.Note(lane, number, at); });
  if (!order.has_any()) return;
  each_lane(
      [&](SendLane& lane, uint32_t number, LaneCursor& at) { order.LookAgain(lane, number, at); });
  const bool was_taking = std::exchange(cq.is_taking, true);
  while (QpContext* const next = NextOf(cq, order)) MoveOne(now, *next);
  cq.is_taking = was_taking;
  // The program awaits these messages in the ring.
  cq.batch->Publish();
  for (const CompletionQueue::OpenLane& each : cq.lanes) {
    ReceivedLane& received = *core_.ContextOf(*each.qp).received_lane;
    if (received.moving > 0) each.lane->HavePlaced(std::exchange(received.moving, 0));
  }
  CloseDue(now, cq);
}

void Lanes::CloseDue(Time now, CompletionQueue& cq) {
  const auto closes = [this](const CompletionQueue::OpenLane& each) {
    return core_.ContextOf(*each.qp).received_lane->closes;
  };
  for (;;) {
    const auto due = std::ranges::find_if(cq.lanes, closes);
    if (due == cq.lanes.end()) return;
    QpContext& context = core_.ContextOf(*due->qp);
    if (context.received_lane->is_delivering) return;
    CloseReceived(now, context);
  }
}

void Lanes::MoveOne(Time now, QpContext& context) {
  ReceivedLane& received = *context.received_lane;
  const std::shared_ptr<LaneMemory> memory = received.memory;
  SendLane& lane = memory->lane();
  SettleReceived(context);
  if (!TakesRequests(context.qp->state())) {
    // The QP has failed. It ignores what its peer has sent since.
    received.moving += lane.CountOf(received.number) - lane.TakeRest(received.number);
    received.cursor.end = received.cursor.next;
    return;
  }
  const uint32_t index = received.cursor.next;
  const bool has_taken = lane.Take(received.number, index);
  LaneOrder::Advance(lane, received.cursor);
  if (!has_taken) return LaneOrder::SkipTaken(lane, received.number, received.cursor);
  AwaitPlaced(context, index);
  received.counted_taken = index + 1;
  received.is_delivering = true;
  if (!Deliver(now, context, lane.MessageAt(index))) received.cursor.end = received.cursor.next;
  received.is_delivering = false;
  received.moving++;
}

void Lanes::AcknowledgedBy(Time now, QpContext& context, LaneMessage& message) {
  const uint32_t psn = std::atomic_ref(message.acknowledged).load(std::memory_order_relaxed);
  if ((psn & SendLane::kAcknowledges) == 0) return;
  if (on_acknowledged_) on_acknowledged_(now, context, psn & ~SendLane::kAcknowledges);
}

bool Lanes::Deliver(Time now, QpContext& context, LaneMessage& message) {
  AcknowledgedBy(now, context, message);
  ResponderState& s = context.responder;
  s.receive = core_.env.verbs.TakeReceive(*context.qp);
  if (!s.receive) return false;  // the program has given room without a receive
  const LaneMessage copy = message;
  const uint32_t bytes = std::min(copy.length, kMaxLaneBytes);
  const bool has_immediate = (copy.flags & LaneMessage::kHasImmediate) != 0;
  AddressRc(context, has_immediate ? wire::Operation::kSendOnlyImm : wire::Operation::kSendOnly,
            train_);
  std::swap(train_.source, train_.destination);
  train_.headers.immediate = copy.immediate;
  train_.headers.solicited = (copy.flags & LaneMessage::kIsSolicited) != 0;
  train_.is_bytes = true;
  train_.bytes = {copy.payload, bytes};
  Pieces into;
  if (bytes > s.receive->length ||
      core_.ResolveReceive(*context.qp, *s.receive, 0, bytes, into) != IBV_WC_SUCCESS) {
    (void)FinishReceive(core_, now, context, nullptr, ReceiveError(context, bytes), bytes);
    core_.FailQp(now, *context.qp);
    return false;
  }
  // Memory that was unmapped meanwhile gets no bytes, as with a payload that waits beside its
  // completion.
  (void)core_.payloads.PlaceReceived(context, train_, {}, into);
  if (FinishReceive(core_, now, context, &train_, IBV_WC_SUCCESS, bytes)) return true;
  core_.FailQp(now, *context.qp, IBV_EVENT_QP_FATAL);
  return false;
}

// Returns the channel that gets the events of the QP's messages. nullptr: none of this host.
CompletionChannel* Lanes::LocalChannelOf(const QpContext& context) const {
  const QpContext* const peer = LocalPeerOf(core_.env, context);
  return peer == nullptr ? nullptr : peer->qp->recv_cq->channel;
}

LaneCounter Lanes::CounterOf(const QpContext& context) const {
  if (!context.sent_lane || !context.sent_lane->memory) return {};
  if (!context.peer_is_local) {
    const int fd = context.sent_lane->memory->lane().CounterFd();
    return {CounterId::kNone, core_.env.sink.OpenCounter(context.qp->path.destination, fd)};
  }
  const CompletionChannel* const channel = LocalChannelOf(context);
  return channel == nullptr ? LaneCounter{} : LaneCounter{channel->counter, nullptr};
}

void Lanes::RaiseEvent(const QpContext& context) {
  if (!context.sent_lane || !context.sent_lane->memory) return;
  if (!context.peer_is_local) {
    const int fd = context.sent_lane->memory->lane().CounterFd();
    core_.env.sink.AddToCounter(context.qp->path.destination, fd);
  } else if (const CompletionChannel* const channel = LocalChannelOf(context)) {
    context.qp->recv_cq->counters->Add(channel->counter, 1);
  }
}

void Lanes::CloseEverywhere(Time now, QpContext& context) {
  Interrupt(now, context);
  if (context.peer_is_local || !context.sent_lane || !context.sent_lane->memory) return;
  // The other host closes its lane before it looks at an offer (TakeOffer).
  context.sent_lane->grants_until_offer = 0;
  Offer(context);
}

// Returns true if the QP completes a request now that the next message in its lane answers. The
// completion then precedes the message.
bool Lanes::IsAnswer(QpContext& context, SendLane& lane) {
  RequesterState& s = context.requester;
  const LaneCount added = lane.Added(), taken = lane.Taken();
  if (!s.is_finishing || added.count == taken.count) return false;
  const uint32_t psn =
      std::atomic_ref(lane.MessageAt(taken.count).acknowledged).load(std::memory_order_relaxed);
  return (psn & SendLane::kAcknowledges) != 0 &&
         PsnDiff(psn & ~SendLane::kAcknowledges, s.requests.front().last_psn) > 0;
}

void Lanes::TakeFrom(CompletionQueue& cq) {
  if (cq.is_taking) return;
  if (cq.lanes.size() == 1) {
    QpContext& context = core_.ContextOf(*cq.lanes.front().qp);
    SendLane& lane = *cq.lanes.front().lane;
    if (IsAnswer(context, lane)) return;
    if (lane.Added().count != lane.Taken().count || !cq.HasRoomFor(cq.lane_room)) {
      CloseReceived(latest_, context);
    }
    return;
  }
  if (std::ranges::any_of(cq.lanes, [this](const CompletionQueue::OpenLane& each) {
        return IsAnswer(core_.ContextOf(*each.qp), *each.lane);
      })) {
    return;
  }
  MoveMessages(latest_, cq);
  while (!cq.lanes.empty() && !cq.HasRoomFor(cq.lane_room)) {
    CloseReceived(latest_, core_.ContextOf(*cq.lanes.back().qp));
  }
}

void Lanes::Settle() {
  for (QpContext* const context : senders_) SettleSent(*context);
  for (QpContext* const context : receivers_) SettleReceived(*context);
}

void Lanes::EndAll() {
  while (!senders_.empty()) CloseSent(latest_, *senders_.back());
  const std::vector<QpContext*> open = receivers_;
  for (QpContext* const context : open) CloseIfReceiving(latest_, *context);
}

void Lanes::Forget(QpContext& context) {
  context.sent_lane.reset();
  context.received_lane.reset();
}

SegmentId Lanes::LaneOf(const QpContext& context, bool receives) {
  const std::shared_ptr<LaneMemory>* const memory =
      receives ? (context.received_lane ? &context.received_lane->memory : nullptr)
               : (context.sent_lane ? &context.sent_lane->memory : nullptr);
  return memory == nullptr || *memory == nullptr ? SegmentId::kNone : (*memory)->segment();
}

}  // namespace rdmaemu::transport
