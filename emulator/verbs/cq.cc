// Completion queues and channels: rings in shared memory, arming, and the resulting events.
#include <algorithm>
#include <atomic>
#include <utility>

#include "emulator/base/nothing_queued.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {
namespace {

struct MappedCq {
  Span memory;
  CqControl* control;
  Ring ring;
  ReceiveSlot* slots;
};

Result<MappedCq> MapCq(Arena& arena, uint32_t entries) {
  const uint32_t slots = Ring::SlotsFor(entries);
  const Result<Span> memory = arena.Allocate(sizeof(CqControl) + BytesWithReceiveSlab(slots));
  if (!memory) return Pass(memory.error());
  MappedCq mapped{*memory, reinterpret_cast<CqControl*>(memory->bytes),
                  Ring(memory->bytes + sizeof(CqControl), slots, sizeof(CqEntry)),
                  reinterpret_cast<ReceiveSlot*>(memory->bytes + sizeof(CqControl) +
                                                 SlabOffset(slots, sizeof(CqEntry)))};
  mapped.ring.Format(memory->number);
  return mapped;
}

// Returns false if the event is lost.
bool AddToChannel(CompletionChannel& channel, uint64_t cookie) {
  // While the overflow holds events, later events are also put there, to keep the order.
  if (channel.overflow.empty() && !channel.ring.Full()) {
    const uint32_t at = channel.ring.Producer();
    channel.ring.SlotAs<ChannelEntry>(at)->cq_cookie = cookie;
    channel.ring.SetProducer(channel.ring.Next(at));
  } else {
    if (channel.overflow.size() >= Verbs::kMaxChannelOverflow) return false;
    channel.overflow.push_back(cookie);
  }
  return true;
}

void RaiseChannel(CompletionChannel& channel, uint64_t cookie, EventCounters& counters) {
  if (AddToChannel(channel, cookie)) counters.Add(channel.counter, 1);
}

}  // namespace

bool CompletionQueue::Push(const CqEntry& entry, bool solicited) {
  // An entry whose payload is beside it has its place already.
  if (entry.payload == 0) TakeFromLane();
  if (!HasRoom()) {
    std::atomic_ref(control->overrun).store(1, std::memory_order_release);
    async->RaiseCq(*this, IBV_EVENT_CQ_ERR);
    return false;
  }
  *ring.SlotAs<CqEntry>(producer) = entry;
  const bool is_first = producer == published;
  producer = ring.Next(producer);
  ring.PrepareToWrite(producer);
  has_solicited |= solicited;
  if (batch->scopes_ == 0) {
    Publish();
  } else if (is_first) {
    batch->queues_.push_back(this);
  } else if (ring.Distance(published, producer) >= CompletionBatch::kMostUnpublished) {
    batch->Publish();
  }
  return true;
}

void CompletionQueue::Publish() {
  const bool solicited = std::exchange(has_solicited, false);
  // Disarm before the program can see the completions. A program that has polled them may arm the
  // queue for the next one.
  bool raises = channel != nullptr && Disarm(solicited, std::nullopt);
  context->share->has_new_completions = true;
  published = producer;
  ring.SetProducer(producer);
  if (channel == nullptr) return;
  // The program may have armed the queue meanwhile, before it saw the completions.
  if (Disarm(solicited, producer)) raises = true;
  if (raises) RaiseChannel(*channel, cookie, *counters);
}

void CompletionQueue::TakeFromLaneNow() { async->TakeFromLane(*this); }

void CompletionBatch::PublishAll() {
  for (CompletionQueue* const queue : queues_) queue->Publish();
  queues_.clear();
  holds_receives_ = false;
}

// `polled` is the consumer index of a program that has polled everything. A queue that was armed at
// this index stays armed.
bool CompletionQueue::Disarm(bool solicited, std::optional<uint32_t> polled) {
  // Pairs with the program's fence between arming and its last check of the ring. One of the two
  // sees the other's store. A read-modify-write acts as that fence, and TSan understands it.
  std::atomic_ref armed(control->armed);
  const uint32_t asked =
      polled ? armed.fetch_or(0, std::memory_order_seq_cst) : armed.load(std::memory_order_acquire);
  const uint32_t kind = ArmedKind(asked);
  if (kind == kCqUnarmed || (kind == kCqArmedSolicited && !solicited)) return false;
  if (polled && ArmedConsumer(asked) == *polled) return false;
  if (kind == kCqArmedInLane) {
    const auto asks = [solicited](const LaneArm& arm) { return arm.Asks(solicited); };
    return std::ranges::any_of(lanes, [&asks](const OpenLane& each) {
      return each.lane->Disarm(asks, 0).kind != kCqUnarmed;
    });
  }
  // Another thread may change "solicited" to "any" meanwhile. This event serves both of them.
  return armed.exchange(kCqUnarmed, std::memory_order_acq_rel) != kCqUnarmed;
}

void CompletionQueue::MoveArming(SendLane& closed, uint32_t added) {
  std::atomic_ref armed(control->armed);
  if (ArmedKind(armed.load(std::memory_order_seq_cst)) != kCqArmedInLane) return;
  const LaneArm arm = closed.Disarm([](const LaneArm&) { return true; }, 0);
  if (arm.kind == kCqUnarmed && lanes.size() > 1) return;  // another lane may have the arming
  const bool raises = closed.OwesEvent(arm, added);
  const uint32_t kind = raises ? kCqUnarmed : arm.kind;
  uint32_t now = armed.load(std::memory_order_seq_cst);
  while (ArmedKind(now) == kCqArmedInLane || ArmedKind(now) < kind) {
    if (armed.compare_exchange_weak(now, (now & ~kCqArmedMask) | kind)) break;
  }
  if (raises && channel != nullptr) RaiseChannel(*channel, cookie, *counters);
}

// ---- channels

Result<CompletionChannel*> Verbs::CreateChannel(GroupId id, Handle handle) {
  const Result<Context*> context = FindContext(id, handle);
  if (!context) return Pass(context.error());
  Group& group = GroupOf(id);
  if (Counts(id).channels >= kMaxChannels) return Fail(EMFILE);
  const Result<Span> memory = group.arena.Allocate(
      sizeof(ChannelControl) + Ring::BytesFor(kChannelSlots, sizeof(ChannelEntry)));
  if (!memory) return Pass(memory.error());
  const Result<CounterId> counter = environment_.counters.Create();
  if (!counter) {
    group.arena.Free(*memory);
    return Pass(counter.error());
  }
  auto channel = std::make_unique<CompletionChannel>();
  channel->context = *context;
  channel->counter = *counter;
  channel->memory = *memory;
  channel->control = reinterpret_cast<ChannelControl*>(memory->bytes);
  channel->ring = Ring(memory->bytes + sizeof(ChannelControl), kChannelSlots, sizeof(ChannelEntry));
  channel->ring.Format(memory->number);
  const auto adopted = Adopt(**context, INT64_MAX, std::move(channel));
  if (!adopted) {
    environment_.counters.Destroy(*counter);
    group.arena.Free(*memory);
  }
  return adopted;
}

Status Verbs::DestroyChannel(GroupId id, Handle handle) {
  const Result<CompletionChannel*> channel = Find<CompletionChannel>(id, handle);
  if (!channel) return Pass(channel.error());
  if ((*channel)->users != 0) return Fail(EBUSY);
  RemoveChannel(**channel);
  return {};
}

void Verbs::RemoveChannel(CompletionChannel& channel) {
  environment_.counters.Destroy(channel.counter);
  channel.ring.End();
  GroupOf(channel.context->group).arena.Free(channel.memory);
  Drop(*channel.context, channel);
}

Result<uint64_t> Verbs::TakeChannelEvent(GroupId id, Handle handle) {
  const Result<CompletionChannel*> found = Find<CompletionChannel>(id, handle);
  if (!found) return Pass(found.error());
  CompletionChannel& channel = **found;
  // The program found no event for a moment, while ForgetChannelEvents had taken them out.
  for (uint32_t tries = 0; tries <= channel.ring.usable() && !channel.ring.Empty(); tries++) {
    const uint32_t at = channel.ring.Consumer();
    const uint64_t cookie = channel.ring.SlotAs<ChannelEntry>(at)->cq_cookie;
    if (channel.ring.MoveConsumer(at, channel.ring.Next(at))) return cookie;
  }
  if (uint64_t cookie = 0; channel.control->Take(cookie)) return cookie;
  if (channel.overflow.empty()) return Fail(kNothingQueued);
  const uint64_t cookie = channel.overflow.front();
  channel.overflow.pop_front();
  return cookie;
}

// Removes the queue's events from its channel. The host takes all events out of the ring as a
// consumer does, concurrently with other readers. It puts back those of other queues. A reader that
// has already taken a count for an event of this queue finds an entry with cookie 0.
static void ForgetChannelEvents(CompletionChannel& channel, uint64_t cookie,
                                EventCounters& counters) {
  std::deque<uint64_t> kept;
  uint32_t dropped = 0;
  const auto sort = [&](uint64_t event) {
    if (event == cookie) {
      dropped++;
    } else {
      kept.push_back(event);
    }
  };
  for (uint32_t tries = 0; tries <= channel.ring.usable(); tries++) {
    const uint32_t from = channel.ring.Consumer(), to = channel.ring.Producer();
    std::deque<uint64_t> seen;
    for (uint32_t at = from; at != to; at = channel.ring.Next(at)) {
      seen.push_back(channel.ring.SlotAs<ChannelEntry>(at)->cq_cookie);
    }
    if (!channel.ring.MoveConsumer(from, to)) continue;
    for (const uint64_t event : seen) sort(event);
    break;
  }
  if (uint64_t event = 0; channel.control->Take(event)) sort(event);
  for (const uint64_t event : channel.overflow) sort(event);
  channel.overflow.clear();

  const uint32_t taken_back = dropped == 0 ? 0 : counters.Remove(channel.counter, dropped);
  for (uint32_t i = taken_back; i < dropped; i++) kept.push_front(0);
  for (const uint64_t event : kept) {
    if (channel.overflow.empty() && !channel.ring.Full()) {
      const uint32_t at = channel.ring.Producer();
      channel.ring.SlotAs<ChannelEntry>(at)->cq_cookie = event;
      channel.ring.SetProducer(channel.ring.Next(at));
    } else {
      channel.overflow.push_back(event);
    }
  }
}

// ---- queues

Result<CompletionQueue*> Verbs::CreateCq(GroupId id, const CqRequest& request) {
  const Result<Context*> found = FindContext(id, request.context);
  if (!found) return Pass(found.error());
  Context& context = **found;
  const Profile& profile = context.device->profile;
  CompletionChannel* channel = nullptr;
  if (request.channel != 0) {
    const Result<CompletionChannel*> asked = Find<CompletionChannel>(id, request.channel);
    if (!asked) return Fail(EBADF);  // the kernel identifies channels by file descriptors
    channel = *asked;
  }
  const auto most = static_cast<uint32_t>(profile.device.orig_attr.max_cqe);
  if (request.entries == 0 || request.entries > most ||
      request.completion_vector >= profile.completion_vectors) {
    return Fail(EINVAL);
  }
  Arena& arena = GroupOf(id).arena;
  const uint32_t entries = UsableDepth(profile.queue_depths, request.entries);
  const Result<MappedCq> mapped = MapCq(arena, entries);
  if (!mapped) return Pass(mapped.error());
  auto cq = std::make_unique<CompletionQueue>();
  cq->context = &context;
  cq->channel = channel;
  cq->cookie = request.cookie;
  cq->entries = entries;
  cq->control = mapped->control;
  cq->ring = mapped->ring;
  cq->slots = mapped->slots;
  cq->memory = mapped->memory;
  cq->counters = &environment_.counters;
  cq->async = this;
  cq->batch = &completions_;
  const auto adopted = Adopt(context, profile.device.orig_attr.max_cq, std::move(cq));
  if (!adopted) {
    arena.Free(mapped->memory);
    return adopted;
  }
  if (channel != nullptr) channel->users++;
  return adopted;
}

Result<CompletionQueue*> Verbs::ResizeCq(GroupId id, Handle handle, uint32_t entries) {
  const Result<CompletionQueue*> found = Find<CompletionQueue>(id, handle);
  if (!found) return found;
  CompletionQueue& cq = **found;
  const Profile& profile = cq.context->device->profile;
  if (!profile.resizes_cqs) return Fail(EOPNOTSUPP);
  Quiesce(QueuePayloads{cq});  // before it counts the completions; cq's old slots do not move
  completions_.Publish();
  const auto& limits = profile.device.orig_attr;
  const uint32_t consumer = cq.ring.Consumer();
  const uint32_t waiting = cq.ring.Distance(consumer, cq.producer);
  if (entries == 0 || entries > static_cast<uint32_t>(limits.max_cqe) ||
      entries < waiting + cq.control->CountExecuted()) {
    return Fail(EINVAL);
  }
  Arena& arena = GroupOf(id).arena;
  const uint32_t usable = UsableDepth(profile.queue_depths, entries);
  const Result<MappedCq> mapped = MapCq(arena, usable);
  if (!mapped) return Pass(mapped.error());
  Ring ring = mapped->ring;
  for (uint32_t i = 0; i < waiting; i++) {
    *ring.SlotAs<CqEntry>(i) = *cq.ring.SlotAs<CqEntry>(consumer + i);
    ring.SlotAs<CqEntry>(i)->payload = 0;
  }
  ring.SetProducer(waiting);
  const uint32_t armed = ArmedKind(std::atomic_ref(cq.control->armed).load());
  if (armed != kCqUnarmed) mapped->control->armed = ArmedWord(armed, kCqArmedElsewhere);
  mapped->control->overrun = std::atomic_ref(cq.control->overrun).load();
  mapped->control->refuses_lanes = std::atomic_ref(cq.control->refuses_lanes).load();
  mapped->control->uses_events = std::atomic_ref(cq.control->uses_events).load();
  CqEntry executed;
  for (uint32_t left = cq.control->CountExecuted(); left > 0; left--) {
    if (cq.control->TakeExecuted(executed)) mapped->control->PutExecuted(executed);
  }
  cq.ring.End();
  arena.Free(cq.memory);
  cq.memory = mapped->memory;
  cq.entries = usable;
  cq.control = mapped->control;
  cq.ring = ring;
  cq.slots = mapped->slots;
  cq.producer = cq.published = waiting;
  cq.consumer_seen = 0;
  return &cq;
}

Result<uint32_t> Verbs::DestroyCq(GroupId id, Handle handle) {
  const Result<CompletionQueue*> cq = Find<CompletionQueue>(id, handle);
  if (!cq) return Pass(cq.error());
  if ((*cq)->users != 0) return Fail(EBUSY);
  const uint32_t reported = (*cq)->async_reported;
  RemoveCq(**cq);
  return reported;
}

Status Verbs::RaiseCompletionEvent(GroupId id, Handle handle, EventPart part) {
  const Result<CompletionQueue*> found = Find<CompletionQueue>(id, handle);
  if (!found) return Pass(found.error());
  CompletionQueue& cq = **found;
  if (cq.channel == nullptr) return Fail(EINVAL);
  switch (part) {
    case EventPart::kAll:
      RaiseChannel(*cq.channel, cq.cookie, environment_.counters);
      break;
    case EventPart::kCount:
      environment_.counters.Add(cq.channel->counter, 1);
      break;
    case EventPart::kEntry:
      (void)AddToChannel(*cq.channel, cq.cookie);
      break;
    default:
      return Fail(EINVAL);
  }
  return {};
}

Status Verbs::CloseLanes(GroupId id, Handle handle) {
  const Result<CompletionQueue*> cq = Find<CompletionQueue>(id, handle);
  if (!cq) return Pass(cq.error());
  if (transport_ != nullptr) transport_->CloseLanes();
  return {};
}

void Verbs::TakeFromLane(CompletionQueue& cq) {
  if (transport_ != nullptr) transport_->TakeFromLane(cq);
}

void Verbs::RemoveCq(CompletionQueue& cq) {
  Context& context = *cq.context;
  completions_.Publish();
  Quiesce(QueuePayloads{cq});
  if (cq.channel != nullptr) {
    ForgetChannelEvents(*cq.channel, cq.cookie, environment_.counters);
    cq.channel->users--;
  }
  ForgetAsync(context, cq.handle);
  cq.ring.End();
  GroupOf(context.group).arena.Free(cq.memory);
  Drop(context, cq);
}

}  // namespace rdmaemu
