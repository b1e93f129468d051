#include "tests/sim/program.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "shim/verbs/objects.h"

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
      // Each process has another base address. Equal addresses in two processes of one host would
      // hide mix-ups.
      base_(0x7f0000000000 + uint64_t{number} * 0x10000000),
      memory_(world.plan().huge > 0 ? kHugeMemoryBytes : kMemoryBytes),
      heap_(kHeapAt, memory_.size(), world.random()) {
  std::ranges::copy(Fresh(kConstantBytes), memory_.begin());
  model_ = std::make_unique<MemoryModel>(world.verdict(), name_, memory_);
  for (uint64_t i = 0; i < kWords; i++) {
    model_->Lend(kWordsAt + i * 8, 8);
    const auto word = atomics.Open(name_ + " word " + std::to_string(i));
    if (i == 0) first_word_ = word;
  }
  if (world.plan().huge > 0) huge_ = TakeFilled(kHugeBytes);
  process_ = std::make_unique<Process>(
      world, machine, name_, base_, memory_,
      [this](uint64_t offset, uint64_t length) { model_->Written(offset, length); });
  const Process::Entered entered(*process_);
  ibv_context* const context = process_->OpenDevice();
  Must(context == nullptr ? errno : 0, "open the device");
  channel_ = process_->Keep(ibv_create_comp_channel(context));
  Must(channel_ == nullptr ? errno : 0, "create a completion channel");
  pd_ = process_->Keep(ibv_alloc_pd(context));
  Must(pd_ == nullptr ? errno : 0, "allocate a PD");
  Must(Register(0, memory_.size(),
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
                region_),
       "register the memory");
  Must(Register(0, memory_.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, read_only_),
       "register the memory again");
}

uint64_t Program::WordValue(uint64_t index) const {
  uint64_t value;
  std::memcpy(&value, memory_.data() + kWordsAt + index * 8, sizeof value);
  return value;
}

ibv_ah* Program::AddressHandleTo(const Machine& machine, bool ipv6) {
  const auto [it, made] = address_handles_.try_emplace({machine.name(), ipv6}, nullptr);
  if (!made) return it->second;
  const Process::Entered entered(*process_);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = ipv6 ? 2 : 1;
  attr.grh.hop_limit = 64;
  attr.grh.dgid = (ipv6 ? machine.ipv6() : machine.ipv4()).ToGid();
  it->second = process_->Keep(ibv_create_ah(pd_, &attr));
  Must(it->second == nullptr ? errno : 0, "create an AH");
  return it->second;
}

int Program::Register(uint64_t begin, uint64_t end, int access, Region& out) {
  const Process::Entered entered(*process_);
  out = {};
  out.access = access;
  out.begin = begin;
  out.end = end;
  // Keys may use an address that is not the process's own (ibv_reg_mr_iova).
  out.iova = base_ + begin;
  if (world_.random().Below(2) == 0) {
    out.iova = uint64_t{world_.random().Next32()} * kPageBytes + (base_ + begin) % kPageBytes;
  }
  out.mr = process_->Keep(ibv_reg_mr_iova2(pd_, reinterpret_cast<void*>(base_ + begin), end - begin,
                                           out.iova, static_cast<unsigned>(access)));
  return out.mr == nullptr ? errno : 0;
}

int Program::Reregister(Region& region, uint64_t begin, uint64_t end) {
  const Process::Entered entered(*process_);
  const int error = ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                                 reinterpret_cast<void*>(base_ + begin), end - begin, 0);
  if (error != 0) return errno;
  region.begin = begin;
  region.end = end;
  region.iova = base_ + begin;
  return 0;
}

int Program::Deregister(Region& region) {
  const Process::Entered entered(*process_);
  ibv_mr* const mr = region.mr;
  const int error = ibv_dereg_mr(mr);
  if (error != 0) return error;
  process_->Forget(mr);
  region.mr = nullptr;
  return 0;
}

CompletionQueueOf& Program::QueueWithRoom(uint32_t entries) {
  // Several queues are shared by all QPs in random order.
  const auto count = static_cast<uint32_t>(queues_.size());
  if (count > 0) {
    CompletionQueueOf& queue = *queues_[world_.random().Below(count)];
    if (queue.entries - queue.promised >= entries && world_.random().Below(4) != 0) {
      queue.promised += entries;
      return queue;
    }
  }
  const Process::Entered entered(*process_);
  auto queue = std::make_unique<CompletionQueueOf>();
  queue->number = count + 1;
  const bool with_channel = world_.random().Below(2) == 0;
  queue->cq = process_->Keep(ibv_create_cq(process_->context(), kCqEntries, queue.get(),
                                           with_channel ? channel_ : nullptr, 0));
  Must(queue->cq == nullptr ? errno : 0, "create a CQ");
  if (with_channel) queue->events = events_.Open(name_ + " cq " + std::to_string(queue->number));
  queue->entries = kCqEntries;
  queue->promised = entries;
  queues_.push_back(std::move(queue));
  return *queues_.back();
}

void Program::ForEachQueued(const std::function<void(const CqEntry&)>& action) {
  if (!Lives()) return;
  for (const auto& queue : queues_) {
    const Ring ring = shim::Of(queue->cq)->ring;
    for (uint32_t at = ring.Consumer(); at != ring.Producer(); at = ring.Next(at)) {
      action(*ring.SlotAs<CqEntry>(at));
    }
  }
}

bool Program::HasQueued() {
  bool has = false;
  ForEachQueued([&has](const CqEntry&) { has = true; });
  return has;
}

void Program::ResizeQueue() {
  if (queues_.empty() || !Runs()) return;
  const Process::Entered entered(*process_);
  Random& random = world_.random();
  // Prefers a queue that holds completions.
  uint32_t index = random.Below(static_cast<uint32_t>(queues_.size()));
  for (uint32_t i = 0; i < queues_.size(); i++) {
    if (shim::Of(queues_[i]->cq)->ring.Count() > 1) index = i;
  }
  CompletionQueueOf& queue = *queues_[index];
  const uint32_t held = shim::Of(queue.cq)->ring.Count();
  if (held > 1 && random.Below(4) == 0) {
    world_.tally().Count("op.resize_too_small");
    const int error = ibv_resize_cq(queue.cq, static_cast<int>(held - 1));
    if (error == EINVAL) return;
    return world_.verdict().Complain("verbs", name_ + ": a CQ of " + std::to_string(held) +
                                                  " completions was made smaller, errno " +
                                                  std::to_string(error));
  }
  // The entries promised to queue pairs remain available.
  const uint32_t entries = std::max(1u, queue.promised) + random.Below(kCqEntries);
  const int error = ibv_resize_cq(queue.cq, static_cast<int>(entries));
  if (error != 0) {
    return world_.verdict().Complain(
        "verbs", name_ + ": a CQ cannot be resized, errno " + std::to_string(error));
  }
  queue.entries = entries;
  world_.tally().Count(held > 0 ? "op.resize_with_completions" : "op.resize");
  // A resize changes neither the arming of the queue nor its events.
  if (queue.events && events_.IsArmed(*queue.events)) {
    world_.tally().Count(held > 0 ? "op.resize_armed_with_completions" : "op.resize_armed");
  }
}

ibv_mw* Program::AllocWindow(ibv_mw_type type) {
  const Process::Entered entered(*process_);
  ibv_mw* const window = process_->Keep(ibv_alloc_mw(pd_, type));
  if (window == nullptr) {
    world_.verdict().Complain("verbs", name_ + " gets no memory window");
    return nullptr;
  }
  windows_.push_back(window);
  return window;
}

bool Program::FreeWindow(ibv_mw* window) {
  const Process::Entered entered(*process_);
  const int error = ibv_dealloc_mw(window);
  if (error != 0) {
    world_.verdict().Complain(
        "leaks", name_ + " cannot give back a memory window, errno " + std::to_string(error));
    return false;
  }
  process_->Forget(window);
  std::erase(windows_, window);
  return true;
}

void Program::DestroyAll() {
  const Process::Entered entered(*process_);
  const auto destroy = [this](auto* object, auto call, const char* what) {
    if (object == nullptr) return;
    const int error = call(object);
    if (error == 0) return process_->Forget(object);
    world_.verdict().Complain("leaks", name_ + " cannot give back " + what + ", errno " +
                                           std::to_string(error) + ": something uses it still");
  };
  while (!windows_.empty() && FreeWindow(windows_.back())) {
  }
  for (const auto& [to, handle] : address_handles_) destroy(handle, ibv_destroy_ah, "an AH");
  for (Region& region : left_over_) destroy(region.mr, ibv_dereg_mr, "a region");
  destroy(region_.mr, ibv_dereg_mr, "a region");
  destroy(read_only_.mr, ibv_dereg_mr, "a region");
  for (const auto& queue : queues_) destroy(queue->cq, ibv_destroy_cq, "a CQ");
  queues_.clear();
  destroy(channel_, ibv_destroy_comp_channel, "a completion channel");
  destroy(pd_, ibv_dealloc_pd, "a PD");
  process_->CloseDevice();
}

void Program::Arm() {
  if (queues_.empty() || !Lives()) return;
  const Process::Entered entered(*process_);
  CompletionQueueOf& queue = *queues_[world_.random().Below(static_cast<uint32_t>(queues_.size()))];
  if (!queue.events) return;
  const bool solicited = world_.random().Below(2) == 0;
  (void)ibv_req_notify_cq(queue.cq, solicited ? 1 : 0);
  events_.Armed(*queue.events, solicited);
  world_.tally().Count(solicited ? "event.armed_solicited" : "event.armed");
}

std::vector<CompletionQueueOf*> Program::TakeEvents() {
  std::vector<CompletionQueueOf*> raised;
  if (!Lives() || channel_ == nullptr) return raised;
  const Process::Entered entered(*process_);
  const uint64_t before = process_->counts_taken();
  uint64_t events = 0;
  ibv_cq* cq;
  void* cookie;
  while (ibv_get_cq_event(channel_, &cq, &cookie) == 0) {
    events++;
    world_.tally().Count("event.raised");
    auto* const queue = static_cast<CompletionQueueOf*>(cookie);
    if (queue->events) {
      raised.push_back(queue);
    } else {
      world_.verdict().Complain("events", name_ + ": an event of a queue without a channel");
    }
    ibv_ack_cq_events(cq, 1);
  }
  if (process_->counts_taken() - before != events) {
    world_.verdict().Complain("events", name_ + ": its channel was readable, and had no event");
  }
  return raised;
}

Piece Program::Constant(uint32_t length) {
  if (length > kConstantBytes) return {huge_->offset, length};
  const auto room = static_cast<uint32_t>(kConstantBytes - length);
  return {world_.random().Below(room + 1), length};
}

std::vector<std::byte> Program::Fresh(uint32_t length) {
  std::vector<std::byte> bytes(length);
  uint64_t word = world_.random().Next64();
  for (uint32_t i = 0; i < length; i += sizeof word) {
    word = word * 0x5851F42D4C957F2Dull + 0x14057B7EF767814Full;
    const uint64_t mixed = word ^ word >> 29;  // the low bits of the product repeat soon
    std::memcpy(bytes.data() + i, &mixed, std::min<size_t>(sizeof mixed, length - i));
  }
  return bytes;
}

std::optional<Piece> Program::TakeFilled(uint32_t length) {
  const std::optional<Piece> piece = heap_.Take(length);
  if (piece) model_->Store(piece->offset, Fresh(length));
  return piece;
}

}  // namespace rdmaemu::sim
