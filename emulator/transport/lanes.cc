#include "emulator/transport/lanes.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "emulator/transport/core.h"
#include "emulator/transport/executions.h"
#include "emulator/transport/responder.h"

namespace rdmaemu::transport {
namespace {

// How often a host looks whether a thread has placed a message that it has taken. After the first
// ones it lets the thread run.
constexpr int kMostLooksAtPlacing = 1000;
constexpr int kLooksWithoutYield = 100;

void AwaitPlaced(Memory& memory, SendLane& lane, uint32_t messages) {
  for (int i = 0; i < kMostLooksAtPlacing && lane.Placed() != messages; i++) {
    if (i >= kLooksWithoutYield) memory.LetOthersRun();
  }
}

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

// Moves `counted` and the bytes to the lane's numbers. Returns what is new.
template <class End>
Executions TakeNew(End& end) {
  SendLane& lane = end.memory->lane();
  const uint32_t all = lane.CountOf(end.number);
  const uint32_t more = all - std::exchange(end.counted, all);
  if (more == 0) return {};
  LaneMessage& last = lane.MessageAt(all - 1);
  const uint64_t bytes = std::atomic_ref(last.bytes).load(std::memory_order_relaxed);
  const uint64_t extra = std::atomic_ref(last.extra_bytes).load(std::memory_order_relaxed);
  return Executions::OfSends(more, bytes - std::exchange(end.bytes, bytes),
                             extra - std::exchange(end.extra_bytes, extra));
}

}  // namespace

bool Lanes::MayGrant(const QpContext& context, const SendWqe& request) const {
  const Engine::Environment& env = core_.env;
  return env.lanes != nullptr && env.permits && context.peer_is_local &&
         (request.wr.opcode == IBV_WR_SEND || request.wr.opcode == IBV_WR_SEND_WITH_IMM) &&
         request.status == IBV_WC_SUCCESS && request.length <= kMaxLaneBytes &&
         request.sges.size() <= 1 && IsIdle(context) && !env.trace.wants_packets() &&
         env.permits();
}

bool Lanes::Skips(SentLane& sent) const {
  if (sent.skips_left > 0) {
    sent.skips_left--;
    return true;
  }
  if (sent.number == 0 || sent.memory == nullptr) return false;
  if (sent.counted > 0) {
    sent.wasted = 0;
  } else if (++sent.wasted >= kPatience) {
    sent.skips_left = std::min((uint32_t{1} << std::min(sent.wasted - kPatience, 31u)) - 1,
                               kMostSkips);
  }
  return false;
}

bool Lanes::HasMemory(QpContext& context) {
  if (!context.sent_lane) context.sent_lane = std::make_unique<SentLane>();
  SentLane& sent = *context.sent_lane;
  if (sent.memory) return true;
  if (lanes_ >= kMaxLanes) return false;
  const Result<Segment> segment = core_.env.lanes->CreateSegment(sizeof(SendLane));
  if (!segment) return false;
  new (segment->bytes.data()) SendLane{};
  sent.memory = std::make_shared<LaneMemory>(*core_.env.lanes, *segment);
  lanes_++;
  return true;
}

uint32_t Lanes::NextNumber() {
  last_number_ = (last_number_ + 1) & ~LaneCount::kClosed;
  return last_number_ == 0 ? ++last_number_ : last_number_;
}

void Lanes::Grant(Time now, QpContext& context, const SendWqe& request) {
  if (!MayGrant(context, request)) return;
  latest_ = now;
  Permit permit{};
  if (!SetOwnHalf(core_.env, context, request, permit)) return;
  QpContext* const peer = LocalPeerOf(core_.env, context);
  if (peer == nullptr || !IsReady(core_.env, context, *peer)) return;
  if (context.sent_lane && Skips(*context.sent_lane)) return;
  if (!HasMemory(context)) return;
  SentLane& sent = *context.sent_lane;
  sent.number = NextNumber();
  sent.counted = 0;
  sent.bytes = sent.extra_bytes = 0;
  if (!Lend(*peer, sent.memory, sent.number)) return;
  sent.is_open = true;
  senders_.push_back(&context);
  permit.lane = static_cast<uint32_t>(sent.memory->segment());
  permit.lane_number = sent.number;
  permit.number = NextPermitNumber(context.permit.last_number);
  context.qp->control->permit.Publish(permit);
}

bool Lanes::Lend(QpContext& context, const std::shared_ptr<LaneMemory>& memory, uint32_t number) {
  QueuePair& qp = *context.qp;
  CompletionQueue& cq = *qp.recv_cq;
  const ProcessId process = qp.share().sole_process;
  if (qp.srq != nullptr || process == ProcessId::kNone ||
      context.responder.receive_key == 0 ||
      std::atomic_ref(cq.control->refuses_lanes).load(std::memory_order_relaxed) != 0 ||
      !memory->lane().IsQuiet()) {
    return false;
  }
  const MemoryRegion* const region =
      core_.env.verbs.FindRegion(*qp.pd, context.responder.receive_key, false);
  if (region == nullptr || region->process != process ||
      (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return false;
  }
  if (!context.received_lane) context.received_lane = std::make_unique<ReceivedLane>();
  ReceivedLane& received = *context.received_lane;
  if (received.is_open) CloseReceived(latest_, context);
  // The lane's messages must fit into the CQ, beside those of its other lanes.
  const uint32_t room = std::min(SendLane::kMessages, qp.recv_entries);
  if (!cq.HasRoomFor(cq.lane_room + room)) return false;
  core_.env.verbs.completions().Publish();
  received = {.memory = memory,
              .is_open = true,
              .number = number,
              .receive_index = qp.recv_ring.Consumer(),
              .room = room};
  cq.lane_room += room;
  receivers_.push_back(&context);
  memory->lane().Open(number);
  qp.control->lane.Publish(
      {.number = number,
       .lane = static_cast<uint32_t>(memory->segment()),
       .receive_index = received.receive_index,
       .completion_index = cq.published,
       .region = Permitted(*region, context.responder.receive_key, IBV_ACCESS_LOCAL_WRITE),
       .completion = CompletionOf(qp)});
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
  const Executions done = TakeNew(*context.sent_lane);
  if (done.empty()) return;
  core_.counters.messages_sent += done.requests();
  core_.counters.bytes_sent += done.bytes();
  core_.counters.local_packets += done.there() + done.back();
  context.qp->device->counters.rdma_sends += done.requests();
  done.CountAtRequester(context);
}

void Lanes::SettleReceived(QpContext& context) {
  ReceivedLane& received = *context.received_lane;
  TakeNew(received).CountAtResponder(context);
  const LaneCount taken = received.memory->lane().Taken();
  if (taken.number == received.number) CountTaken(context, taken.count);
}

// The program may write any number.
void Lanes::CountTaken(QpContext& context, uint32_t taken) {
  ReceivedLane& received = *context.received_lane;
  const uint32_t more = taken - received.counted_taken;
  if (more > received.counted - received.counted_taken) return;
  received.counted_taken = taken;
  context.qp->device->counters.rdma_recvs += more;
}

void Lanes::CloseReceived(Time now, QpContext& context) {
  QueuePair& qp = *context.qp;
  ReceivedLane& received = *context.received_lane;
  received.is_open = false;
  qp.recv_cq->lane_room -= std::exchange(received.room, 0);
  std::erase(receivers_, &context);
  qp.control->lane.Publish({});
  const std::shared_ptr<LaneMemory> memory = received.memory;
  SendLane& lane = memory->lane();
  const uint32_t all = lane.Close(received.number);
  SettleReceived(context);
  if (all == 0) return;
  const uint32_t first = lane.TakeRest(received.number);
  CountTaken(context, first);
  AwaitPlaced(core_.env.memory, lane, first);
  qp.recv_ring.SetConsumer(received.receive_index + first);
  for (uint32_t at = first; at != all; at++) {
    if (!Deliver(now, context, lane.MessageAt(at))) break;
  }
  lane.HavePlaced(all - first);
}

bool Lanes::Deliver(Time now, QpContext& context, LaneMessage& message) {
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
  (void)FinishReceive(core_, now, context, &train_, IBV_WC_SUCCESS, bytes);
  return true;
}

void Lanes::Settle() {
  for (QpContext* const context : senders_) SettleSent(*context);
  for (QpContext* const context : receivers_) SettleReceived(*context);
}

void Lanes::EndAll() {
  while (!senders_.empty()) CloseSent(latest_, *senders_.back());
  while (!receivers_.empty()) CloseReceived(latest_, *receivers_.back());
}

void Lanes::Forget(QpContext& context) {
  if (context.sent_lane && context.sent_lane->memory) lanes_--;
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
