#include "emulator/transport/executions.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "emulator/transport/copy_waits.h"
#include "emulator/verbs/device.h"

namespace rdmaemu::transport {
namespace {

// Bounds what a hostile program adds to counters at a time.
constexpr uint64_t kMaxCountedAtOnce = uint64_t{1} << 40;

// Moves `counted` to the program's numbers, and returns the difference.
Executed::Requests TakeRequests(Executed::Requests& shared, Executed::Requests& counted) {
  const auto take = [](uint64_t& now, uint64_t& before) {
    const uint64_t to = std::atomic_ref(now).load(std::memory_order_relaxed);
    return std::min(to - std::exchange(before, to), kMaxCountedAtOnce);
  };
  return {take(shared.count, counted.count), take(shared.bytes, counted.bytes),
          take(shared.packets, counted.packets), take(shared.padding, counted.padding),
          take(shared.ends, counted.ends)};
}

uint64_t HeadersOf(wire::Operation operation) {
  return wire::Opcode(wire::TransportClass::kRc, operation).header_bytes + wire::kIcrcBytes;
}

// A thread that may execute a request by a permit that has ended.
struct BegunExecution {
  JobPage& page;
  bool is_recalled = false;

  bool HasEnded() { return std::atomic_ref(page.executes).load(std::memory_order_seq_cst) == 0; }
  std::optional<uint32_t> Recall() {
    if (!std::exchange(is_recalled, true)) {
      std::atomic_ref(page.recalls).fetch_add(1, std::memory_order_seq_cst);
    }
    const uint32_t thread = std::atomic_ref(page.busy).load(std::memory_order_acquire);
    if (HasEnded()) return std::nullopt;
    return thread;
  }
  // A thread outside of its system call begins no copy, because it was recalled.
  bool TakeBack() { return true; }
};

}  // namespace

Executions Executions::TakeNew(Executed& shared, Executed& counted) {
  Executions taken;
  taken.writes_ = TakeRequests(shared.writes, counted.writes);
  taken.reads_ = TakeRequests(shared.reads, counted.reads);
  return taken;
}

Executions Executions::OfSends(uint64_t count, uint64_t bytes, uint64_t extra_bytes) {
  Executions sends;
  sends.sends_ = {count, std::min(bytes, kMaxCountedAtOnce), count,
                  std::min(extra_bytes, kMaxCountedAtOnce), count};
  return sends;
}

uint64_t Executions::there_bytes() const {
  using wire::Operation;
  const uint64_t each = HeadersOf(Operation::kWriteMiddle);
  return writes_.packets * each + writes_.count * (HeadersOf(Operation::kWriteOnly) - each) +
         writes_.bytes + writes_.padding + reads_.count * HeadersOf(Operation::kReadRequest) +
         sends_.count * HeadersOf(Operation::kSendOnly) + sends_.bytes + sends_.padding;
}

uint64_t Executions::back_bytes() const {
  using wire::Operation;
  const uint64_t each = HeadersOf(Operation::kReadResponseMiddle);
  return (writes_.count + sends_.count) * HeadersOf(Operation::kAcknowledge) +
         reads_.packets * each + reads_.ends * (HeadersOf(Operation::kReadResponseOnly) - each) +
         reads_.bytes + reads_.padding;
}

DatagramSink::Exchanged Executions::ForRequester() const {
  return {there(), there_bytes(), back(), back_bytes()};
}

DatagramSink::Exchanged Executions::ForResponder() const {
  return {back(), back_bytes(), there(), there_bytes()};
}

void Executions::CountAtRequester(QpContext& context) const {
  PortCounters& port = context.qp->device->counters;
  port.sent_pkts += there();
  port.rcvd_pkts += back();
  MoveRequester(context, psns());
}

void Executions::CountAtResponder(QpContext& context) const {
  PortCounters& port = context.qp->device->counters;
  port.rcvd_pkts += there();
  port.sent_pkts += back();
  MoveResponder(context, psns(), static_cast<uint32_t>(requests() & wire::kPsnMask));
  ResponderState& s = context.responder;
  if (!IsEmpty(writes_) || !IsEmpty(sends_)) s.ack_psn = s.expected_psn;
}

void AwaitExecution(Memory& memory, JobPage& page) {
  BegunExecution begun{page};
  if (begun.HasEnded()) return;
  int looks = kMostLooks;
  (void)AwaitCopy(memory, begun, looks);
}

}  // namespace rdmaemu::transport
