// Shared receive queues, and taking receives out of shared memory for all kinds of queues.
#include <algorithm>

#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {
namespace {

// Makes a receive from a malformed entry. The operation that uses it fails, as with a bad key.
RecvWqe Malformed(uint64_t wr_id) {
  RecvWqe wqe;
  wqe.wr_id = wr_id;
  wqe.length = 0;
  wqe.sges.push_back({.addr = 0, .length = 1, .lkey = 0});
  return wqe;
}

void CopyReceive(const Ring& ring, uint32_t index, uint32_t max_sge, RecvWqe& wqe) {
  const std::byte* slot = ring.Slot(index);
  rxe_recv_wqe header;
  std::memcpy(&header, slot, sizeof header);
  const uint32_t count = header.dma.num_sge;
  if (count > max_sge || count > SgeList::kCapacity) {
    wqe = Malformed(header.wr_id);
    return;
  }
  wqe.wr_id = header.wr_id;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    rxe_sge sge;
    std::memcpy(&sge, slot + sizeof header + i * sizeof sge, sizeof sge);
    total += sge.length;
    wqe.sges.push_back(sge);
  }
  if (total > UINT32_MAX) {
    wqe = Malformed(header.wr_id);
    return;
  }
  wqe.length = static_cast<uint32_t>(total);
}

Result<std::pair<Span, Ring>> MapReceives(Arena& arena, uint32_t max_wr, uint32_t max_sge) {
  const uint32_t slots = Ring::SlotsFor(max_wr), slot_bytes = RecvSlotBytes(max_sge);
  const Result<Span> memory = arena.Allocate(Ring::BytesFor(slots, slot_bytes));
  if (!memory) return Pass(memory.error());
  Ring ring(memory->bytes, slots, slot_bytes);
  ring.Format(memory->number);
  return std::pair(*memory, ring);
}

}  // namespace

std::optional<RecvWqe> Verbs::TakeReceive(QueuePair& qp) {
  SharedReceiveQueue* srq = qp.srq;
  Ring& ring = srq != nullptr ? srq->ring : qp.recv_ring;
  if (!ring) return std::nullopt;
  const uint32_t at = ring.Consumer();
  if (at == ring.Producer()) return std::nullopt;
  std::optional<RecvWqe> wqe(std::in_place);
  CopyReceive(ring, at, srq != nullptr ? srq->max_sge : qp.cap.max_recv_sge, *wqe);
  ring.SetConsumer(ring.Next(at));
  if (ring.Next(at) != ring.Producer()) ring.PrepareToRead(ring.Next(at));
  // As in get_srq_wqe: the event is raised once, then the limit is disarmed.
  if (srq != nullptr && srq->limit != 0 && ring.Count() < srq->limit) {
    srq->limit = 0;
    RaiseSrq(*srq, IBV_EVENT_SRQ_LIMIT_REACHED);
  }
  return wqe;
}

std::optional<RecvWqe> Verbs::PeekReceive(const QueuePair& qp, uint32_t index) {
  const Ring& ring = qp.recv_ring;
  if (qp.srq != nullptr || !ring) return std::nullopt;
  const uint32_t consumer = ring.Consumer();
  if (ring.Distance(consumer, index) >= ring.Distance(consumer, ring.Producer())) {
    return std::nullopt;
  }
  std::optional<RecvWqe> wqe(std::in_place);
  CopyReceive(ring, index, qp.cap.max_recv_sge, *wqe);
  return wqe;
}

bool Verbs::HasReceive(const QueuePair& qp) {
  const Ring& ring = qp.srq != nullptr ? qp.srq->ring : qp.recv_ring;
  return ring && !ring.Empty();
}

Result<SharedReceiveQueue*> Verbs::CreateSrq(GroupId id, const SrqRequest& request) {
  const Result<ProtectionDomain*> pd = Find<ProtectionDomain>(id, request.pd);
  if (!pd) return Pass(pd.error());
  Context& context = *(*pd)->context;
  const Profile& profile = context.device->profile;
  const ibv_device_attr& limits = profile.device.orig_attr;
  // rxe accepts a limit above the depth (measured) and refuses it in ibv_modify_srq.
  if (profile.checks_srq_limit && request.limit > request.max_wr) return Fail(EINVAL);
  if (request.max_wr == 0 || request.max_wr > static_cast<uint32_t>(limits.max_srq_wr) ||
      request.max_sge > static_cast<uint32_t>(limits.max_srq_sge)) {
    return Fail(EINVAL);
  }
  const uint32_t max_sge = std::max(request.max_sge, 1u);
  Arena& arena = GroupOf(id).arena;
  const uint32_t entries = UsableDepth(profile.queue_depths, request.max_wr);
  const auto mapped = MapReceives(arena, entries, max_sge);
  if (!mapped) return Pass(mapped.error());
  auto srq = std::make_unique<SharedReceiveQueue>();
  srq->pd = *pd;
  srq->cookie = request.cookie;
  srq->srq_number = next_srq_number_++;
  srq->max_sge = max_sge;
  srq->max_wr = profile.reports_srq_depth ? entries : request.max_wr;
  srq->entries = entries;
  srq->limit = request.limit;
  srq->memory = mapped->first;
  srq->ring = mapped->second;
  const auto adopted = Adopt(context, limits.max_srq, std::move(srq));
  if (!adopted) {
    arena.Free(mapped->first);
    return adopted;
  }
  (*pd)->users++;
  return adopted;
}

// rxe_srq_chk_attr and rxe_srq_from_attr.
Result<SharedReceiveQueue*> Verbs::ModifySrq(GroupId id, Handle handle, int mask, uint32_t max_wr,
                                             uint32_t limit) {
  const Result<SharedReceiveQueue*> found = Find<SharedReceiveQueue>(id, handle);
  if (!found) return found;
  SharedReceiveQueue& srq = **found;
  const Profile& profile = srq.pd->context->device->profile;
  const ibv_device_attr& limits = profile.device.orig_attr;
  const auto most = static_cast<uint32_t>(limits.max_srq_wr);
  if (srq.error || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return Fail(EINVAL);
  const bool resize = (mask & IBV_SRQ_MAX_WR) != 0;
  if (resize && !profile.serves_srq_queries) return Fail(EOPNOTSUPP);
  const uint32_t waiting = srq.ring.Count();
  if (resize && ((limits.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0 || max_wr == 0 ||
                 max_wr > most || max_wr < srq.limit || max_wr < waiting)) {
    return Fail(EINVAL);
  }
  const uint32_t entries = resize ? UsableDepth(profile.queue_depths, max_wr) : srq.entries;
  if ((mask & IBV_SRQ_LIMIT) != 0 && (limit > most || limit > entries)) return Fail(EINVAL);
  if (resize) {
    Arena& arena = GroupOf(id).arena;
    const auto mapped = MapReceives(arena, entries, srq.max_sge);
    if (!mapped) return Pass(mapped.error());
    Ring ring = mapped->second;
    const uint32_t consumer = srq.ring.Consumer();
    for (uint32_t i = 0; i < waiting; i++) {
      std::memcpy(ring.Slot(i), srq.ring.Slot(consumer + i), ring.slot_bytes());
    }
    ring.SetProducer(waiting);
    srq.ring.End();
    arena.Free(srq.memory);
    srq.memory = mapped->first;
    srq.ring = ring;
    srq.max_wr = max_wr;
    srq.entries = entries;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) srq.limit = limit;
  return &srq;
}

Result<ibv_srq_attr> Verbs::QuerySrq(GroupId id, Handle handle) {
  const Result<SharedReceiveQueue*> found = Find<SharedReceiveQueue>(id, handle);
  if (!found) return Pass(found.error());
  const SharedReceiveQueue& srq = **found;
  if (!srq.pd->context->device->profile.serves_srq_queries) return Fail(EOPNOTSUPP);
  if (srq.error) return Fail(EINVAL);
  return ibv_srq_attr{srq.entries, srq.max_sge, srq.limit};
}

Result<uint32_t> Verbs::DestroySrq(GroupId id, Handle handle) {
  const Result<SharedReceiveQueue*> srq = Find<SharedReceiveQueue>(id, handle);
  if (!srq) return Pass(srq.error());
  if ((*srq)->users != 0) return Fail(EBUSY);
  const uint32_t reported = (*srq)->async_reported;
  RemoveSrq(**srq);
  return reported;
}

void Verbs::RemoveSrq(SharedReceiveQueue& srq) {
  Context& context = *srq.pd->context;
  ForgetAsync(context, srq.handle);
  srq.ring.End();
  GroupOf(context.group).arena.Free(srq.memory);
  srq.pd->users--;
  Drop(context, srq);
}

}  // namespace rdmaemu
