// The memory of the processes of one machine. Each process has one range of bytes at an artificial
// address, so that a run does not depend on the heap's addresses. A watcher sees every write of the
// host, and an access outside the range is a complaint.
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
  // Called for every range that the host writes, as offsets into the process's range.
  using Watcher = std::function<void(uint64_t offset, uint64_t length)>;

  explicit AddressSpaces(Verdict& verdict) : verdict_(verdict) {}

  void Add(ProcessId process, uint64_t base, std::span<std::byte> bytes, Watcher watcher);
  // After the end of the process, accesses to its memory fail with EFAULT.
  void Remove(ProcessId process) { spaces_.erase(process); }
  void Clear() { spaces_.clear(); }

  Status Read(ProcessId process, std::span<const MemoryRange> from,
              std::span<std::byte> to) override;
  Status Write(ProcessId process, std::span<const MemoryRange> to,
               std::span<const std::byte> from) override;
  Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
              std::span<const MemoryRange> to) override;
  bool Reachable(ProcessId process, MemoryRange range, bool write) override;
  // Processes of all machines access each other by pids. The pids of a machine's process ids begin
  // behind `begin`, and no other machine or earlier host has the same.
  void SetPids(uint32_t begin) { first_pid_ = begin; }
  uint32_t PidFor(ProcessId, ProcessId owner) override {
    return helpers_ ? first_pid_ + static_cast<uint32_t>(owner) : 0;
  }
  // Returns kNone if the pid is not one of this machine.
  ProcessId ProcessOf(uint32_t pid) const {
    return pid > first_pid_ && pid - first_pid_ < kMaxPids ? ProcessId{pid - first_pid_}
                                                           : ProcessId::kNone;
  }
  static constexpr uint32_t kMaxPids = 1 << 16;
  // The host has this id. Its addresses are real ones.
  static constexpr ProcessId kHost{0xffff'fff0};
  uint32_t HostPidFor(ProcessId) override { return helpers_ ? static_cast<uint32_t>(kHost) : 0; }
  void LetOthersRun() override { helpers_(); }
  // A thread with a job that LetOthersRun has not finished is stopped before its copy.
  CopyState CopyStateOf(uint32_t) override { return CopyState::kElsewhere; }
  // Sets the function that runs while the host waits for threads that copy for it. Without the
  // function no threads copy.
  void SetHelpers(std::function<void()> helpers) { helpers_ = std::move(helpers); }

 private:
  struct Space {
    uint64_t base;
    std::span<std::byte> bytes;
    Watcher watcher;
  };
  // Returns nullptr with a complaint when the range is not entirely inside. Returns nullptr without
  // a complaint when the process has ended.
  std::byte* Find(ProcessId process, const MemoryRange& range, Space** space);

  Verdict& verdict_;
  std::function<void()> helpers_;
  uint32_t first_pid_ = 0;
  std::map<ProcessId, Space> spaces_;
};

}  // namespace rdmaemu::sim
