#include "tests/sim/program.h"

#include <stdexcept>

namespace rdmaemu::sim {
namespace {

void Must(int error, const char* what) {
  if (error != 0) throw std::runtime_error(std::string(what) + ": errno " + std::to_string(error));
}

constexpr uint64_t kPageBytes = 4096;

}  // namespace

Program::Program(World& world, Machine& machine, uint32_t number, AtomicChecker& atomics,
                 EventChecker& events)
    : world_(world),
      events_(events),
      number_(number),
      name_(machine.name() + ".p" + std::to_string(number)),
      // Each at another address; two processes of one host at the same would hide mix-ups.
      base_(0x7f0000000000 + uint64_t{number} * 0x10000000),
      memory_(kMemoryBytes),
      heap_(kHeapAt, kMemoryBytes, world.random()) {
  for (uint64_t at = 0; at < kConstantBytes; at += 8) {
    const uint64_t word = world.random().Next64();
    std::memcpy(memory_.data() + at, &word, sizeof word);
  }
  model_ = std::make_unique<MemoryModel>(world.verdict(), name_, memory_);
  for (uint64_t i = 0; i < kWords; i++) {
    model_->Lend(kWordsAt + i * 8, 8);
    const auto word = atomics.Open(name_ + " word " + std::to_string(i));
    if (i == 0) first_word_ = word;
  }
  process_ = std::make_unique<Process>(
      world, machine, name_, base_, memory_,
      [this](uint64_t offset, uint64_t length) { model_->Written(offset, length); });
  OpenDeviceOut opened{};
  HandleOut made{};
  Must(process_->Call(CallOp::kOpenDevice, OpenDeviceIn{0, 0}, opened), "open the device");
  context_ = opened.context;
  Must(process_->Call(CallOp::kCreateChannel, HandleIn{context_, 0}, channel_),
       "create a completion channel");
  channel_counter_ = process_->TakeCounter().value_or(CounterId{});
  channel_ring_ = Ring(process_->At(channel_.ring), channel_.slots, sizeof(ChannelEntry));
  Must(process_->Call(CallOp::kAllocPd, AllocPdIn{context_, 0}, made), "allocate a PD");
  pd_ = made.handle;
  Must(Register(0, kMemoryBytes,
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
                region_),
       "register the memory");
  Must(Register(0, kMemoryBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, read_only_),
       "register the memory again");
}

uint64_t Program::WordValue(uint64_t index) const {
  uint64_t value;
  std::memcpy(&value, memory_.data() + kWordsAt + index * 8, sizeof value);
  return value;
}

uint32_t Program::AddressHandleTo(const Machine& machine, bool ipv6) {
  const auto [it, made] = address_handles_.try_emplace({machine.name(), ipv6}, 0);
  if (!made) return it->second;
  CreateAhIn in{};
  in.pd = pd_;
  in.attr.is_global = 1;
  in.attr.port_num = 1;
  in.attr.grh.sgid_index = ipv6 ? 2 : 1;
  in.attr.grh.hop_limit = 64;
  in.attr.grh.dgid = (ipv6 ? machine.ipv6() : machine.ipv4()).ToGid();
  HandleOut out{};
  Must(process_->Call(CallOp::kCreateAh, in, out), "create an AH");
  it->second = out.handle;
  return out.handle;
}

int Program::Register(uint64_t begin, uint64_t end, int access, Region& out) {
  out = {};
  out.access = access;
  out.begin = begin;
  out.end = end;
  // Keys may name bytes by an address that is not the process's own (ibv_reg_mr_iova).
  out.iova = base_ + begin;
  if (world_.random().Below(2) == 0) {
    out.iova = uint64_t{world_.random().Next32()} * kPageBytes + (base_ + begin) % kPageBytes;
  }
  return process_->Call(CallOp::kRegMr, RegMrIn{pd_, access, base_ + begin, end - begin, out.iova},
                        out.mr);
}

CompletionQueueOf& Program::QueueWithRoom(uint32_t entries) {
  // Several queues share what QPs there are, in no order.
  const auto count = static_cast<uint32_t>(queues_.size());
  if (count > 0) {
    CompletionQueueOf& queue = *queues_[world_.random().Below(count)];
    if (queue.room >= entries && world_.random().Below(4) != 0) {
      queue.room -= entries;
      return queue;
    }
  }
  auto queue = std::make_unique<CompletionQueueOf>();
  const bool with_channel = world_.random().Below(2) == 0;
  Must(process_->Call(
           CallOp::kCreateCq,
           CreateCqIn{context_, with_channel ? channel_.handle : 0, kCqEntries, 0, count + 1},
           queue->made),
       "create a CQ");
  if (with_channel) queue->events = events_.Open(name_ + " cq " + std::to_string(count + 1));
  queue->ring =
      Ring(process_->At(queue->made.queue) + sizeof(CqControl), queue->made.slots, sizeof(CqEntry));
  queue->room = kCqEntries - entries;
  queues_.push_back(std::move(queue));
  return *queues_.back();
}

void Program::DestroyAll() {
  const auto destroy = [this](CallOp op, uint32_t handle, const char* what) {
    const int error = process_->Call(op, HandleIn{handle, 0});
    if (error == 0) return;
    world_.verdict().Complain("leaks", name_ + " cannot give back " + what + ", errno " +
                                           std::to_string(error) + ": something uses it still");
  };
  for (const uint32_t window : windows_) destroy(CallOp::kDeallocMw, window, "a memory window");
  for (const auto& [to, handle] : address_handles_) destroy(CallOp::kDestroyAh, handle, "an AH");
  destroy(CallOp::kDeregMr, region_.mr.handle, "a region");
  destroy(CallOp::kDeregMr, read_only_.mr.handle, "a region");
  for (const auto& queue : queues_) destroy(CallOp::kDestroyCq, queue->made.handle, "a CQ");
  queues_.clear();
  destroy(CallOp::kDestroyChannel, channel_.handle, "a completion channel");
  destroy(CallOp::kDeallocPd, pd_, "a PD");
  destroy(CallOp::kCloseDevice, context_, "the device");
}

// As the library's ibv_req_notify_cq has it.
void Program::Arm() {
  if (queues_.empty() || !Lives()) return;
  CompletionQueueOf& queue = *queues_[world_.random().Below(static_cast<uint32_t>(queues_.size()))];
  if (!queue.events) return;
  const bool solicited = world_.random().Below(2) == 0;
  auto& control = *reinterpret_cast<CqControl*>(process_->At(queue.made.queue));
  if (control.armed != kCqArmedAny) control.armed = solicited ? kCqArmedSolicited : kCqArmedAny;
  events_.Armed(*queue.events, solicited);
  world_.tally().Count(solicited ? "event.armed_solicited" : "event.armed");
}

void Program::HarvestEvents() {
  while (Lives() && machine().counters.Take(channel_counter_)) {
    if (channel_ring_.Empty()) {
      world_.verdict().Complain("events", name_ + ": its channel is readable, and has no event");
      return;
    }
    const uint32_t at = channel_ring_.Consumer();
    const uint64_t cookie = channel_ring_.SlotAs<ChannelEntry>(at)->cq_cookie;
    channel_ring_.SetConsumer(channel_ring_.Next(at));
    world_.tally().Count("event.raised");
    if (cookie == 0 || cookie > queues_.size() || !queues_[cookie - 1]->events) {
      world_.verdict().Complain("events", name_ + ": an event of no queue");
    } else {
      events_.Raised(*queues_[cookie - 1]->events);
    }
  }
}

Piece Program::Constant(uint32_t length) {
  const auto room = static_cast<uint32_t>(kConstantBytes - length);
  return {world_.random().Below(room + 1), length};
}

std::vector<std::byte> Program::Fresh(uint32_t length) {
  std::vector<std::byte> bytes(length);
  uint64_t word = world_.random().Next64();
  for (uint32_t i = 0; i < length; i++) {
    if (i % 8 == 0) word = word * 0x5851F42D4C957F2Dull + 0x14057B7EF767814Full;
    bytes[i] = static_cast<std::byte>(word >> (8 * (7 - i % 8)));
  }
  return bytes;
}

std::optional<Piece> Program::TakeFilled(uint32_t length) {
  const std::optional<Piece> piece = heap_.Take(length);
  if (piece) model_->Store(piece->offset, Fresh(length));
  return piece;
}

}  // namespace rdmaemu::sim
