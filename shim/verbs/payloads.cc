#include "shim/verbs/payloads.h"

#include <sched.h>
#include <string.h>

#include "shim/verbs/lanes.h"

namespace rdmaemu::shim {
namespace {

// How often fork() yields to a thread or host that places a payload of at most kSlabBytes. fork()
// must also continue if that thread has been stopped.
constexpr int kMaxYieldsForPlacing = 1000;

bool IsFence(const SendEntry& wqe) {
  // rxe executes LOCAL_INV only after all requests before it have completed.
  return (wqe.send_flags & IBV_SEND_FENCE) != 0 || wqe.opcode == IBV_WR_LOCAL_INV;
}

// Returns true if a fence is in the send queue at or before `index`. Such a request starts only
// after earlier READs and atomics have written their results. The request's payload may contain
// these results.
bool IsBehindFence(QueuePair& qp, uint32_t index, const SendEntry& wqe) {
  if (IsFence(wqe)) {
    qp.has_fence = true;
    qp.last_fence = index;
    return true;
  }
  if (!qp.has_fence) return false;
  const uint32_t consumer = qp.send_ring.Consumer();
  qp.has_fence =
      qp.send_ring.Distance(consumer, qp.last_fence) < qp.send_ring.Distance(consumer, index);
  return qp.has_fence;
}

bool HasPayload(uint32_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// The caller has claimed the slot.
void Place(ReceiveSlot& slot, ProgramMemory& memory) {
  const std::byte* from = slot.payload;
  for (uint32_t i = 0; i < slot.pieces && i < ReceiveSlot::kMaxPieces; i++) {
    // Skip memory that was unmapped. A device would write to the pinned pages, which nobody can
    // see.
    (void)memory.Write(slot.to[i].address, from, slot.to[i].length);
    from += slot.to[i].length;
  }
  slot.SetState(ReceiveSlot::kPlaced);
}

// The queues whose payloads fork() places. No thread calls the host while it holds this mutex.
pthread_mutex_t g_forkable_mutex = PTHREAD_MUTEX_INITIALIZER;
CompletionQueue* g_forkable = nullptr;

void PlaceAll(CompletionQueue& cq, ProgramMemory& memory) {
  if (!cq.ring.IsConsumersStill()) return;
  // Do not take the queue's lock, because the forking thread may be between start_poll and
  // end_poll.
  PlaceFromLanes(cq, memory);
  const uint32_t producer = cq.ring.Producer();
  for (uint32_t at = cq.ring.Consumer(); at != producer; at = cq.ring.Next(at)) {
    if (cq.ring.SlotAs<CqEntry>(at)->payload != kPayloadWaits) continue;
    ReceiveSlot& slot = cq.slots[at];
    if (slot.Claim()) {
      Place(slot, memory);
      continue;
    }
    std::atomic_ref state(slot.state);
    for (int i = 0; i < kMaxYieldsForPlacing; i++) {
      if (state.load(std::memory_order_acquire) != ReceiveSlot::kTaken) break;
      sched_yield();
    }
  }
}

// The caller holds the mutex.
void PlacePublished(const ibv_context* only) {
  // A host inside this process serves no child, and its queues may have been unmapped. In a child
  // that has not joined, the completions belong to its parent.
  if (client::IsEmbedded() || client::HostIsGone() || client::HasToJoin()) return;
  ProgramMemory memory{};
  memory.Begin();
  for (CompletionQueue* cq = g_forkable; cq != nullptr; cq = cq->forkable_next) {
    if (only == nullptr || cq->base.context == only) PlaceAll(*cq, memory);
  }
}

void PrepareFork() {
  const int before = errno;
  pthread_mutex_lock(&g_forkable_mutex);
  PlacePublished(nullptr);
  errno = before;
}
void AfterForkInParent() { pthread_mutex_unlock(&g_forkable_mutex); }
void AfterForkInChild() { pthread_mutex_init(&g_forkable_mutex, nullptr); }

void RegisterPayloadForkHandlers() {
  pthread_atfork(PrepareFork, AfterForkInParent, AfterForkInChild);
}

// The caller holds the mutex.
void Unlink(CompletionQueue& cq) {
  if (!cq.is_forkable) return;
  cq.is_forkable = false;
  if (cq.forkable_next != nullptr) cq.forkable_next->forkable_previous = cq.forkable_previous;
  (cq.forkable_previous != nullptr ? cq.forkable_previous->forkable_next : g_forkable) =
      cq.forkable_next;
  cq.forkable_previous = cq.forkable_next = nullptr;
}

}  // namespace

LaneListGuard::LaneListGuard() : holds_(true) { pthread_mutex_lock(&g_forkable_mutex); }
LaneListGuard::LaneListGuard(std::try_to_lock_t)
    : holds_(pthread_mutex_trylock(&g_forkable_mutex) == 0) {}
LaneListGuard::~LaneListGuard() {
  if (holds_) pthread_mutex_unlock(&g_forkable_mutex);
}

void TakePayload(QueuePair& qp, uint32_t index) {
  SendEntry& wqe = *qp.send_ring.SlotAs<SendEntry>(index);
  wqe.state = 0;
  if (!qp.takes_payloads || IsBehindFence(qp, index, wqe) ||
      (wqe.send_flags & IBV_SEND_INLINE) != 0 || wqe.length == 0 || wqe.length > kSlabBytes ||
      !HasPayload(wqe.opcode)) {
    return;
  }
  std::byte* to = wqe.Taken(wqe.num_sge);
  const rxe_sge* const sges = wqe.Sges();
  for (uint32_t i = 0; i < wqe.num_sge; i++) {
    if (!qp.memory.Read(to, sges[i].addr, sges[i].length))
      return;  // the host will detect the error
    to += sges[i].length;
  }
  wqe.state = kPayloadTaken;
}

void FetchPayload(CompletionQueue& cq, uint32_t index) {
  ReceiveSlot& slot = cq.slots[index];
  if (slot.Claim()) return Place(slot, cq.memory);
  // The host places it, or has placed it. It must end before the program may use the buffer.
  std::atomic_ref state(slot.state);
  while (state.load(std::memory_order_acquire) == ReceiveSlot::kTaken && !client::HostIsGone()) {
    client::YieldToHost();
  }
}

void PlaceBeforeFork(CompletionQueue& cq) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, RegisterPayloadForkHandlers);
  pthread_mutex_lock(&g_forkable_mutex);
  if (!cq.is_forkable) {
    cq.is_forkable = true;
    cq.forkable_next = g_forkable;
    if (g_forkable != nullptr) g_forkable->forkable_previous = &cq;
    g_forkable = &cq;
  }
  pthread_mutex_unlock(&g_forkable_mutex);
}

void PlacePublishedPayloads(const ibv_context* only) {
  pthread_mutex_lock(&g_forkable_mutex);
  PlacePublished(only);
  pthread_mutex_unlock(&g_forkable_mutex);
}

void ForgetBeforeFork(CompletionQueue& cq) {
  pthread_mutex_lock(&g_forkable_mutex);
  Unlink(cq);
  pthread_mutex_unlock(&g_forkable_mutex);
}

void ForgetBeforeFork(const ibv_context* context) {
  pthread_mutex_lock(&g_forkable_mutex);
  for (CompletionQueue* cq = g_forkable; cq != nullptr;) {
    CompletionQueue* const next = cq->forkable_next;
    if (cq->base.context == context) Unlink(*cq);
    cq = next;
  }
  pthread_mutex_unlock(&g_forkable_mutex);
}

}  // namespace rdmaemu::shim
