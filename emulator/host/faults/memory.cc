#include "emulator/host/faults/memory.h"

#include <utility>

namespace rdmaemu {
namespace {

constexpr std::string_view kRead = "read", kWrite = "write";

bool Overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.address < b.address + b.length && b.address < a.address + a.length;
}

}  // namespace

bool MemoryFaults::Passes(ProcessId process, std::span<const MemoryRange> ranges,
                          std::string_view subject) {
  if (!IsWatched()) return true;
  for (const MemoryRange& range : ranges) {
    if (range.length == 0) continue;
    fault::Moment moment{};
    moment.point = fault::Point::kMemory;
    moment.now = faults_.now();
    moment.subject = subject;
    moment.program = programs_.ProgramOf(process);
    moment.memory = range;
    moment.mr_order = verbs_.RegionOrderOf(process, range);
    if (faults_.Decide(moment, process) == nullptr) continue;
    refused_ = Refused{process, range};
    return false;
  }
  return true;
}

Status MemoryFaults::Read(ProcessId process, std::span<const MemoryRange> from,
                          std::span<std::byte> to) {
  return Passes(process, from, kRead) ? memory_.Read(process, from, to) : Fail(EFAULT);
}
Status MemoryFaults::Write(ProcessId process, std::span<const MemoryRange> to,
                           std::span<const std::byte> from) {
  return Passes(process, to, kWrite) ? memory_.Write(process, to, from) : Fail(EFAULT);
}
Status MemoryFaults::ReadParts(ProcessId process, std::span<const MemoryRange> from,
                               std::span<const std::span<std::byte>> to) {
  return Passes(process, from, kRead) ? memory_.ReadParts(process, from, to) : Fail(EFAULT);
}
Status MemoryFaults::WriteParts(ProcessId process, std::span<const MemoryRange> to,
                                std::span<const std::span<const std::byte>> from) {
  return Passes(process, to, kWrite) ? memory_.WriteParts(process, to, from) : Fail(EFAULT);
}
Status MemoryFaults::Copy(ProcessId source, std::span<const MemoryRange> from,
                          ProcessId destination, std::span<const MemoryRange> to) {
  if (!Passes(source, from, kRead) || !Passes(destination, to, kWrite)) return Fail(EFAULT);
  return memory_.Copy(source, from, destination, to);
}

bool MemoryFaults::Reachable(ProcessId process, MemoryRange range, bool write) {
  const std::optional<Refused> refused = std::exchange(refused_, std::nullopt);
  if (refused && refused->process == process && Overlap(refused->range, range)) return false;
  return memory_.Reachable(process, range, write);
}

}  // namespace rdmaemu
