// Memory of other processes by process_vm_readv(2) and process_vm_writev(2), as a device accesses
// registered pages. Where a sandbox refuses these calls, /proc/PID/mem (proc(5)) replaces them.
// Memory that a process shares (shared_buffers.h) needs no call. After a process has ended, access
// fails with ESRCH until RemoveProcess.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/base/time.h"
#include "emulator/runtime/shared_buffers.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Returns why this process could not access the memory of other processes, and what to do. Returns
// "" if no obstacle is known.
std::string WhyMemoryIsRefused();

class ProcessMemory final : public Memory {
 public:
  // Copies between two processes move this many bytes at a time (measured: 128 to 256 KiB is
  // fastest).
  static constexpr size_t kBounceBytes = size_t{128} << 10;

  // `warn` gets one line, once, when the kernel refuses access to a client's memory.
  explicit ProcessMemory(std::function<void(const std::string&)> warn);

  void AddProcess(ProcessId process, pid_t pid);
  // Marks the process as ended. Its pid may soon be reused.
  void ProcessEnded(ProcessId process);
  void RemoveProcess(ProcessId process);
  // Records the arena that a process shares. `bytes` must exist until ProcessEnded or
  // RemoveProcess. Returns false if the process has an arena.
  bool ShareBuffers(ProcessId process, uint64_t address, std::span<std::byte> bytes);
  // The processes that share an arena now, and the buffers that did not fit one since the start.
  struct SharedCounts {
    size_t processes = 0;
    uint64_t ordinary_buffers = 0;
  };
  SharedCounts shared_counts() const;

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
  // Makes PidFor return 0, so that no program thread is asked to copy. The host takes back an
  // unclaimed copy after a timeout, but with some clocks time may not move.
  void CopyAlone() { copies_alone_ = true; }
  bool IsShared(ProcessId process, std::span<const MemoryRange> ranges) override;
  uint32_t PidFor(ProcessId taker, ProcessId owner) override;
  uint32_t HostPidFor(ProcessId taker) override;
  void LetOthersRun() override;
  void LetOthersRunLonger() override;
  bool IsStopped(ProcessId process) override;
  CopyState CopyStateOf(uint32_t thread) override;
  void SayCopyIsLate(uint32_t thread) override;

 private:
  enum class Direction { kRead, kWrite };
  struct Known {
    pid_t pid;
    bool same_numbers;  // its pid namespace is this process's, so that pids have the same meaning
    bool alive = true;
  };

  // A write to /proc/PID/mem ignores the page protection of the program. The host therefore checks
  // the mappings first, and trusts the result for this long.
  static constexpr std::chrono::microseconds kRightsBelievedFor{1000};
  struct Rights {
    pid_t pid = 0;
    bool write = false;
    MemoryRange range{};
    Time until{};
  };

  static constexpr pid_t kNobody = 0, kEnded = -1;
  // Returns the pid of the process, kEnded, or kNobody if the process is unknown.
  pid_t PidOf(ProcessId process) const;
  // Returns nullptr if the process shares no memory.
  SharedBuffers* BuffersOf(ProcessId process);
  // Moves bytes between this process and another: by memcpy if the other shares all of them, else
  // as Move does.
  Status MoveOf(Direction direction, ProcessId process, std::span<const iovec> local,
                std::span<const iovec> remote);
  // Copies as Copy does, when one side is memory that its process shares. Returns nullopt if
  // neither side is.
  std::optional<Status> CopyShared(ProcessId source, std::span<const iovec> from,
                                   ProcessId destination, std::span<const iovec> to);
  Status CopyByBounce(ProcessId source, std::span<const iovec> from, ProcessId destination,
                      std::span<const iovec> to);
  // Moves all bytes between `local` and `remote`, whose total lengths are equal. The lists may have
  // any length. Fails with EFAULT if a byte is not accessible, and with ESRCH if the process has
  // ended.
  Status Move(Direction direction, pid_t pid, std::span<const iovec> local,
              std::span<const iovec> remote);
  // Does the same by /proc/PID/mem. Returns the number of bytes moved, or -1 and errno.
  ssize_t MoveByFile(Direction direction, pid_t pid, int file, std::span<const iovec> local,
                     std::span<const iovec> remote);
  bool HasRights(pid_t pid, MemoryRange range, bool write);
  // Returns the open /proc/PID/mem if process_vm_* was refused. Returns -1 if process_vm_* was not
  // tried, or if /proc/PID/mem was refused, too.
  int FileOf(pid_t pid) const;
  bool OpenFile(pid_t pid);
  void Refused(pid_t pid);
  void ForeignNamespace();

  std::function<void(const std::string&)> warn_;
  bool warned_ = false;
  bool warned_of_namespace_ = false;
  bool copies_alone_ = false;
  pid_t own_pid_;
  std::unordered_map<uint32_t, Known> processes_;
  std::unordered_map<uint32_t, SharedBuffers> shared_;
  uint64_t ordinary_buffers_ = 0;  // of processes that have ended
  std::unordered_map<pid_t, UniqueFd> files_;
  std::array<Rights, 16> rights_;
  size_t next_rights_ = 0;
  std::unique_ptr<std::byte[]> bounce_;
};

}  // namespace rdmaemu::runtime
