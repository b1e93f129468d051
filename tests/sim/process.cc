#include "tests/sim/process.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace rdmaemu::sim {

Process::Process(World& world, Machine& machine, const std::string& name, uint64_t base,
                 std::span<std::byte> memory, AddressSpaces::Watcher watcher)
    : world_(world), machine_(machine), life_(machine.life()) {
  id_ = machine.host().Attach(world.now(), {1, name});
  machine.memory.Add(id_, base, memory, std::move(watcher));
  HelloIn in{};
  in.version = kCallVersion;
  name.copy(in.program, sizeof in.program - 1);
  if (Call(CallOp::kHello, in, hello_) != 0) throw std::runtime_error("Hello was refused");
}

void Process::Kill() {
  if (!alive_) return;
  alive_ = false;
  if (!machine_.up() || machine_.life() != life_) return;
  machine_.memory.Remove(id_);
  machine_.host().Detach(world_.now(), id_);
  world_.Wake(machine_);
}

Reply Process::CallBytes(uint32_t op, const void* in, size_t bytes) {
  Reply reply;
  reply.error = ENOTCONN;
  if (!Lives()) return reply;
  std::vector<std::byte> message(sizeof(CallHeader) + bytes);
  const CallHeader header{op, static_cast<uint32_t>(bytes)};
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, in, bytes);
  reply = machine_.host().Call(world_.now(), id_, message);
  descriptors_ = reply.descriptors;
  world_.Wake(machine_);
  return reply;
}

std::optional<CounterId> Process::TakeCounter() {
  for (const ReplyDescriptor& descriptor : descriptors_) {
    if (const auto* counter = std::get_if<CounterId>(&descriptor)) return *counter;
  }
  return std::nullopt;
}

std::byte* Process::At(const SharedSpan& span) {
  return machine_.segments.Bytes(SegmentId{span.segment}).subspan(span.offset, span.length).data();
}

// As the library does it: from the addresses of the SGEs, wherever these can be read.
void Process::TakePayload(const CreateQpOut& qp, uint32_t index, rxe_send_wqe& wqe,
                          std::span<const rxe_sge> sges) {
  if (wqe.dma.length == 0 || wqe.dma.length > kSlabBytes) return;
  std::byte* slot = At(qp.send_queue) + sizeof(QpControl) +
                    SlabOffset(qp.send_slots, qp.send_slot_bytes) + size_t{index} * kSlabBytes;
  size_t taken = 0;
  for (const rxe_sge& sge : sges) {
    const MemoryRange range{sge.addr, sge.length};
    if (!machine_.memory.Reachable(id_, range, false)) return;
    (void)machine_.memory.Read(id_, {&range, 1}, {slot + taken, range.length});
    taken += range.length;
  }
  wqe.state = kPayloadTaken;
}

bool Process::WriteSend(const CreateQpOut& qp, Ring& ring, const rxe_send_wr& wr,
                        std::span<const rxe_sge> sges, std::span<const std::byte> inline_bytes) {
  if (ring.Full()) return false;
  auto* wqe = ring.SlotAs<rxe_send_wqe>(ring.Producer());
  std::memset(static_cast<void*>(wqe), 0, sizeof *wqe);
  wqe->wr = wr;
  std::byte* data = reinterpret_cast<std::byte*>(wqe) + sizeof *wqe;
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    wqe->dma.length = wqe->dma.resid = static_cast<uint32_t>(inline_bytes.size());
    std::copy(inline_bytes.begin(), inline_bytes.end(), data);
  } else {
    for (const rxe_sge& sge : sges) wqe->dma.length += sge.length;
    wqe->dma.resid = wqe->dma.length;
    wqe->dma.num_sge = static_cast<uint32_t>(sges.size());
    if (!sges.empty()) std::memcpy(data, sges.data(), sges.size_bytes());
    const uint32_t opcode = wr.opcode;
    if (opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
        opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
      TakePayload(qp, ring.Producer(), *wqe, sges);
    }
  }
  ring.SetProducer(ring.Next(ring.Producer()));
  return true;
}

std::optional<ib_uverbs_wc> Process::Poll(const CqOut& cq, Ring& ring) {
  if (ring.Empty()) return std::nullopt;
  const uint32_t at = ring.Consumer();
  const CqEntry& entry = *ring.SlotAs<CqEntry>(at);
  if (entry.payload == kPayloadWaits) {
    auto* slots = reinterpret_cast<ReceiveSlot*>(At(cq.queue) + sizeof(CqControl) +
                                                 SlabOffset(cq.slots, sizeof(CqEntry)));
    ReceiveSlot& slot = slots[at];
    if (slot.Claim()) {
      const std::byte* from = slot.payload;
      for (uint32_t i = 0; i < slot.pieces; i++) {
        const MemoryRange to{slot.to[i].address, slot.to[i].length};
        (void)machine_.memory.Write(id_, {&to, 1}, {from, to.length});
        from += to.length;
      }
      slot.SetState(ReceiveSlot::kPlaced);
    }
  }
  const ib_uverbs_wc wc = entry.wc;
  ring.SetConsumer(ring.Next(at));
  return wc;
}

bool Process::WriteReceive(Ring& ring, uint64_t wr_id, std::span<const rxe_sge> sges) {
  if (ring.Full()) return false;
  auto* wqe = ring.SlotAs<rxe_recv_wqe>(ring.Producer());
  std::memset(static_cast<void*>(wqe), 0, sizeof *wqe);
  wqe->wr_id = wr_id;
  for (const rxe_sge& sge : sges) wqe->dma.length += sge.length;
  wqe->dma.resid = wqe->dma.length;
  wqe->dma.num_sge = static_cast<uint32_t>(sges.size());
  std::byte* data = reinterpret_cast<std::byte*>(wqe) + sizeof *wqe;
  if (!sges.empty()) std::memcpy(data, sges.data(), sges.size_bytes());
  ring.SetProducer(ring.Next(ring.Producer()));
  return true;
}

void Process::RingBell(uint32_t doorbell) {
  if (!Lives()) return;
  RingDoorbell(*reinterpret_cast<DoorbellPage*>(At(hello_.doorbells)), doorbell);
  world_.Wake(machine_);
}

void Process::TakeCopies() {
  if (!Lives()) return;
  JobPage& page = reinterpret_cast<DoorbellPage*>(At(hello_.doorbells))->jobs;
  page.polls++;
  // Jobs of one queue pair must not overtake each other: not before those that were begun.
  if (!taken_.empty()) return;
  if (page.offered - page.next > JobPage::kSlots) page.next = page.offered - JobPage::kSlots;
  for (; page.next != page.offered; page.next++) {
    CopyJob& job = page.jobs[page.next % JobPage::kSlots];
    if (job.number == page.next && job.Claim(CopyJob::kTaken)) taken_.push_back(&job);
  }
}

void Process::FinishCopies() {
  if (!Lives() || taken_.empty()) return;
  for (CopyJob* job : taken_) {
    std::array<MemoryRange, CopyJob::kMaxRanges> own, other;
    for (uint32_t i = 0; i < job->own_count; i++)
      own[i] = {job->own[i].address, job->own[i].length};
    for (uint32_t i = 0; i < job->other_count; i++) {
      other[i] = {job->other[i].address, job->other[i].length};
    }
    const std::span mine = std::span<const MemoryRange>(own).first(job->own_count);
    const std::span theirs = std::span<const MemoryRange>(other).first(job->other_count);
    const ProcessId peer{job->pid};
    const Status copied = job->pull != 0 ? machine_.memory.Copy(peer, theirs, id_, mine)
                                         : machine_.memory.Copy(id_, mine, peer, theirs);
    job->Set(copied ? CopyJob::kDone : CopyJob::kFailed);
    world_.tally().Count(copied ? "copy.done" : "copy.failed");
  }
  taken_.clear();
  world_.Wake(machine_);
}

}  // namespace rdmaemu::sim
