// Memory behind process_vm_readv and process_vm_writev (process_vm_readv(2)): a device reaches the
// pages of whoever registered them. Where a sandbox refuses these calls, /proc/PID/mem (proc(5))
// takes their place. The memory of a process that has ended is ESRCH until RemoveProcess.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/base/time.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Why this process could reach no other one's memory, and what to do about it; "" when nothing is
// known to be in the way.
std::string WhyMemoryIsRefused();

class ProcessMemory final : public Memory {
 public:
  // Copies between two processes move this much at a time (facts: 128 to 256 KiB is fastest).
  static constexpr size_t kBounceBytes = size_t{128} << 10;

  // `warn` gets one line, once, when the kernel refuses access to a client's memory.
  explicit ProcessMemory(std::function<void(const std::string&)> warn);

  void AddProcess(ProcessId process, pid_t pid);
  // The process has ended; its number may be another's soon.
  void ProcessEnded(ProcessId process);
  void RemoveProcess(ProcessId process);

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
  bool Admits(ProcessId process, uint64_t address) override;
  // No thread of a program is asked to copy: the host takes back what nobody took when its time
  // has passed, and time may stand still.
  void CopyAlone() { copies_alone_ = true; }
  uint32_t PidFor(ProcessId taker, ProcessId owner) override;
  void LetOthersRun() override;

 private:
  enum class Direction { kRead, kWrite };
  struct Known {
    pid_t pid;
    bool same_numbers;  // it is in this process's pid namespace: pids mean the same to both
    bool alive = true;
  };

  // Writing to /proc/PID/mem goes through pages that the program may not write, so its mappings are
  // asked first; for this long the answer is believed.
  static constexpr std::chrono::microseconds kRightsBelievedFor{1000};
  struct Rights {
    pid_t pid = 0;
    bool write = false;
    MemoryRange range{};
    Time until{};
  };

  static constexpr pid_t kNobody = 0, kEnded = -1;
  // The process's pid, kEnded, or kNobody where it is not known.
  pid_t PidOf(ProcessId process) const;
  // Moves all bytes between `local` and `remote`, whose totals are equal. Lists may be of any
  // length; EFAULT when anything was out of reach, ESRCH when the process has ended.
  Status Move(Direction direction, pid_t pid, std::span<const iovec> local,
              std::span<const iovec> remote);
  // The same by /proc/PID/mem. Bytes moved, or -1 and errno.
  ssize_t MoveByFile(Direction direction, pid_t pid, int file, std::span<const iovec> local,
                     std::span<const iovec> remote);
  bool HasRights(pid_t pid, MemoryRange range, bool write);
  // The open /proc/PID/mem, where process_vm_* was refused; -1: not tried, or refused too.
  int FileOf(pid_t pid) const;
  bool OpenFile(pid_t pid);
  void Refused(pid_t pid);

  std::function<void(const std::string&)> warn_;
  bool warned_ = false;
  bool copies_alone_ = false;
  pid_t own_pid_;
  std::unordered_map<uint32_t, Known> processes_;
  std::unordered_map<pid_t, UniqueFd> files_;
  std::array<Rights, 16> rights_;
  size_t next_rights_ = 0;
  std::unique_ptr<std::byte[]> bounce_;
};

}  // namespace rdmaemu::runtime
