// The memory of the processes of one machine. Each process has one stretch of bytes at an address
// that is made up, so that a run does not depend on where the heap happens to be; whatever the host
// writes is shown to a watcher, and what it touches outside is a complaint.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "emulator/base/memory.h"
#include "tests/sim/verdict.h"

namespace rdmaemu::sim {

class AddressSpaces final : public Memory {
 public:
  // Told of every range that the host writes, as offsets into the process's stretch.
  using Watcher = std::function<void(uint64_t offset, uint64_t length)>;

  explicit AddressSpaces(Verdict& verdict) : verdict_(verdict) {}

  void Add(ProcessId process, uint64_t base, std::span<std::byte> bytes, Watcher watcher);
  // The process has gone: its memory answers EFAULT from now on.
  void Remove(ProcessId process) { spaces_.erase(process); }
  void Clear() { spaces_.clear(); }

  Status Read(ProcessId process, std::span<const MemoryRange> from,
              std::span<std::byte> to) override;
  Status Write(ProcessId process, std::span<const MemoryRange> to,
               std::span<const std::byte> from) override;
  Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
              std::span<const MemoryRange> to) override;
  bool Reachable(ProcessId process, MemoryRange range, bool write) override;
  // Processes reach each other by their ids.
  uint32_t PidFor(ProcessId, ProcessId owner) override {
    return helpers_ ? static_cast<uint32_t>(owner) : 0;
  }
  void LetOthersRun() override { helpers_(); }
  // What runs when the host waits for the threads that copy for it. Without it none do.
  void SetHelpers(std::function<void()> helpers) { helpers_ = std::move(helpers); }

 private:
  struct Space {
    uint64_t base;
    std::span<std::byte> bytes;
    Watcher watcher;
  };
  // nullptr with a complaint when the range is not all inside; nullptr without one when the process
  // has gone.
  std::byte* Find(ProcessId process, const MemoryRange& range, Space** space);

  Verdict& verdict_;
  std::function<void()> helpers_;
  std::map<ProcessId, Space> spaces_;
};

}  // namespace rdmaemu::sim
