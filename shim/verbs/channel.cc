// Completion channels: a counter on which threads wait, and a ring that names the queue of each
// count. The event of a request that the program executed itself is beside the ring, and the events
// of messages in lanes are in the lanes.

#include <fcntl.h>

#include "shim/client/deferred_signals.h"
#include "shim/client/uninterrupted.h"
#include "shim/client/yield_budget.h"
#include "shim/verbs/copy_jobs.h"
#include "shim/verbs/cq_events.h"
#include "shim/verbs/objects.h"

namespace rdmaemu::shim {
namespace {

// Without the events in lanes.
bool HasOwnEvent(Channel& channel) {
  return channel.ring.IsConsumersStill() && (!channel.ring.Empty() || channel.control->HasEvent());
}
bool HasEvent(Channel& channel) { return HasOwnEvent(channel) || HasLaneEvent(channel); }

// Yielding before sleeping shortens short waits. Meanwhile the thread makes copies that the host
// offers, as a polling thread does. Returns 0, or EINTR if a signal interrupts the call.
int YieldWhileEmpty(Channel& channel) {
  if (HasOwnEvent(channel) || client::IsEmbedded() || client::SleepsAtOnce()) return 0;
  const int flags = fcntl(channel.base.fd, F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) != 0) return 0;
  for (bool copies = true; copies;) {
    copies = false;
    const client::DeferredSignals deferred;
    for (client::YieldBudget budget; !copies && !HasEvent(channel) && budget.Take();) {
      copies = DoCopyJobs();
      if (!copies) client::YieldToHost();
    }
    if (HasEvent(channel)) return 0;
    if (deferred.HasInterrupt()) return EINTR;
  }
  return 0;
}

// Returns the queue of the event that was taken from the counter, and counts the event for that
// queue. Returns nullptr if the queue has been destroyed meanwhile. Processes that share the
// channel through fork compete for entries, as threads do.
CompletionQueue* TakeEntry(Channel& channel) {
  const ChannelUse use(channel);
  uint64_t cookie = 0;
  CompletionQueue* in_lane = nullptr;
  // A forked process shares the channel and has destroyed it.
  if (!channel.ring.IsConsumersStill()) return nullptr;
  for (;;) {
    const uint32_t consumer = channel.ring.Consumer();
    if (consumer == channel.ring.Producer()) {
      if (channel.control->Take(cookie)) break;
      in_lane = TakeLaneEvent(channel);
      if (in_lane != nullptr) break;
      TakeChannelOverflowOut reply{};
      const int error = client::Uninterrupted([&] {
        return CallOnHandle(CallOp::kTakeChannelOverflow, channel.base.context, channel.handle,
                            reply);
      });
      if (error == 0) {
        cookie = reply.cq_cookie;
      }
      break;
    }
    cookie = std::atomic_ref(channel.ring.SlotAs<ChannelEntry>(consumer)->cq_cookie).load();
    if (channel.ring.MoveConsumer(consumer, channel.ring.Next(consumer))) break;
  }
  auto* cq = in_lane != nullptr ? in_lane : FromCookie<CompletionQueue>(cookie);
  if (cq != nullptr) std::atomic_ref(cq->comp_events_reported).fetch_add(1);
  return cq;
}

}  // namespace
}  // namespace rdmaemu::shim

using namespace rdmaemu;
using namespace rdmaemu::shim;

RDMAEMU_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Channel* channel = New<Channel>();
  if (channel == nullptr) return nullptr;
  CreateChannelOut reply{};
  int fd = -1;
  int error = client::Call(CallOp::kCreateChannel, HandleIn{HandleOf(context), HandleOf(context)},
                           reply, &fd, 1);
  if (error == 0) {
    std::byte* const bytes = client::MapSpan(reply.ring);
    channel->control = reinterpret_cast<ChannelControl*>(bytes);
    channel->ring =
        RingAt(bytes, reply.ring, sizeof(ChannelControl), reply.slots, sizeof(ChannelEntry));
    if (!channel->ring) {
      error = errno;
      CallOnHandle(CallOp::kDestroyChannel, context, reply.handle);
      client::CloseCounter(fd);
    }
  }
  if (error != 0) {
    free(channel);
    return NullWith(error);
  }
  channel->base.context = context;
  channel->base.fd = fd;
  channel->handle = reply.handle;
  return &channel->base;
}

RDMAEMU_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* base) {
  ibv_context* context = base->context;
  pthread_mutex_lock(&context->mutex);
  const bool used = base->refcnt != 0;
  pthread_mutex_unlock(&context->mutex);
  if (used) return EBUSY;
  const int error = CallOnHandle(CallOp::kDestroyChannel, context, Of(base)->handle);
  if (error != 0 && error != EIO) return ErrnoWith(error);
  client::CloseCounter(base->fd);
  Free(Of(base));
  return 0;
}

RDMAEMU_EXPORT int ibv_get_cq_event(ibv_comp_channel* base, ibv_cq** cq_out,
                                    void** cq_context_out) {
  Channel& channel = *Of(base);
  for (;;) {
    int error = YieldWhileEmpty(channel);
    if (error == 0) error = rdmaemu_client_wait(base->fd);
    if (error != 0) return MinusOneWith(error);
    if (client::HostIsGone(channel.handle)) return MinusOneWith(EIO);
    CompletionQueue* cq = TakeEntry(channel);
    if (cq == nullptr) continue;
    *cq_out = &cq->base;
    *cq_context_out = cq->base.cq_context;
    return 0;
  }
}

RDMAEMU_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
