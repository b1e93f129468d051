// Completion queues. Calls create them. The program polls them from the shared ring, and arms them
// by a word next to the ring.

#include <sched.h>
#include <string.h>

#include "shim/verbs/cq_events.h"
#include "shim/verbs/lanes.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/payloads.h"

namespace rdmaemu::shim {
namespace {

static_assert(sizeof(ib_uverbs_wc) == sizeof(ibv_wc) &&
              offsetof(ib_uverbs_wc, wc_flags) == offsetof(ibv_wc, wc_flags) &&
              offsetof(ib_uverbs_wc, dlid_path_bits) == offsetof(ibv_wc, dlid_path_bits));

// Uses the queue that a reply describes. Returns 0 or an errno.
int Adopt(CompletionQueue& cq, const CqOut& reply) {
  std::byte* bytes = client::MapSpan(reply.queue);
  const Ring ring = RingAt(bytes, reply.queue, sizeof(CqControl), reply.slots, sizeof(CqEntry));
  if (!ring) return errno;
  if (sizeof(CqControl) + BytesWithReceiveSlab(reply.slots) > reply.queue.length) return EPROTO;
  cq.control = reinterpret_cast<CqControl*>(bytes);
  cq.ring = ring;
  cq.slots = reinterpret_cast<ReceiveSlot*>(bytes + sizeof(CqControl) +
                                            SlabOffset(reply.slots, sizeof(CqEntry)));
  cq.base.cqe = static_cast<int>(reply.entries);
  return 0;
}

}  // namespace

CompletionQueue* CreateCompletionQueue(ibv_context* context, uint32_t entries, void* cq_context,
                                       ibv_comp_channel* channel, uint32_t vector) {
  CompletionQueue* cq = New<CompletionQueue>();
  if (cq == nullptr) return nullptr;
  const uint32_t channel_handle = channel == nullptr ? 0 : Of(channel)->handle;
  const CreateCqIn in{Of(context)->handle, channel_handle, entries, vector, CookieOf(cq)};
  CqOut reply{};
  int error = client::Call(CallOp::kCreateCq, in, reply);
  if (error == 0) {
    error = Adopt(*cq, reply);
    if (error != 0) {
      DestroyCqOut destroyed{};
      CallOnHandle(CallOp::kDestroyCq, context, reply.handle, destroyed);
    }
  }
  if (error != 0) {
    free(cq);
    return NullWith(error);
  }
  cq->base.context = context;
  cq->base.channel = channel;
  cq->base.cq_context = cq_context;
  cq->base.handle = reply.handle;
  pthread_mutex_init(&cq->base.mutex, nullptr);
  pthread_cond_init(&cq->base.cond, nullptr);
  if (channel != nullptr) {
    pthread_mutex_lock(&context->mutex);
    channel->refcnt++;
    pthread_mutex_unlock(&context->mutex);
  }
  PlaceBeforeFork(*cq);
  return cq;
}

// Asks the processor for the completion that the host has written next, while this one is copied.
inline void PrepareToPoll(const CompletionQueue& cq, uint32_t index) {
  cq.ring.PrepareToRead(index);
  PrefetchToWrite(&cq.slots[index]);
  PrefetchToRead(cq.slots[index].payload);
}

namespace {

// The caller holds the queue's lock.
int PollLocked(CompletionQueue& cq, int count, ibv_wc* out) {
  if (!cq.ring.IsConsumersStill()) return 0;
  const uint32_t producer = cq.ring.Producer();
  uint32_t consumer = cq.ring.Consumer();
  if (consumer != producer) client::AcquireFromDevice();
  int taken = 0;
  for (CqEntry executed; taken < count && cq.control->TakeExecuted(executed);) {
    client::AcquireFromDevice();
    memcpy(&out[taken++], &executed.wc, sizeof *out);
  }
  const int before_ring = taken;
  bool begun = false;
  while (taken < count && consumer != producer) {
    const CqEntry& entry = *cq.ring.SlotAs<CqEntry>(consumer);
    if (entry.payload == kPayloadWaits) {
      if (!begun) cq.memory.Begin();
      begun = true;
      FetchPayload(cq, consumer);
    }
    memcpy(&out[taken++], &entry.wc, sizeof *out);
    consumer = cq.ring.Next(consumer);
    // The host writes the place of the next completion. Its processor then needs that memory.
    if (consumer != producer) PrepareToPoll(cq, consumer);
  }
  if (taken > before_ring) cq.ring.SetConsumer(consumer);
  for (int i = before_ring; i < taken; i++) {
    if (i == before_ring || out[i].qp_num != out[i - 1].qp_num) RenewLane(cq, out[i].qp_num);
  }
  if (cq.lanes != nullptr) taken += TakeFromLanes(cq, out + taken, count - taken);
  return taken;
}

}  // namespace

int PollCq(ibv_cq* base, int count, ibv_wc* out) {
  CompletionQueue& cq = *Of(base);
  if (client::HostIsGone(base->handle)) return MinusOneWith(EIO);
  cq.lock.Lock();
  int taken = PollLocked(cq, count, out);
  if (taken < count && cq.lanes != nullptr) {
    AwaitMovedMessages(cq);
    taken += PollLocked(cq, count - taken, out + taken);
  }
  cq.lock.Unlock();
  if (taken == 0) AfterEmptyPoll();
  return taken;
}

// Follows mlx5_cq_clean: moves the other entries towards the producer. The host writes behind the
// producer, so this does not disturb it.
void PurgeCompletions(CompletionQueue& cq, uint32_t qpn) {
  ForkLockGuard guard(cq.lock);
  if (!cq.ring.IsConsumersStill()) return;
  cq.control->RemoveExecuted([qpn](const CqEntry& entry) { return entry.wc.qp_num == qpn; });
  const uint32_t producer = cq.ring.Producer(), consumer = cq.ring.Consumer();
  if (consumer == producer) return;
  client::AcquireFromDevice();
  cq.memory.Begin();
  for (uint32_t at = consumer; at != producer; at = cq.ring.Next(at)) {
    CqEntry& entry = *cq.ring.SlotAs<CqEntry>(at);
    if (entry.payload == kPayloadWaits) FetchPayload(cq, at);
    entry.payload = 0;
  }
  uint32_t from = producer, to = producer;
  while (from != consumer) {
    from = cq.ring.Previous(from);
    const CqEntry& entry = *cq.ring.SlotAs<CqEntry>(from);
    if (entry.wc.qp_num == qpn) continue;
    to = cq.ring.Previous(to);
    if (to != from) *cq.ring.SlotAs<CqEntry>(to) = entry;
  }
  cq.ring.SetConsumer(to);
}

// Returns true if a forked process shares the queue and has destroyed it, or resized it. The caller
// has no lock.
static bool HasEnded(CompletionQueue& cq) {
  std::atomic_ref resizes(cq.resizes);
  const uint32_t before = resizes.load();
  return !cq.ring.IsConsumersStill() && (before & 1) == 0 && resizes.load() == before;
}

// Arms the queue, or leaves this to the thread that resizes the queue. Does not wait for that
// thread: a signal handler that arms the queue may have interrupted it.
static void ArmUnlessResized(CompletionQueue& cq, uint32_t kind) {
  const ArmedLane use(cq);  // a thread that begins to resize the queue waits for its end
  std::atomic_ref resizes(cq.resizes), later(cq.armed_later);
  if ((resizes.load() & 1) == 0) return ArmQueue(cq, kind);
  uint32_t now = later.load();
  while (now < kind && !later.compare_exchange_weak(now, kind)) {
  }
  if ((resizes.load() & 1) != 0) return;
  // The resizing thread may have looked before. One of the two threads gets the kind.
  kind = later.exchange(kCqUnarmed);
  if (kind != kCqUnarmed) ArmQueue(cq, kind);
}

// Fails with ENOENT for a queue that has ended, as on rxe (measured).
int RequestNotify(ibv_cq* base, int solicited_only) {
  if (HasEnded(*Of(base))) return ENOENT;
  ArmUnlessResized(*Of(base), solicited_only != 0 ? kCqArmedSolicited : kCqArmedAny);
  return 0;
}

}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                     ibv_comp_channel* channel, int vector) {
  if (entries <= 0 || vector < 0) return NullWith(EINVAL);
  CompletionQueue* cq = CreateCompletionQueue(context, static_cast<uint32_t>(entries), cq_context,
                                              channel, static_cast<uint32_t>(vector));
  return cq == nullptr ? nullptr : &cq->base;
}

// Returns 0 or a positive errno.
static int Resize(CompletionQueue& cq, uint32_t entries) {
  // No thread uses the old ring while the host moves the queue. Polls continue while this thread
  // waits for one that executes a request.
  ForkLockGuard execution_guard(cq.execution_lock);
  ForkLockGuard guard(cq.lock);
  ForgetBeforeFork(cq);
  // In a forked child, the number is odd if a thread of the parent was here.
  std::atomic_ref(cq.resizes).fetch_or(1);
  (void)AwaitArming(cq);
  CqOut reply{};
  int error = client::Call(CallOp::kResizeCq,
                           ResizeCqIn{cq.base.handle, entries, HandleOf(cq.base.context)}, reply);
  if (error == 0) error = Adopt(cq, reply);
  std::atomic_ref(cq.resizes).fetch_add(1);
  ArmLater(cq);
  PlaceBeforeFork(cq);
  return error;
}

RDMAEMU_EXPORT int ibv_resize_cq(ibv_cq* base, int entries) {
  if (entries <= 0) return ErrnoWith(EINVAL);
  const int error = Resize(*Of(base), static_cast<uint32_t>(entries));
  // Threads that poll wait for the lock. A loop of resizes would always have it.
  sched_yield();
  return ErrnoWith(error);
}

RDMAEMU_EXPORT int ibv_destroy_cq(ibv_cq* base) {
  CompletionQueue* cq = Of(base);
  ibv_comp_channel* channel = base->channel;
  DestroyCqOut reply{};
  ForgetBeforeFork(*cq);
  const int error = CallOnHandle(CallOp::kDestroyCq, base->context, base->handle, reply);
  if (error != 0) {
    PlaceBeforeFork(*cq);
    return ErrnoWith(error);
  }
  uint32_t reported = 0;
  if (channel != nullptr) {
    // A thread that took an event of this queue before the host withdrew the rest has counted it by
    // now.
    AwaitUsers(*Of(channel));
    reported = std::atomic_ref(cq->comp_events_reported).load();
  }
  WaitForAcks(base->mutex, base->cond, base->comp_events_completed, reported);
  WaitForAcks(base->mutex, base->cond, base->async_events_completed, reply.async_events_reported);
  if (channel != nullptr) {
    pthread_mutex_lock(&base->context->mutex);
    channel->refcnt--;
    pthread_mutex_unlock(&base->context->mutex);
  }
  pthread_mutex_destroy(&base->mutex);
  pthread_cond_destroy(&base->cond);
  Free(cq);
  return 0;
}
