// The door of programs' memory: bytes that a rule removes act like unmapped memory.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "emulator/base/memory.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/programs.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class MemoryFaults final : public Memory {
 public:
  MemoryFaults(Memory& memory, HostFaults& faults, const Verbs& verbs, const Programs& programs)
      : memory_(memory), faults_(faults), verbs_(verbs), programs_(programs) {}

  Status Read(ProcessId process, std::span<const MemoryRange> from,
              std::span<std::byte> to) override;
  Status Write(ProcessId process, std::span<const MemoryRange> to,
               std::span<const std::byte> from) override;
  Status ReadParts(ProcessId process, std::span<const MemoryRange> from,
                   std::span<const std::span<std::byte>> to) override;
  Status WriteParts(ProcessId process, std::span<const MemoryRange> to,
                    std::span<const std::span<const std::byte>> from) override;
  Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
              std::span<const MemoryRange> to) override;
  bool Reachable(ProcessId process, MemoryRange range, bool write) override;
  bool Admits(ProcessId process, uint64_t address) override {
    return memory_.Admits(process, address);
  }
  // Returns 0 while a rule watches memory, so that programs do not copy for the host then.
  uint32_t PidFor(ProcessId taker, ProcessId owner) override {
    return IsWatched() ? 0 : memory_.PidFor(taker, owner);
  }
  uint32_t HostPidFor(ProcessId taker) override {
    return IsWatched() ? 0 : memory_.HostPidFor(taker);
  }
  bool IsShared(ProcessId process, std::span<const MemoryRange> ranges) override {
    return memory_.IsShared(process, ranges);
  }
  void LetOthersRun() override { memory_.LetOthersRun(); }
  void LetOthersRunLonger() override { memory_.LetOthersRunLonger(); }
  CopyState CopyStateOf(uint32_t thread) override { return memory_.CopyStateOf(thread); }
  bool IsStopped(ProcessId process) override { return memory_.IsStopped(process); }
  void SayCopyIsLate(uint32_t thread) override { memory_.SayCopyIsLate(thread); }

 private:
  struct Refused {
    ProcessId process;
    MemoryRange range;
  };
  bool IsWatched() const { return faults_.Watches(fault::Point::kMemory); }
  // Returns false when a rule removes some of the bytes.
  bool Passes(ProcessId process, std::span<const MemoryRange> ranges, std::string_view subject);

  Memory& memory_;
  HostFaults& faults_;
  const Verbs& verbs_;
  const Programs& programs_;
  // The latest refused range. When the caller then checks which side of a copy failed, that check
  // gets the same result.
  std::optional<Refused> refused_;
};

}  // namespace rdmaemu
