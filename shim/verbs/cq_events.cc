#include "shim/verbs/cq_events.h"

#include <algorithm>
#include <mutex>

#include "shim/client/machine_clock.h"

namespace rdmaemu::shim {
namespace {

// How often a thread begins anew because a lane was opened or closed while the thread armed the
// queue.
constexpr int kMostArmTries = 64;
// How often a thread yields to threads that use a lane or a channel.
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

// Moves the arming of a closed lane to the control block, and arms the queue there. The host does
// the same (CompletionQueue::MoveArming), and the first of the two has the lane's arming.
void ArmHere(CompletionQueue& cq, SendLane* lane, uint32_t kind) {
  CqControl& control = *cq.control;
  const uint32_t producer = cq.ring.Producer();
  std::atomic_ref armed(control.armed);
  uint32_t now = armed.load(std::memory_order_seq_cst);
  const uint32_t takes = std::atomic_ref(control.executed_takes).load(std::memory_order_relaxed);
  while (ArmedKind(now) == kCqArmedInLane) {
    const uint32_t word = ArmedWord(kind, cq.ring.Consumer(), takes);
    if (armed.compare_exchange_weak(now, word, std::memory_order_seq_cst)) break;
  }
  bool has_moved = false;
  if (ArmedKind(now) == kCqArmedInLane && lane != nullptr) {
    const LaneArm arm = lane->Disarm([](const LaneArm&) { return true; }, 0);
    if (lane->OwesEvent(arm, lane->Added().count)) {
      RaiseEvent(cq);
    } else {
      has_moved = arm.kind == kCqArmedAny;
      kind = std::max(kind, arm.kind);
    }
  }
  ArmCq(control, kind, cq.ring.Consumer());
  // While the arming moved, the host saw none.
  if (has_moved && cq.ring.Producer() != producer && control.DisarmAny()) RaiseEvent(cq);
}

// Arms the queue in its open lane, and moves an arming there. Returns false if the lane was closed.
bool ArmInLane(CompletionQueue& cq, SendLane& lane, uint32_t kind) {
  const uint32_t number = lane.Added().number;
  if ((number & LaneCount::kClosed) != 0) return false;
  CqControl& control = *cq.control;
  const uint32_t takes = std::atomic_ref(control.executed_takes).load(std::memory_order_relaxed);
  const uint32_t word = ArmedWord(kCqArmedInLane, cq.ring.Consumer(), takes);
  std::atomic_ref armed(control.armed);
  uint32_t before = armed.load(std::memory_order_seq_cst);
  for (;;) {
    const bool is_here = ArmedKind(before) != kCqArmedInLane;
    const uint32_t both = is_here ? std::max(kind, ArmedKind(before)) : kind;
    // First the lane: at each moment, one of the two places has the arming.
    const uint64_t arm = lane.Arm(number, both, takes);
    if (armed.compare_exchange_strong(before, word, std::memory_order_seq_cst)) break;
    // The host has raised the event of the arming that was here.
    if (both != kind && ArmedKind(before) == kCqUnarmed) lane.Weaken(arm, kind);
  }
  return lane.Added().number == number;
}

// Moves the arming to a lane that has no room for messages yet.
void MoveToLane(CompletionQueue& cq, SendLane& lane) {
  std::atomic_ref armed(cq.control->armed);
  uint32_t before = armed.load(std::memory_order_seq_cst);
  while (ArmedKind(before) == kCqArmedAny || ArmedKind(before) == kCqArmedSolicited) {
    const uint32_t number = lane.Added().number, kind = ArmedKind(before);
    if ((number & LaneCount::kClosed) != 0) return;
    const uint64_t arm = lane.Arm(number, kind, ArmedTakes(before));
    const uint32_t word = (before & ~kCqArmedMask) | kCqArmedInLane;
    if (armed.compare_exchange_strong(before, word, std::memory_order_seq_cst)) {
      if (lane.Added().number != number) ArmHere(cq, &lane, kCqUnarmed);
      return;
    }
    // The host has raised the event, unless another thread has moved the arming.
    if (ArmedKind(before) != kCqArmedInLane) lane.Weaken(arm, kCqUnarmed);
  }
}

QueuePair* Load(QueuePair*& at) { return std::atomic_ref(at).load(std::memory_order_seq_cst); }

// Returns the first queue pair whose lane `is_it` selects, or nullptr. The caller uses the channel.
template <class Predicate>
QueuePair* FindLane(Channel& channel, const Predicate& is_it) {
  QueuePair* qp = Load(channel.lanes);
  while (qp != nullptr && !is_it(*qp->received.lane)) qp = Load(qp->received.next_with_events);
  return qp;
}

// Before the queue is armed for the first time. UseLaneEvents reads `uses_events` after it has
// added the lane to the channel's list.
void BeginEvents(CompletionQueue& cq) {
  std::atomic_ref(cq.control->uses_events).store(1, std::memory_order_seq_cst);
  if (cq.base.channel == nullptr) return;
  Channel& channel = *Of(cq.base.channel);
  const ChannelUse use(channel);
  for (QueuePair* qp = Load(channel.lanes); qp != nullptr;
       qp = Load(qp->received.next_with_events)) {
    if (Of(qp->base.recv_cq) == &cq) qp->received.lane->SetUsesEvents(true);
  }
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
  std::atomic_ref uses(cq.control->uses_events);
  if (uses.load(std::memory_order_relaxed) == 0) BeginEvents(cq);
  for (int i = 0; i < kMostArmTries; i++) {
    const ArmedLane use(cq);
    if (IsOpen(use.lane())) {
      if (ArmInLane(cq, *use.lane(), kind)) return;
      continue;
    }
    ArmHere(cq, use.lane(), kind);
    // A thread that opens a lane stores `armed_lane` before it reads the arming.
    const ArmedLane now(cq);
    if (!IsOpen(now.lane())) return;
  }
}

bool AwaitArming(CompletionQueue& cq) {
  const std::atomic_ref users(cq.lane_users);
  for (int i = 0; i < kMaxYieldsForUsers; i++) {
    if (users.load(std::memory_order_seq_cst) == 0) return true;
    client::YieldToHost();
  }
  return false;
}

void ArmLater(CompletionQueue& cq) {
  const uint32_t kind = std::atomic_ref(cq.armed_later).exchange(kCqUnarmed);
  if (kind == kCqUnarmed) return;
  // A completion since a thread asked for the arming must raise an event. Any completion that the
  // queue has now may be such a one. A program polls after each event, so a spare event does no
  // harm.
  if (std::atomic_ref(cq.armed_lane).load() != nullptr) return RaiseEvent(cq);
  ArmQueue(cq, kind);
  if (cq.ring.Producer() == cq.ring.Consumer() && !cq.control->HasExecuted()) return;
  std::atomic_ref armed(cq.control->armed);
  uint32_t now = armed.load();
  while (ArmedKind(now) == kCqArmedAny || ArmedKind(now) == kCqArmedSolicited) {
    if (armed.compare_exchange_weak(now, kCqUnarmed)) return RaiseEvent(cq);
  }
}

void AwaitUsers(Channel& channel) {
  constexpr uint64_t kLongest_ns = 100'000'000;
  const std::atomic_ref users(channel.users), gone(channel.gone);
  const uint64_t begun_ns = client::MachineNow_ns();
  for (int i = 0; users.load() > gone.load(); i++) {
    if (i >= kMaxYieldsForUsers && client::MachineNow_ns() - begun_ns >= kLongest_ns) {
      return gone.store(users.load());
    }
    client::YieldToHost();
  }
}

bool UseLaneEvents(QueuePair& qp, bool takes_arming) {
  CompletionQueue& cq = *Of(qp.base.recv_cq);
  ReceivedLane& mine = qp.received;
  if (cq.base.channel == nullptr) return true;
  if (!mine.has_events) {
    Channel& channel = *Of(cq.base.channel);
    if (!channel.lock.TryLock()) return false;
    mine.next_with_events = channel.lanes;
    std::atomic_ref(channel.lanes).store(&qp, std::memory_order_seq_cst);
    mine.has_events = true;
    channel.lock.Unlock();
  }
  if (takes_arming) std::atomic_ref(cq.armed_lane).store(mine.lane, std::memory_order_seq_cst);
  mine.lane->SetUsesEvents(
      std::atomic_ref(cq.control->uses_events).load(std::memory_order_seq_cst) != 0);
  if (takes_arming) MoveToLane(cq, *mine.lane);
  return true;
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
    if (*link != nullptr) {
      std::atomic_ref(*link).store(mine.next_with_events, std::memory_order_seq_cst);
    }
    mine.has_events = false;
  }
  SendLane* lane = mine.lane;
  std::atomic_ref(cq.armed_lane).compare_exchange_strong(lane, nullptr, std::memory_order_seq_cst);
  AwaitUsers(channel);
  return AwaitArming(cq);
}

bool HasLaneEvent(Channel& channel) {
  if (Load(channel.lanes) == nullptr) return false;
  const ChannelUse use(channel);
  return FindLane(channel, [](SendLane& lane) { return lane.Armed().raised != 0; }) != nullptr;
}

CompletionQueue* TakeLaneEvent(Channel& channel) {
  QueuePair* const qp = FindLane(channel, [](SendLane& lane) { return lane.TakeRaised(); });
  return qp == nullptr ? nullptr : Of(qp->base.recv_cq);
}

}  // namespace rdmaemu::shim
