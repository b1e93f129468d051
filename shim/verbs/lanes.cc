#include "shim/verbs/lanes.h"

#include <sched.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "shim/client/deferred_signals.h"
#include "shim/client/own_pid.h"
#include "shim/client/parallel_wait.h"
#include "shim/client/segments.h"
#include "shim/client/yield_budget.h"
#include "shim/verbs/cq_events.h"
#include "shim/verbs/payloads.h"

namespace rdmaemu::shim {
namespace {

// The most receives that one post checks. The next one continues. A poll checks as many as the lane
// takes messages at a time.
constexpr uint32_t kMostChecked = 1024;
constexpr uint32_t kMostCheckedByPoll = SendLane::kMessages;
// How long a thread waits for a receiver that polls, but may wait for a processor. After a wait in
// vain, it waits less and less often.
constexpr uint64_t kMostAwaitedRoom_ns = 5'000'000;
constexpr uint32_t kMostVainWaits = 12;
// The most messages that a poll takes from a lane at a time.
constexpr uint32_t kMostTaken = 16;
// How often a poll yields to a host that moves messages. A peer that writes false numbers must not
// stop it.
constexpr int kMaxYieldsForMoving = 10000;

// Maps a lane of the queue pair. Returns nullptr if there is no such lane now.
SendLane* Map(const QueuePair& qp, uint32_t id, bool receives) {
  OpenLaneOut reply{};
  int fd = -1;
  const int before = errno;
  SendLane* lane = nullptr;
  if (client::Call(CallOp::kOpenLane, OpenLaneIn{qp.base.handle, receives ? 1u : 0u}, reply, &fd,
                   1) == 0) {
    lane = client::MapLane(fd);
    if (lane != nullptr && reply.lane != id) {
      client::UnmapLane(lane);
      lane = nullptr;
    }
  }
  errno = before;
  return lane;
}

void ForgetSent(QueuePair& qp) {
  if (qp.sent.lane != nullptr) client::UnmapLane(qp.sent.lane);
  if (qp.sent.has_counter) client::CloseCounter(qp.sent.counter);
  qp.sent = {};
}

// Gets the counter for the receiver's events. Returns false if there is none.
bool HasCounter(const QueuePair& qp, SentLane& sent) {
  if (sent.has_counter || sent.refuses_counter) return sent.has_counter;
  const int before = errno;
  sent.has_counter = client::CallForDescriptor(CallOp::kOpenLaneCounter,
                                               HandleIn{qp.base.handle, HandleOf(qp.base.context)},
                                               sent.counter) == 0;
  sent.refuses_counter = !sent.has_counter;
  errno = before;
  return sent.has_counter;
}

// Uses the lane for SENDs. Returns false if the process cannot.
bool UseSent(QueuePair& qp, uint32_t id) {
  SentLane& sent = qp.sent;
  if (sent.id != id) {
    ForgetSent(qp);
    sent.id = id;
    sent.lane = Map(qp, id, false);
  }
  return sent.lane != nullptr &&
         (!sent.lane->HasEvents() || HasCounter(qp, sent) || !sent.lane->UsesEvents());
}

// Fails only if the host has ended.
void CallForLane(const QueuePair& qp, CallOp op) {
  const int before = errno;
  (void)client::Call(op, HandleIn{qp.base.handle, HandleOf(qp.base.context)});
  errno = before;
}

// Raises the event that is recorded in the lane.
void RaiseSentEvent(QueuePair& qp) {
  if (!client::RaiseCounter(qp.sent.counter)) CallForLane(qp, CallOp::kRaiseLaneEvent);
}

// Adds the messages that the caller has filled, and raises the event of the receiver's queue.
bool AddAndRaise(QueuePair& qp, const LaneCount& added, uint32_t messages, bool is_solicited) {
  SendLane& lane = *qp.sent.lane;
  if (!qp.sent.has_counter || !lane.HasEvents()) {
    if (!lane.Add(added.number, added.count, messages)) return false;
    // The receiver may have armed its queue for the first time.
    if (lane.UsesEvents()) CallForLane(qp, CallOp::kCloseSentLane);
    return true;
  }
  // A signal handler may wait for a thread that awaits the event.
  std::optional<client::DeferredSignals> deferred;
  if (lane.Armed().Asks(is_solicited)) {
    // The program may have closed descriptors that it did not open. Then the message needs a host.
    if (!client::IsRaisable(qp.sent.counter)) return false;
    deferred.emplace(client::kEndingSignals);
  }
  if (!lane.Add(added.number, added.count, messages)) return false;
  if (lane.RecordEvent(added.number, added.count + messages, is_solicited)) RaiseSentEvent(qp);
  return true;
}

// Copies the payload of a SEND. Returns false if the host must read it.
bool CopyPayload(QueuePair& qp, const Permit& permit, const SendEntry& wqe, std::byte* to) {
  if ((wqe.send_flags & IBV_SEND_INLINE) != 0) {
    memcpy(to, wqe.Data(), wqe.length);
    return true;
  }
  if (wqe.num_sge > 1) return false;
  if (wqe.length == 0) return true;
  const auto& sge = wqe.Sges()[0];
  if (permit.own.key == 0 || !permit.own.Covers(sge.lkey, sge.addr, sge.length, 0)) return false;
  const uint64_t address = permit.own.AddressOf(sge.addr);
  if (wqe.state != kPayloadTaken || address != sge.addr) {
    return qp.memory.Read(to, address, sge.length);
  }
  memcpy(to, wqe.Taken(wqe.num_sge), sge.length);
  return true;
}

// Writes all of a message but its payload.
void Fill(SendLane& lane, uint32_t count, const SendEntry& wqe, bool is_solicited,
          uint64_t now_ns) {
  LaneMessage& message = lane.MessageAt(count);
  const bool has_immediate = wqe.opcode == IBV_WR_SEND_WITH_IMM;
  message.length = wqe.length;
  message.flags = (has_immediate ? LaneMessage::kHasImmediate : 0) |
                  (is_solicited ? LaneMessage::kIsSolicited : 0);
  message.immediate = wqe.ex.imm_data;
  message.acknowledged = lane.Acknowledged();
  const LaneMessage* const last = count == 0 ? nullptr : &lane.MessageAt(count - 1);
  message.bytes = (last == nullptr ? 0 : last->bytes) + wqe.length;
  message.extra_bytes = (last == nullptr ? 0 : last->extra_bytes) + (-wqe.length & 3) +
                        (has_immediate ? sizeof message.immediate : 0);
  message.added_ns = now_ns;
}

// Adds the queue pair to the list of its receive CQ, or removes it.
void SetListed(QueuePair& qp, bool is_listed) {
  CompletionQueue& cq = *Of(qp.base.recv_cq);
  QueuePair** link = &cq.lanes;
  while (*link != nullptr && *link != &qp) link = &(*link)->received.next;
  if (is_listed == (*link == &qp)) return;
  if (is_listed) {
    qp.received.next = std::exchange(cq.lanes, &qp);
  } else {
    *link = qp.received.next;
  }
}

QueuePair*& LanePlaceOf(CompletionQueue& cq, uint32_t qp_num) {
  return cq.had_lanes[qp_num % CompletionQueue::kLanePlaces];
}

// Takes messages from an open lane, which the process has mapped. The caller holds the receive
// lock, the lock of the queue, and a LaneListGuard.
bool UseOffer(QueuePair& qp, const LaneOffer& offer) {
  ReceivedLane& mine = qp.received;
  mine.id = offer.lane;
  mine.number = offer.number;
  mine.receive_index = mine.next_checked = offer.receive_index;
  mine.room = 0;
  mine.room_bytes = kMaxLaneBytes;
  mine.region = offer.region;
  mine.completion = offer.completion;
  SetListed(qp, true);
  LanePlaceOf(*Of(qp.base.recv_cq), qp.base.qp_num) = &qp;
  if (UseLaneEvents(qp, offer.takes_arming != 0)) return true;
  mine.number = 0;  // the next call tries again
  return false;
}

// Uses the lane that the host offers now. Returns false if there is none.
bool Open(QueuePair& qp) {
  const LaneOffer offer = qp.control->lane.Read();
  if (offer.number == 0) return false;
  CompletionQueue& cq = *Of(qp.base.recv_cq);
  ReceivedLane& mine = qp.received;
  std::atomic_ref refuses(cq.control->refuses_lanes);
  // Polls of a queue for one thread take no lock.
  if (cq.has_timestamps || cq.single_threaded) refuses.store(1, std::memory_order_seq_cst);
  if (refuses.load(std::memory_order_seq_cst) != 0) return false;
  if (mine.refused_id == offer.lane) return false;
  SendLane* const lane = mine.id == offer.lane ? mine.lane : Map(qp, offer.lane, true);
  if (lane == nullptr) {
    mine.refused_id = offer.lane;
    return false;
  }
  bool may_unmap = true;
  if (lane != mine.lane) may_unmap = EndLaneEvents(qp);
  SendLane* unused = nullptr;
  bool is_usable = false;
  {
    const LaneListGuard list_guard;
    // This thread may hold the lock itself, between ibv_start_poll and ibv_end_poll.
    if (!cq.lock.TryLock()) {
      if (lane != mine.lane) client::UnmapLane(lane);
      return false;
    }
    if (lane != mine.lane) unused = std::exchange(mine.lane, lane);
    is_usable = UseOffer(qp, offer);
    cq.lock.Unlock();
  }
  if (unused != nullptr && may_unmap) client::UnmapLane(unused);
  return is_usable;
}

// Returns how many bytes the receive takes without a host. Nothing if it needs one.
uint32_t BytesOf(const ReceivedLane& lane, const rxe_recv_wqe& wqe) {
  const auto& sge = *reinterpret_cast<const rxe_sge*>(&wqe + 1);
  if (wqe.dma.num_sge != 1 ||
      !lane.region.Covers(sge.lkey, sge.addr, sge.length, IBV_ACCESS_LOCAL_WRITE)) {
    return 0;
  }
  return sge.length;
}

// Lets the peer add messages for receives that were not checked. The caller holds the receive lock.
void AddRoom(QueuePair& qp, uint32_t most) {
  ReceivedLane& mine = qp.received;
  const uint32_t before = mine.room, producer = qp.recv_ring.Producer();
  while (mine.next_checked != producer && mine.room - before < most) {
    const uint32_t bytes = BytesOf(mine, *qp.recv_ring.SlotAs<rxe_recv_wqe>(mine.next_checked));
    if (bytes == 0) break;
    mine.room_bytes = std::min(mine.room_bytes, bytes);
    mine.next_checked = qp.recv_ring.Next(mine.next_checked);
    mine.room++;
  }
  if (mine.room != before) mine.lane->SetRoom(mine.number, mine.room, mine.room_bytes);
}

// Returns the messages that the lane has for the program.
LaneWaiting WaitingIn(const ReceivedLane& mine) { return mine.lane->Waiting(mine.number); }

void Place(const ReceivedLane& mine, const rxe_sge& sge, const LaneMessage& message,
           ProgramMemory& memory) {
  const uint32_t length = std::min({message.length, kMaxLaneBytes, sge.length});
  // Skip memory that was unmapped, as payloads.cc does.
  if (length > 0) (void)memory.Write(mine.region.AddressOf(sge.addr), message.payload, length);
}

// Returns true if the lane is closed, and all its messages are in their receives.
bool IsOver(const ReceivedLane& mine) {
  return mine.lane->Added().number != mine.number && WaitingIn(mine).count == 0 &&
         mine.lane->IsQuiet();
}

// Removes the queue pairs from the queue's list whose lanes are over. A poll looks at each queue
// pair in the list. The next opening adds it again.
void RemoveClosed(CompletionQueue& cq) {
  QueuePair* over = nullptr;
  for (QueuePair* qp = cq.lanes; qp != nullptr && over == nullptr; qp = qp->received.next) {
    if (IsOver(qp->received)) over = qp;
  }
  if (over == nullptr) return;
  // Open takes these two locks in the other order, so this does not wait.
  const LaneListGuard list_guard(std::try_to_lock);
  if (!list_guard) return;
  for (QueuePair **link = &cq.lanes, *qp = *link; qp != nullptr; qp = *link) {
    if (IsOver(qp->received)) {
      *link = std::exchange(qp->received.next, nullptr);
    } else {
      link = &qp->received.next;
    }
  }
}

// Returns true if the program has polled the completions of all requests that the host executes. A
// message may be the answer to one of them.
bool HasCompleted(const QueuePair& qp) {
  return qp.send_ring.Producer() ==
         std::atomic_ref(qp.control->completed).load(std::memory_order_acquire);
}

// A receive whose message a thread takes. Another thread may post a receive to the slot as soon as
// the message is taken.
struct TakenReceive {
  uint64_t wr_id;
  rxe_sge sge;
};

ibv_wc CompletionOf(const ReceivedLane& mine, const LaneMessage& message, uint64_t wr_id) {
  ib_uverbs_wc wc = mine.completion;
  wc.wr_id = wr_id;
  wc.byte_len = std::min(message.length, kMaxLaneBytes);
  if ((message.flags & LaneMessage::kHasImmediate) != 0) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.ex.imm_data = message.immediate;
  }
  ibv_wc out;
  memcpy(&out, &wc, sizeof out);
  return out;
}

// Takes the next `count` messages of the lane, at most kMostTaken. Returns false if the host has
// taken the first one.
bool TakeSome(CompletionQueue& cq, QueuePair& qp, uint32_t first, uint32_t count, ibv_wc* out) {
  const ReceivedLane& mine = qp.received;
  SendLane& lane = *mine.lane;
  // The host takes the messages before it adds a completion. So one that is there came first. What
  // it has taken must be in the ring.
  if (lane.Placed() != first || !cq.ring.Empty()) return false;
  TakenReceive receives[kMostTaken];
  const uint32_t index = mine.receive_index + first;
  for (uint32_t i = 0; i < count; i++) {
    const auto& wqe = *qp.recv_ring.SlotAs<rxe_recv_wqe>(index + i);
    receives[i] = {wqe.wr_id, *reinterpret_cast<const rxe_sge*>(&wqe + 1)};
  }
  if (!lane.Take(mine.number, first, count)) return false;
  client::AcquireFromDevice();
  for (uint32_t i = 0; i < count; i++) {
    const LaneMessage& message = lane.MessageAt(first + i);
    out[i] = CompletionOf(mine, message, receives[i].wr_id);
    Place(mine, receives[i].sge, message, cq.memory);
  }
  lane.HavePlaced(count);
  const uint32_t from = qp.recv_ring.Distance(0, index);
  (void)qp.recv_ring.MoveConsumer(from, from + count);
  return true;
}

// The queue pair whose lane has the next message, and how many messages of this lane precede those
// of all other lanes.
struct NextMessages {
  QueuePair* qp;
  uint32_t count;
};

NextMessages NextOf(CompletionQueue& cq, const LaneOrder& order) {
  QueuePair* next = nullptr;
  uint64_t until_ns = order.latest_ns();
  for (QueuePair* qp = cq.lanes; qp != nullptr; qp = qp->received.next) {
    const LaneCursor& cursor = qp->received.cursor;
    if (!order.IsDue(cursor)) continue;
    if (next == nullptr || cursor.next_ns < next->received.cursor.next_ns) {
      if (next != nullptr) until_ns = std::min(until_ns, next->received.cursor.next_ns);
      next = qp;
    } else {
      until_ns = std::min(until_ns, cursor.next_ns);
    }
  }
  if (next == nullptr) return {};
  LaneCursor at = next->received.cursor;
  uint32_t count = 0;
  do {
    LaneOrder::Advance(*next->received.lane, at);
    count++;
  } while (count < kMostTaken && at.has_message() && at.next_ns <= until_ns);
  return {next, count};
}

// Waits until the receiver's queue pair has completed the requests that this one has executed. Only
// for the first message of a lane, which may be the answer to such a request, faster than the
// request's acknowledgement. If the answer passed the hosts, the next lane would come too late for
// the next answer as well, and so on. Hosts open few lanes while none is used, so few messages
// wait. Returns false if the message must pass the hosts.
bool AwaitCompleted(SendLane& lane, const LaneCount& added) {
  for (client::YieldBudget budget; budget.Take();) {
    sched_yield();
    if (lane.Added().word() != added.word()) return false;
    if (lane.HasCompleted()) return true;
  }
  return false;
}

// Waits until the receiver has taken messages. A stream is as fast as its receiver then: through
// the hosts it would use up the receives of a receiver that waits for a processor. Returns false if
// the messages must pass the hosts.
bool AwaitRoom(QueuePair& qp, const LaneCount& added, uint32_t length, uint32_t count) {
  SentLane& sent = qp.sent;
  // A program that has taken nothing since the last wait may not poll at all.
  const uint32_t taken = sent.lane->Taken().count;
  if (taken == std::exchange(sent.taken_before, taken)) return false;
  if (sent.skipped_waits > 0) {
    sent.skipped_waits--;
    return false;
  }
  const auto has_room = [&] {
    return sent.lane->HasRoom(added.number, added.count, length, count);
  };
  for (client::ParallelWait wait(kMostAwaitedRoom_ns); wait.Take();) {
    if (has_room()) {
      sent.vain_waits = 0;
      return true;
    }
    if (sent.lane->Added().word() != added.word()) return false;
  }
  sent.vain_waits = std::min(sent.vain_waits + 1, kMostVainWaits);
  sent.skipped_waits = (uint32_t{1} << sent.vain_waits) - 1;
  return false;
}

}  // namespace

bool AwaitLane(QueuePair& qp, uint32_t index, uint32_t count) {
  const Permit permit = qp.control->permit.Read();
  if (permit.number == 0 || permit.index != index || permit.lane == 0) return false;
  if (!UseSent(qp, permit.lane)) return false;
  SendLane& lane = *qp.sent.lane;
  const LaneCount added = lane.Added();
  uint32_t length = 0;
  for (uint32_t i = 0; i < count; i++) {
    length = std::max(length, qp.send_ring.SlotAs<SendEntry>(index + i)->length);
  }
  if (added.number != permit.lane_number || !lane.MayFit(length, count)) return false;
  qp.sent.number = added.number;
  if (!lane.HasRoom(added.number, added.count, length, count) &&
      !AwaitRoom(qp, added, length, count)) {
    return false;
  }
  return lane.HasCompleted() || (added.count == 0 && AwaitCompleted(lane, added));
}

bool AddToLane(QueuePair& qp, uint32_t index, uint32_t count) {
  const Permit permit = qp.control->permit.Read();
  SendLane& lane = *qp.sent.lane;
  const LaneCount added = lane.Added();
  if (permit.number == 0 || permit.lane != qp.sent.id || permit.lane_number != qp.sent.number ||
      added.number != qp.sent.number) {
    return false;
  }
  bool is_solicited = false;
  for (uint32_t i = 0; i < count; i++) {
    const auto& wqe = *qp.send_ring.SlotAs<SendEntry>(index + i);
    is_solicited |= (wqe.send_flags & IBV_SEND_SOLICITED) != 0;
  }
  for (uint32_t i = 0; i < count; i++) {
    const auto& wqe = *qp.send_ring.SlotAs<SendEntry>(index + i);
    if (!CopyPayload(qp, permit, wqe, lane.MessageAt(added.count + i).payload)) return false;
    Fill(lane, added.count + i, wqe, is_solicited, qp.memory.now_ns());
  }
  return AddAndRaise(qp, added, count, is_solicited);
}

void GiveRoom(QueuePair& qp) {
  ReceivedLane& mine = qp.received;
  const uint32_t number = qp.control->lane.Number();
  if (number == 0 || client::OtherOwner() != 0 || !client::MayCall()) return;
  if (number != mine.number && !Open(qp)) return;
  AddRoom(qp, kMostChecked);
}

void RenewLane(CompletionQueue& cq, uint32_t qp_num) {
  QueuePair* const qp = LanePlaceOf(cq, qp_num);
  if (qp == nullptr || qp->base.qp_num != qp_num) return;
  const uint32_t number = qp->control->lane.Number();
  if (number == 0 || number == qp->received.number || client::OtherOwner() != 0 ||
      !client::MayCall()) {
    return;
  }
  // PostRecv takes these locks in the other order, so this does not wait.
  const LaneListGuard list_guard(std::try_to_lock);
  if (!list_guard || !qp->recv_lock.TryLock()) return;
  const LaneOffer offer = qp->control->lane.Read();
  if (offer.number != 0 && offer.lane == qp->received.id && qp->recv_ring.IsProducersStill() &&
      UseOffer(*qp, offer)) {
    AddRoom(*qp, kMostCheckedByPoll);
  }
  qp->recv_lock.Unlock();
}

int TakeFromLanes(CompletionQueue& cq, ibv_wc* out, int count) {
  LaneOrder order;
  for (QueuePair* qp = cq.lanes; qp != nullptr; qp = qp->received.next) {
    order.Note(*qp->received.lane, qp->received.number, qp->received.cursor);
  }
  if (!order.has_any()) return 0;
  const bool has_several = cq.lanes->received.next != nullptr;
  for (QueuePair* qp = cq.lanes; has_several && qp != nullptr; qp = qp->received.next) {
    order.LookAgain(*qp->received.lane, qp->received.number, qp->received.cursor);
    // The host moves messages of this lane to the ring. They may precede those of other lanes.
    if (!qp->received.lane->IsQuiet()) return 0;
  }
  cq.memory.Begin();
  int taken = 0;
  while (taken < count) {
    const auto [qp, messages] = NextOf(cq, order);
    if (qp == nullptr) break;
    if (!HasCompleted(*qp)) {
      // The host completes the requests, and then takes the messages.
      if (client::MayCall()) CloseAllLanes(cq);
      break;
    }
    LaneCursor& cursor = qp->received.cursor;
    const uint32_t some = std::min(messages, static_cast<uint32_t>(count - taken));
    if (!TakeSome(cq, *qp, cursor.next, some, out + taken)) break;
    taken += static_cast<int>(some);
    for (uint32_t i = 0; i < some; i++) LaneOrder::Advance(*qp->received.lane, cursor);
  }
  return taken;
}

void AwaitMovedMessages(CompletionQueue& cq) {
  for (QueuePair* qp = cq.lanes; qp != nullptr; qp = qp->received.next) {
    SendLane& lane = *qp->received.lane;
    for (int i = 0; i < kMaxYieldsForMoving && !lane.IsQuiet() && !client::HostIsGone(); i++) {
      client::YieldToHost();
    }
  }
  RemoveClosed(cq);
}

bool MayHaveMessages(CompletionQueue& cq) {
  if (std::atomic_ref(cq.lanes).load(std::memory_order_relaxed) == nullptr) return false;
  // The thread that polls now may take the messages.
  if (!cq.lock.TryLock()) return true;
  bool has = false;
  for (QueuePair* qp = cq.lanes; qp != nullptr; qp = qp->received.next) {
    has |= WaitingIn(qp->received).count > 0 || !qp->received.lane->IsQuiet();
  }
  cq.lock.Unlock();
  return has;
}

void PlaceFromLanes(CompletionQueue& cq, ProgramMemory& memory) {
  for (QueuePair* qp = cq.lanes; qp != nullptr; qp = qp->received.next) {
    const LaneWaiting waiting = WaitingIn(qp->received);
    for (uint32_t i = 0; i < waiting.count; i++) {
      const uint32_t index = qp->received.receive_index + waiting.first + i;
      const rxe_sge sge =
          *reinterpret_cast<const rxe_sge*>(qp->recv_ring.SlotAs<rxe_recv_wqe>(index) + 1);
      Place(qp->received, sge, qp->received.lane->MessageAt(waiting.first + i), memory);
    }
  }
}

void ForgetLanes(QueuePair& qp) {
  if (qp.received.lane != nullptr) {
    {
      const LaneListGuard list_guard;
      ForkLockGuard guard(Of(qp.base.recv_cq)->lock);
      SetListed(qp, false);
      QueuePair*& place = LanePlaceOf(*Of(qp.base.recv_cq), qp.base.qp_num);
      if (place == &qp) place = nullptr;
    }
    if (EndLaneEvents(qp)) client::UnmapLane(qp.received.lane);
  }
  ForgetSent(qp);
}

}  // namespace rdmaemu::shim
