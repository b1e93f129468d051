#include "tests/sim/process.h"

#include <algorithm>
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

bool Process::WriteSend(Ring& ring, const rxe_send_wr& wr, std::span<const rxe_sge> sges,
                        std::span<const std::byte> inline_bytes) {
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
  }
  ring.SetProducer(ring.Next(ring.Producer()));
  return true;
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

}  // namespace rdmaemu::sim
