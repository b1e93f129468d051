#include "tests/sim/process.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "emulator/abi/process_page.h"
#include "emulator/host/testing/event_fetch.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/payloads.h"

namespace rdmaemu::sim {
namespace {

// No open file has these numbers.

std::vector<MemoryRange> RangesOf(std::span<const iovec> vectors) {
  std::vector<MemoryRange> ranges;
  for (const iovec& vector : vectors) {
    ranges.push_back({reinterpret_cast<uintptr_t>(vector.iov_base), vector.iov_len});
  }
  return ranges;
}

}  // namespace

thread_local Process* Process::current_ = nullptr;

Process& Process::Current() {
  if (current_ == nullptr) throw std::logic_error("a call of the library by no process");
  return *current_;
}

Process::Process(World& world, Machine& machine, const std::string& name, uint64_t base,
                 std::span<std::byte> memory, AddressSpaces::Watcher watcher)
    : world_(world),
      machine_(machine),
      name_(name),
      base_(base),
      memory_(memory),
      watcher_(std::move(watcher)),
      life_(machine.life()) {
  id_ = machine.host().Attach(world.now(), {1, name});
  machine.memory.Add(id_, base, memory, watcher_);
  Hello(id_, {}, hello_);
}

Process::~Process() {
  for (const auto& lane : lanes_) {
    const LaneCount taken = reinterpret_cast<SendLane*>(lane.get())->Taken();
    if (taken.count > 0) world_.tally().Count("lane.taken");
  }
  CloseDevice();
  for (void* const object : objects_) std::free(object);
  std::free(device_);
}

void Process::Hello(ProcessId process, HelloIn in, HelloOut& out) {
  in.version = kCallVersion;
  name_.copy(in.program, sizeof in.program - 1);
  std::swap(id_, process);
  const int error = Call(CallOp::kHello, in, out);
  std::swap(id_, process);
  if (error != 0) throw std::runtime_error("Hello was refused, errno " + std::to_string(error));
}

ibv_context* Process::OpenDevice() {
  const Entered entered(*this);
  shim::Device* const device = shim::New<shim::Device>();
  device_ = &device->base;
  context_ = ibv_open_device(device_);
  return context_;
}

void Process::CloseDevice() {
  const Entered entered(*this);
  if (context_ != nullptr) ibv_close_device(std::exchange(context_, nullptr));
}

void Process::End(ProcessId process) {
  machine_.memory.Remove(process);
  machine_.host().Detach(world_.now(), process);
  world_.Wake(machine_);
}

void Process::Kill() {
  if (!alive_) return;
  alive_ = false;
  taken_.reset();
  if (!machine_.up() || machine_.life() != life_) return;
  for (const ProcessId parent : parents_) machine_.memory.Remove(parent);
  if (child_) End(*child_);
  End(id_);
}

void Process::Fork(Survivor survivor) {
  if (!Lives() || child_) return;
  FinishCopies();
  {
    const Entered entered(*this);
    shim::PlacePublishedPayloads(context_);
  }
  const ProcessId child = machine_.host().Attach(world_.now(), {1, name_});
  std::vector<std::byte> copy(memory_.begin(), memory_.end());
  // Writes into a copy are lost and not checked, because the model describes `memory_`.
  const bool child_goes_on = survivor == Survivor::kChild;
  const auto ignore = [](uint64_t, uint64_t) {};
  machine_.memory.Add(id_, base_, child_goes_on ? copy : memory_,
                      child_goes_on ? AddressSpaces::Watcher(ignore) : watcher_);
  machine_.memory.Add(child, base_, child_goes_on ? memory_ : copy,
                      child_goes_on ? watcher_ : AddressSpaces::Watcher(ignore));
  HelloIn in{};
  std::copy(std::begin(hello_.group_token), std::end(hello_.group_token), in.group_token);
  in.parent = hello_.process;
  in.fork = ++reinterpret_cast<ProcessPage*>(At(hello_.process_page))->forks;
  HelloOut out{};
  Hello(child, in, out);
  switch (survivor) {
    case Survivor::kChild:
      End(id_);
      // As in the runtime, the child takes over the memory of regions that its parent had
      // registered.
      machine_.memory.Add(id_, base_, memory_, watcher_);
      parents_.push_back(std::exchange(id_, child));
      hello_ = out;
      break;
    case Survivor::kParent:
      End(child);
      break;
    case Survivor::kBoth:
      child_ = child;
      child_memory_ = std::move(copy);  // moving does not change the bytes' address
      break;
  }
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

int Process::FetchEvent(uint32_t channel, rdma_ucm_event_resp& event) {
  constexpr uint32_t kAllDevices = ~0u;
  if (!Lives()) return ENOTCONN;
  OfferedEvents& offers = reinterpret_cast<ProcessPage*>(At(hello_.process_page))->offers;
  ReplyBody bytes;
  bytes.resize(kMaxSequenceOutBytes);
  bytes.resize(offers.Take(channel, kAllDevices, bytes.data(), kMaxSequenceOutBytes));
  const bool is_offered = !bytes.empty();
  if (!is_offered) {
    const std::vector<std::byte> sequence = testing::EventFetch(channel, kAllDevices);
    bytes =
        CallBytes(static_cast<uint32_t>(CallOp::kSequence), sequence.data(), sequence.size()).body;
  }
  const std::vector<testing::StepResult> results = testing::ResultsIn(bytes);
  // Without results the host executes no sequences.
  if (results.empty()) {
    return Cm(channel, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, event);
  }
  if (results[0].header.error != 0) return results[0].header.error;
  std::memcpy(&event, results[0].out.data(), std::min(results[0].out.size(), sizeof event));
  world_.tally().Count(is_offered ? "cm.event_offered" : "cm.event_fetched");
  if (is_offered) CheckQueries(channel, event, bytes);
  return 0;
}

// An offer has the replies that the program would get now.
void Process::CheckQueries(uint32_t channel, const rdma_ucm_event_resp& event,
                           std::span<const std::byte> offered) {
  for (const testing::StepResult& result : testing::ResultsIn(offered)) {
    if (result.header.step == 0) continue;
    const CmCall<rdma_ucm_query> query{
        channel, 0, {0, event.id, testing::kEventQueries[result.header.step - 1]}};
    const Reply now = CallBytes(static_cast<uint32_t>(CallOp::kCmCommand) + RDMA_USER_CM_CMD_QUERY,
                                &query, sizeof query);
    if (now.error == result.header.error && std::ranges::equal(now.body, result.out)) continue;
    world_.verdict().Complain("cm", name_ + ": query " + std::to_string(result.header.step) +
                                        " of an offered event differs from a call");
  }
}

std::optional<CounterId> Process::TakeCounter() {
  for (const ReplyDescriptor& descriptor : descriptors_) {
    if (const auto* counter = std::get_if<CounterId>(&descriptor)) return *counter;
  }
  return std::nullopt;
}

int Process::FdOf(const ReplyDescriptor& descriptor) {
  if (const auto* segment = std::get_if<SegmentId>(&descriptor)) {
    return static_cast<int>(*segment);
  }
  if (const auto* foreign = std::get_if<ForeignDescriptor>(&descriptor)) return **foreign;
  const auto* counter = std::get_if<CounterId>(&descriptor);
  return counter == nullptr ? -1 : Current().world_.FdOf(Current().machine_, *counter);
}

SendLane* Process::LaneAt(int fd) {
  const SegmentId segment{static_cast<uint32_t>(fd)};
  world_.tally().Count("lane.opened");
  lanes_.push_back(machine_.segments.Map(segment, 0));
  return reinterpret_cast<SendLane*>(lanes_.back().get());
}

int Process::TakeFrom(int fd) {
  if (!Lives()) return EIO;
  if (!machine_.counters.Take(World::CounterOf(fd))) return EAGAIN;
  counts_taken_++;
  return 0;
}

bool Process::AddTo(int fd) {
  if (!Lives() || world_.random().Below(8) == 0) return false;
  world_.AddToCounter(fd);
  world_.tally().Count("event.raised_by_program");
  return true;
}

std::byte* Process::At(const SharedSpan& span) {
  return machine_.segments.Bytes(SegmentId{span.segment}).subspan(span.offset, span.length).data();
}

void Process::RingBell(uint32_t doorbell) {
  if (!Lives()) return;
  RingDoorbell(doorbells(), doorbell);
  world_.Wake(machine_);
}

bool Process::ReadOwn(uint64_t address, std::span<std::byte> to) {
  const MemoryRange range{address, to.size()};
  if (to.empty()) return true;
  return machine_.memory.Reachable(id_, range, false) &&
         machine_.memory.Read(id_, {&range, 1}, to).has_value();
}

bool Process::WriteOwn(uint64_t address, std::span<const std::byte> from) {
  const MemoryRange range{address, from.size()};
  if (from.empty()) return true;
  return machine_.memory.Reachable(id_, range, true) &&
         machine_.memory.Write(id_, {&range, 1}, from).has_value();
}

// Returns the bytes of inline data, which the library sends from the queue's memory. Nothing if the
// range is in the program's memory.
std::optional<std::span<const std::byte>> Process::SharedBytes(
    std::span<const MemoryRange> ranges) const {
  if (ranges.size() != 1) return std::nullopt;
  for (const std::span<std::byte> segment : machine_.segments.All()) {
    const uint64_t offset = ranges[0].address - reinterpret_cast<uint64_t>(segment.data());
    if (offset < segment.size()) return segment.subspan(offset, ranges[0].length);
  }
  return std::nullopt;
}

// A range of the library's own page is a mark (CopyJob::mark). Everything before it has been copied
// then. A mark without payload before it shows a payload that is in another machine.
ssize_t Process::CopyToHost(std::span<const MemoryRange> mine, std::span<const iovec> theirs) {
  const auto page = reinterpret_cast<uint64_t>(&doorbells());
  ssize_t copied = 0;
  std::vector<MemoryRange> from;
  auto to = theirs.begin();
  for (const MemoryRange& range : mine) {
    const bool is_mark = range.address - page < sizeof(DoorbellPage);
    if (!is_mark) {
      from.push_back(range);
      continue;
    }
    if (!from.empty()) {
      world_.tally().Count("copy.to_host");
      const std::span payload(static_cast<std::byte*>(to->iov_base), to->iov_len);
      if (!machine_.memory.Read(id_, from, payload)) break;
      copied += static_cast<ssize_t>(payload.size());
      ++to;
    }
    *static_cast<uint8_t*>(to->iov_base) = *reinterpret_cast<const uint8_t*>(range.address);
    copied += static_cast<ssize_t>(range.length);
    ++to;
    from.clear();
  }
  machine_.SendFilledForms();
  return copied > 0 ? copied : -1;
}

Status Process::CopyWithMachine(uint32_t pid, bool pull, std::span<const MemoryRange> mine,
                                std::span<const MemoryRange> theirs) {
  size_t bytes = 0;
  for (const MemoryRange& range : mine) bytes += range.length;
  std::vector<std::byte> between(bytes);
  for (const auto& machine : world_.machines()) {
    const ProcessId process = machine->memory.ProcessOf(pid);
    if (process == ProcessId::kNone) continue;
    if (pull) {
      const Status read = machine->memory.Read(process, theirs, between);
      return read ? machine_.memory.Write(id_, mine, between) : read;
    }
    if (const auto inline_bytes = SharedBytes(mine)) {
      return machine->memory.Write(process, theirs, *inline_bytes);
    }
    const Status read = machine_.memory.Read(id_, mine, between);
    return read ? machine->memory.Write(process, theirs, between) : read;
  }
  return Fail(ESRCH);
}

ssize_t Process::CopyWith(const shim::CopyGuard& guard, uint32_t pid, bool pull,
                          std::span<const iovec> own, std::span<const iovec> theirs) {
  const bool executes = std::atomic_ref(doorbells().jobs.executes).load() != 0;
  if (executes && around_execution_) around_execution_();
  const ProcessId other = machine_.memory.ProcessOf(pid);
  const bool is_direct =
      other == ProcessId::kNone && pid != static_cast<uint32_t>(AddressSpaces::kHost);
  const std::string way = executes    ? is_direct ? "lent." : "executed."
                          : is_direct ? "direct."
                                      : "copy.";
  if (*guard.word != guard.expected) {
    world_.tally().Count(way + "recalled");
    errno = ECANCELED;
    return -1;
  }
  const std::vector<MemoryRange> mine = RangesOf(own), far = RangesOf(theirs);
  if (pid == static_cast<uint32_t>(AddressSpaces::kHost)) {
    errno = EFAULT;
    return CopyToHost(mine, theirs);
  }
  const auto inline_bytes = SharedBytes(mine);
  const Status copied = is_direct      ? CopyWithMachine(pid, pull, mine, far)
                        : pull         ? machine_.memory.Copy(other, far, id_, mine)
                        : inline_bytes ? machine_.memory.Write(other, far, *inline_bytes)
                                       : machine_.memory.Copy(id_, mine, other, far);
  const std::string kind = !executes ? "" : pull ? "read." : "write.";
  world_.tally().Count(way + kind + (copied ? "done" : "failed"));
  if (executes && around_execution_) around_execution_();
  if (!copied) {
    errno = EFAULT;
    return -1;
  }
  ssize_t bytes = 0;
  for (const MemoryRange& range : mine) bytes += static_cast<ssize_t>(range.length);
  return bytes;
}

void Process::TakeCopies() {
  if (!Lives() || taken_) return;
  const Entered entered(*this);
  const bool before = std::exchange(helps_, true);
  taken_.emplace();
  if (!taken_->Take()) taken_.reset();
  helps_ = before;
}

void Process::FinishCopies() {
  if (!Lives() || !taken_ || is_stopped_) return;
  const Entered entered(*this);
  taken_->Run();
  taken_.reset();
}

}  // namespace rdmaemu::sim
