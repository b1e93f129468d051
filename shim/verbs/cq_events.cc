#include "shim/verbs/cq_events.h"

#include <algorithm>
#include <mutex>

namespace rdmaemu::shim {
namespace {

// A lane may be opened and closed while a thread arms its queue. After so many attempts the thread
// closes it.
constexpr int kMostArmTries = 8;
// How often a thread that ends a lane yields to threads that use it.
constexpr int kMaxYieldsForUsers = 1000;

void RaisePart(CompletionQueue& cq, EventPart part) {
  const int before = errno;
  // Fails only if the host has ended. All counters are then readable.
  (void)client::Call(CallOp::kRaiseCq, RaiseCqIn{cq.base.handle, part});
  errno = before;
}

bool IsOpen(SendLane* lane) {
  return lane != nullptr && (lane->Added().number & LaneCount::kClosed) == 0;
}

uint32_t KindOf(CqControl& control) {
  return ArmedKind(std::atomic_ref(control.armed).load(std::memory_order_seq_cst));
}

// The lane was closed while this thread armed it. Either the host has moved the arming, or this
// thread does, as CompletionQueue::MoveArming.
void MoveBack(CompletionQueue& cq, SendLane& lane, uint32_t number) {
  const LaneArm arm = lane.Disarm([](const LaneArm&) { return true; }, 0);
  if (arm.kind == kCqUnarmed) return;
  const uint32_t added = lane.CountOf(number);
  if (added > 0 && !arm.IsAfter(added)) {
    const LaneMessage& last = lane.MessageAt(added - 1);
    if (arm.Asks((last.flags & LaneMessage::kIsSolicited) != 0)) return RaiseEvent(cq);
  }
  std::atomic_ref armed(cq.control->armed);
  uint32_t now = armed.load(std::memory_order_seq_cst);
  while (ArmedKind(now) == kCqArmedInLane || ArmedKind(now) < arm.kind) {
    if (armed.compare_exchange_weak(now, (now & ~kCqArmedMask) | arm.kind)) break;
  }
}

// Arms the queue in its open lane, and moves an arming there. Returns false if the arming must be
// in the control block.
bool ArmInLane(CompletionQueue& cq, SendLane& lane, uint32_t kind) {
  const uint32_t number = lane.Added().number;
  if ((number & LaneCount::kClosed) != 0) return false;
  CqControl& control = *cq.control;
  const uint32_t producer = cq.ring.Producer();
  const uint32_t takes = std::atomic_ref(control.executed_takes).load(std::memory_order_relaxed);
  const uint32_t word = ArmedWord(kCqArmedInLane, cq.ring.Consumer(), takes);
  std::atomic_ref armed(control.armed);
  uint32_t before = armed.load(std::memory_order_seq_cst);
  do {
    // The host knows which completions are solicited. So it keeps such an arming.
    if (ArmedKind(before) == kCqArmedSolicited) return false;
  } while (!armed.compare_exchange_weak(before, word, std::memory_order_seq_cst));
  const bool has_moved = ArmedKind(before) == kCqArmedAny;
  lane.Arm(number, has_moved ? kCqArmedAny : kind, takes);
  if (lane.Added().number != number) {
    MoveBack(cq, lane, number);
    return true;
  }
  // Nobody saw the arming while it moved.
  const bool has_completion =
      cq.ring.Producer() != producer || control.Executed() == CqControl::kFull;
  if (has_moved && has_completion && control.DisarmAny(&lane)) RaiseEvent(cq);
  return true;
}

}  // namespace

void CloseAllLanes(CompletionQueue& cq) {
  const int before = errno;
  // Fails only if the host has ended.
  (void)client::Call(CallOp::kCloseLanes, HandleIn{cq.base.handle, HandleOf(cq.base.context)});
  errno = before;
}

void RaiseEvent(CompletionQueue& cq) {
  if (cq.base.channel == nullptr) return;
  Channel& channel = *Of(cq.base.channel);
  const bool is_beside = channel.control->Reserve();
  if (is_beside) {
    channel.control->Put(CookieOf(&cq));
    if (client::RaiseCounter(channel.base.fd)) return;
  }
  RaisePart(cq, is_beside ? EventPart::kCount : EventPart::kAll);
}

void ArmQueue(CompletionQueue& cq, uint32_t kind) {
  CqControl& control = *cq.control;
  const auto arm_here = [&] { ArmCq(control, kind, cq.ring.Consumer()); };
  if (cq.base.channel == nullptr) return arm_here();
  // UseLaneEvents reads `uses_events` after Open has set `opens_lanes`. So one of the two threads
  // sees the other's store.
  std::atomic_ref uses(cq.uses_events);
  if (uses.load(std::memory_order_relaxed) == 0) {
    uses.store(1, std::memory_order_seq_cst);
    if (std::atomic_ref(cq.opens_lanes).load(std::memory_order_seq_cst) != 0) CloseAllLanes(cq);
  }
  for (int i = 0; i < kMostArmTries; i++) {
    const ArmedLane use(cq);
    if (!IsOpen(use.lane())) {
      if (KindOf(control) == kCqArmedInLane) CloseAllLanes(cq);
      arm_here();
      // A thread that opens a lane stores `armed_lane` before it reads the arming.
      const ArmedLane again(cq);
      if (!IsOpen(again.lane())) return;
    } else if (ArmInLane(cq, *use.lane(), kind)) {
      return;
    } else if (KindOf(control) == kCqArmedSolicited) {
      break;
    }
  }
  CloseAllLanes(cq);
  arm_here();
  // A lane that another thread has opened meanwhile.
  CloseAllLanes(cq);
}

bool UseLaneEvents(QueuePair& qp) {
  CompletionQueue& cq = *Of(qp.base.recv_cq);
  ReceivedLane& mine = qp.received;
  const bool uses = cq.base.channel != nullptr &&
                    std::atomic_ref(cq.uses_events).load(std::memory_order_seq_cst) != 0;
  std::atomic_ref(mine.lane->uses_events).store(uses ? 1 : 0, std::memory_order_relaxed);
  if (!uses) return true;
  if (!mine.has_events) {
    Channel& channel = *Of(cq.base.channel);
    if (!channel.lock.TryLock()) return false;
    mine.next_with_events = channel.lanes;
    std::atomic_ref(channel.lanes).store(&qp, std::memory_order_release);
    mine.has_events = true;
    channel.lock.Unlock();
  }
  std::atomic_ref(cq.armed_lane).store(mine.lane, std::memory_order_seq_cst);
  const uint32_t kind = KindOf(*cq.control);
  if (kind == kCqArmedAny) (void)ArmInLane(cq, *mine.lane, kCqArmedAny);
  return kind != kCqArmedSolicited;
}

bool EndLaneEvents(QueuePair& qp) {
  CompletionQueue& cq = *Of(qp.base.recv_cq);
  ReceivedLane& mine = qp.received;
  if (mine.lane == nullptr || !mine.has_events) return true;
  Channel& channel = *Of(cq.base.channel);
  {
    ForkLockGuard guard(channel.lock);
    while (mine.lane->TakeRaised()) RaisePart(cq, EventPart::kEntry);
    QueuePair** link = &channel.lanes;
    while (*link != nullptr && *link != &qp) link = &(*link)->received.next_with_events;
    if (*link != nullptr) *link = mine.next_with_events;
    mine.has_events = false;
  }
  SendLane* lane = mine.lane;
  std::atomic_ref(cq.armed_lane).compare_exchange_strong(lane, nullptr, std::memory_order_seq_cst);
  std::atomic_ref users(cq.lane_users);
  for (int i = 0; i < kMaxYieldsForUsers; i++) {
    if (users.load(std::memory_order_seq_cst) == 0) return true;
    client::YieldToHost();
  }
  return false;
}

bool HasLaneEvent(Channel& channel) {
  if (std::atomic_ref(channel.lanes).load(std::memory_order_acquire) == nullptr) return false;
  if (!channel.lock.TryLock()) return false;
  bool has = false;
  for (QueuePair* qp = channel.lanes; qp != nullptr; qp = qp->received.next_with_events) {
    has |= qp->received.lane->Armed().raised != 0;
  }
  channel.lock.Unlock();
  return has;
}

CompletionQueue* TakeLaneEvent(Channel& channel) {
  for (QueuePair* qp = channel.lanes; qp != nullptr; qp = qp->received.next_with_events) {
    if (qp->received.lane->TakeRaised()) return Of(qp->base.recv_cq);
  }
  return nullptr;
}

}  // namespace rdmaemu::shim
