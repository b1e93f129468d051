#include "emulator/verbs/verbs.h"

#include <cstddef>
#include <new>

#include "emulator/abi/process_page.h"
#include "emulator/base/async_events.h"
#include "emulator/base/nothing_queued.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {

Verbs::Verbs(Environment environment)
    : environment_(environment), handles_(environment.ids), qpns_(environment.random) {}

// Frees the objects without calls to the transports, which may be destroyed already. The arenas
// free their segments. Counters are file descriptors that no other code closes.
Verbs::~Verbs() {
  for (const auto& [id, group] : groups_) {
    for (const Handle handle : group->handles[static_cast<size_t>(ObjectKind::kChannel)]) {
      environment_.counters.Destroy(handles_.Find<CompletionChannel>(id, handle)->counter);
    }
    for (const Handle handle : group->handles[static_cast<size_t>(ObjectKind::kContext)]) {
      environment_.counters.Destroy(handles_.Find<Context>(id, handle)->async_counter);
    }
  }
}

Verbs::Group& Verbs::GroupOf(GroupId group) {
  std::unique_ptr<Group>& found = groups_[group];
  if (!found) found = std::make_unique<Group>(environment_.shared_memory);
  return *found;
}

// ---- what a group shares with its host

Result<Span> Verbs::DoorbellSpan(GroupId id) {
  Group& group = GroupOf(id);
  if (group.doorbells.length == 0) {
    const Result<Span> span = group.arena.Allocate(sizeof(DoorbellPage));
    if (!span) return Pass(span.error());
    group.doorbells = *span;
    auto* const page = new (span->bytes) DoorbellPage{};
    page->no_payload_shortcuts = environment_.payload_shortcuts ? 0 : 1;
    group.share.jobs = &page->jobs;
    group.share.jobs_place = {
        .segment = static_cast<uint32_t>(span->segment),
        .fd = environment_.shared_memory.Descriptor(span->segment),
        .offset = span->offset + static_cast<uint32_t>(offsetof(DoorbellPage, jobs))};
  }
  return group.doorbells;
}

DoorbellPage& Verbs::Doorbells(GroupId group) {
  return *reinterpret_cast<DoorbellPage*>(GroupOf(group).doorbells.bytes);
}

bool Verbs::TakeNewCompletions(GroupId group) {
  return std::exchange(GroupOf(group).share.has_new_completions, false);
}

QueuePair* Verbs::FindByDoorbell(GroupId id, uint32_t slot) {
  const auto group = groups_.find(id);
  if (group == groups_.end() || slot >= group->second->by_doorbell.size()) return nullptr;
  return group->second->by_doorbell[slot];
}

uint32_t Verbs::DoorbellSlots(GroupId id) const {
  const auto group = groups_.find(id);
  return group == groups_.end() ? 0 : static_cast<uint32_t>(group->second->by_doorbell.size());
}

Result<uint64_t> Verbs::SegmentLength(GroupId id, SegmentId segment) const {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return Fail(EINVAL);
  return group->second->arena.SegmentLength(segment);
}

Result<uint32_t> Verbs::TakeDoorbell(Group& group, QueuePair* qp) {
  uint32_t slot;
  if (!group.free_doorbells.empty()) {
    slot = group.free_doorbells.back();
    group.free_doorbells.pop_back();
  } else {
    if (group.by_doorbell.size() >= DoorbellPage::kMaxQueues) return Fail(ENOMEM);
    slot = static_cast<uint32_t>(group.by_doorbell.size());
    group.by_doorbell.push_back(nullptr);
  }
  group.by_doorbell[slot] = qp;
  return slot;
}

void Verbs::FreeDoorbell(Group& group, uint32_t slot) {
  group.by_doorbell[slot] = nullptr;
  group.free_doorbells.push_back(slot);
}

Result<Span> Verbs::AllocateProcessPage(GroupId group) {
  const Result<Span> page = GroupOf(group).arena.Allocate(sizeof(ProcessPage));
  if (page) (new (page->bytes) ProcessPage)->Init();
  return page;
}

void Verbs::FreeProcessPage(GroupId group, const Span& page) {
  if (const auto found = groups_.find(group); found != groups_.end()) {
    found->second->arena.Free(page);
  }
}

// ---- processes

void Verbs::ProcessJoined(GroupId id, ProcessId process) {
  Group& group = GroupOf(id);
  group.processes.insert(process);
  group.arena.SetShared(group.processes.size() > 1);
  GroupShare& share = group.share;
  if (share.awaits_process) {
    share.awaits_process = false;
    share.sole_process = environment_.payload_shortcuts ? process : ProcessId::kNone;
  } else if (share.sole_process != process) {
    Quiesce(GroupPayloads{share});
    share.sole_process = ProcessId::kNone;
  }
}

void Verbs::ProcessEnded(GroupId id, ProcessId process) {
  Quiesce(ProcessPayloads{process});
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  Group& group = *found->second;
  group.processes.erase(process);
  group.arena.SetShared(group.processes.size() > 1);
  if (group.share.sole_process != process) return;
  GroupShare& share = group.share;
  // Payloads that wait for the process must not reach another process's memory.
  Quiesce(GroupPayloads{share});
  share.sole_process = ProcessId::kNone;
  share.awaits_process = true;
}

template <class T, class IsFree, class Remove>
void Verbs::EndOrphansOf(GroupId id, const Survivors& survivors, IsFree is_free, Remove remove) {
  // Copy the set, because removal changes it.
  const std::set<Handle> all = GroupOf(id).handles[static_cast<size_t>(KindOf<T>::kKind)];
  for (const Handle handle : all) {
    T* const object = handles_.Find<T>(id, handle);
    if (object == nullptr || survivors.Hold(handles_.MakerOf(handle))) continue;
    if (is_free(*object)) remove(*object);
  }
}

// Destroys objects as CloseContext does. A process may guess handles and use another process's
// objects. Objects in such use remain until their context is closed.
void Verbs::EndOrphans(Time now, GroupId id, const Survivors& survivors) {
  if (!groups_.contains(id)) return;
  const auto always = [](const auto&) { return true; };
  const auto unused = [](const auto& object) { return object.users == 0; };
  EndOrphansOf<AddressHandle>(id, survivors, always, [&](auto& ah) { RemoveAh(ah); });
  EndOrphansOf<QueuePair>(id, survivors, always, [&](auto& qp) { RemoveQp(now, qp); });
  EndOrphansOf<MemoryWindow>(id, survivors, always, [&](auto& mw) { RemoveMw(mw); });
  EndOrphansOf<MemoryRegion>(
      id, survivors, [](const auto& mr) { return mr.bound_windows == 0; },
      [&](auto& mr) { RemoveMr(mr); });
  EndOrphansOf<SharedReceiveQueue>(id, survivors, unused, [&](auto& srq) { RemoveSrq(srq); });
  EndOrphansOf<CompletionQueue>(id, survivors, unused, [&](auto& cq) { RemoveCq(cq); });
  EndOrphansOf<CompletionChannel>(id, survivors, unused, [&](auto& one) { RemoveChannel(one); });
  EndOrphansOf<ProtectionDomain>(id, survivors, unused, [&](auto& pd) { Drop(*pd.context, pd); });
  EndOrphansOf<Context>(id, survivors, always, [&](auto& context) { CloseContext(now, context); });
  for (const Handle handle : GroupOf(id).handles[static_cast<size_t>(ObjectKind::kMr)]) {
    MemoryRegion& region = *handles_.Find<MemoryRegion>(id, handle);
    const auto stand_in = survivors.StandIn(handles_.MakerOf(handle));
    if (stand_in) region.process = *stand_in;
  }
}

void Verbs::GroupGone(Time now, GroupId id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  found->second->share.sole_process = ProcessId::kNone;
  Quiesce(GroupPayloads{found->second->share, /*ends=*/true});
  auto& contexts = found->second->handles[static_cast<size_t>(ObjectKind::kContext)];
  while (!contexts.empty()) CloseContext(now, *handles_.Find<Context>(id, *contexts.begin()));
  groups_.erase(id);
}

ObjectCounts Verbs::Counts(GroupId id) const {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return {};
  const HandlesByKind& handles = found->second->handles;
  const auto count = [&](ObjectKind kind) { return handles[static_cast<size_t>(kind)].size(); };
  return {.contexts = count(ObjectKind::kContext),
          .pds = count(ObjectKind::kPd),
          .mrs = count(ObjectKind::kMr),
          .mws = count(ObjectKind::kMw),
          .channels = count(ObjectKind::kChannel),
          .cqs = count(ObjectKind::kCq),
          .srqs = count(ObjectKind::kSrq),
          .qps = count(ObjectKind::kQp),
          .ahs = count(ObjectKind::kAh)};
}

// ---- contexts

Result<Context*> Verbs::Open(GroupId group, uint32_t device_index) {
  Device* device = DeviceByIndex(device_index);
  if (device == nullptr) return Fail(ENODEV);
  if (Counts(group).contexts >= kMaxContexts) return Fail(EMFILE);
  const Result<CounterId> counter = environment_.counters.Create();
  if (!counter) return Pass(counter.error());
  auto context = std::make_unique<Context>();
  context->group = group;
  context->device = device;
  context->async_counter = *counter;
  context->share = &GroupOf(group).share;
  Context& kept = *context;
  const Result<Context*> adopted = Adopt(kept, INT64_MAX, std::move(context));
  if (!adopted) environment_.counters.Destroy(*counter);
  return adopted;
}

Status Verbs::Close(Time now, GroupId group, Handle handle) {
  const Result<Context*> context = FindContext(group, handle);
  if (!context) return Pass(context.error());
  CloseContext(now, **context);
  return {};
}

Result<Context*> Verbs::FindContext(GroupId group, Handle handle) {
  return Find<Context>(group, handle);
}

// Follows the order of uverbs_destroy_ufile_hw: users before the objects they use.
void Verbs::CloseContext(Time now, Context& context) {
  const GroupId id = context.group;
  HandlesByKind& handles = GroupOf(id).handles;
  // Copy the sets, because removal changes them.
  const auto each = [&]<class T>(auto&& context_of, auto&& remove) {
    const std::set<Handle> all = handles[static_cast<size_t>(KindOf<T>::kKind)];
    for (const Handle handle : all) {
      T& object = *handles_.Find<T>(id, handle);
      if (context_of(object) == &context) remove(object);
    }
  };
  const auto by_pd = [](const auto& object) { return object.pd->context; };
  const auto direct = [](const auto& object) { return object.context; };
  each.template operator()<AddressHandle>(by_pd, [&](AddressHandle& ah) { RemoveAh(ah); });
  each.template operator()<QueuePair>(by_pd, [&](QueuePair& qp) { RemoveQp(now, qp); });
  each.template operator()<MemoryWindow>(by_pd, [&](MemoryWindow& mw) { RemoveMw(mw); });
  each.template operator()<MemoryRegion>(by_pd, [&](MemoryRegion& mr) { RemoveMr(mr); });
  each.template operator()<SharedReceiveQueue>(by_pd,
                                               [&](SharedReceiveQueue& srq) { RemoveSrq(srq); });
  each.template operator()<CompletionQueue>(direct, [&](CompletionQueue& cq) { RemoveCq(cq); });
  each.template operator()<CompletionChannel>(
      direct, [&](CompletionChannel& channel) { RemoveChannel(channel); });
  each.template operator()<ProtectionDomain>(direct,
                                             [&](ProtectionDomain& pd) { Drop(context, pd); });
  environment_.counters.Destroy(context.async_counter);
  const Device& device = *context.device;
  Drop(context, context);
  if (!device.present && ContextsOf(device) == 0) devices_.erase(device.index);
}

// ---- asynchronous events

void Verbs::PushAsync(Context& context, AsyncEvent event) {
  if (async_door_ == nullptr || async_door_->Passes(context, event)) QueueAsync(context, event);
}

void Verbs::QueueAsync(Context& context, const AsyncEvent& event) {
  completions_.Publish();
  if (context.async_events.size() >= kMaxAsyncEvents) return;
  context.async_events.push_back(event);
  environment_.counters.Add(context.async_counter, 1);
}

void Verbs::ForgetAsync(Context& context, Handle object) {
  const size_t dropped = std::erase_if(
      context.async_events, [&](const AsyncEvent& event) { return event.object == object; });
  if (dropped != 0) {
    environment_.counters.Remove(context.async_counter, static_cast<uint32_t>(dropped));
  }
}

void Verbs::CountReported(GroupId group, const AsyncEvent& event) {
  if (event.object == 0) return;
  if (auto* cq = handles_.Find<CompletionQueue>(group, event.object)) cq->async_reported++;
  if (auto* qp = handles_.Find<QueuePair>(group, event.object)) qp->async_reported++;
  if (auto* srq = handles_.Find<SharedReceiveQueue>(group, event.object)) srq->async_reported++;
}

Result<AsyncEvent> Verbs::TakeAsyncEvent(Time now, GroupId group, Handle handle) {
  const Result<Context*> context = FindContext(group, handle);
  if (!context) return Pass(context.error());
  std::deque<AsyncEvent>& events = (*context)->async_events;
  if (events.empty()) return Fail(kNothingQueued);
  const AsyncEvent event = events.front();
  events.pop_front();
  CountReported(group, event);
  if (environment_.trace.wants_records()) {
    environment_.trace.Write({now,
                              ProcessId::kNone,
                              "async",
                              "device " + (*context)->device->name,
                              AsyncEventName(event.type),
                              {}});
  }
  return event;
}

bool Verbs::CanQueueAsync(GroupId group, Handle handle, const AsyncEvent& event) {
  const bool is_of_object = event.object != 0;
  const bool object_is_there = handles_.Find<CompletionQueue>(group, event.object) != nullptr ||
                               handles_.Find<QueuePair>(group, event.object) != nullptr ||
                               handles_.Find<SharedReceiveQueue>(group, event.object) != nullptr;
  return FindContext(group, handle) && (!is_of_object || object_is_there);
}

void Verbs::QueueHeldAsync(GroupId group, Handle handle, const AsyncEvent& event) {
  if (CanQueueAsync(group, handle, event)) QueueAsync(**FindContext(group, handle), event);
}

void Verbs::RaiseQp(QueuePair& qp, ibv_event_type type) {
  PushAsync(*qp.pd->context, {type, qp.cookie, qp.handle});
}
void Verbs::RaiseCq(CompletionQueue& cq, ibv_event_type type) {
  PushAsync(*cq.context, {type, cq.cookie, cq.handle});
}
void Verbs::RaiseSrq(SharedReceiveQueue& srq, ibv_event_type type) {
  PushAsync(*srq.pd->context, {type, srq.cookie, srq.handle});
}

// ---- PD

Result<ProtectionDomain*> Verbs::AllocPd(GroupId group, Handle handle) {
  const Result<Context*> context = FindContext(group, handle);
  if (!context) return Pass(context.error());
  auto pd = std::make_unique<ProtectionDomain>();
  pd->context = *context;
  return Adopt(**context, (*context)->device->profile.device.orig_attr.max_pd, std::move(pd));
}

Status Verbs::DeallocPd(GroupId group, Handle handle) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(group, handle);
  if (!pd) return Pass(pd.error());
  if ((*pd)->users != 0) return Fail(EBUSY);
  Drop(*(*pd)->context, **pd);
  return {};
}

}  // namespace rdmaemu
