// The memory of other processes and what is shared with them, as interfaces: the runtime reaches
// it with process_vm_readv and memfds, a test with plain buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/base/ids.h"
#include "emulator/base/result.h"

namespace rdmaemu {

// Bytes of a process's address space. length 0 is allowed and touches nothing.
struct MemoryRange {
  uint64_t address;  // virtual address in the process
  uint64_t length;   // bytes
};

// Access to the address spaces of a host's processes. All calls answer EFAULT when any byte was
// out of reach (unmapped, or the process is gone); what was moved before that is unspecified.
class Memory {
 public:
  virtual ~Memory() = default;
  // Gathers `from` into `to`; the lengths must add up to to.size().
  virtual Status Read(ProcessId process, std::span<const MemoryRange> from,
                      std::span<std::byte> to) = 0;
  // Scatters `from` over `to`; the lengths must add up to from.size().
  virtual Status Write(ProcessId process, std::span<const MemoryRange> to,
                       std::span<const std::byte> from) = 0;
  // The same with a host side of several parts: a train's packets, whose headers stand between
  // the payloads. One call of the system, where there is one, for all of them.
  virtual Status ReadParts(ProcessId process, std::span<const MemoryRange> from,
                           std::span<const std::span<std::byte>> to);
  virtual Status WriteParts(ProcessId process, std::span<const MemoryRange> to,
                            std::span<const std::span<const std::byte>> from);
  // Moves bytes between two processes (which may be one). Both lists must have the same total.
  virtual Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
                      std::span<const MemoryRange> to) = 0;
  // True when every page of the range can be reached now, and written if `write`: what
  // registering memory pins (ib_umem_get's EFAULT).
  virtual bool Reachable(ProcessId process, MemoryRange range, bool write) = 0;
  // The number by which threads of `taker` may reach the memory of `owner` themselves
  // (process_vm_writev's pid); 0: they cannot.
  virtual uint32_t PidFor(ProcessId taker, ProcessId owner) = 0;
  // Gives the core away for a moment: the caller waits for what another process is doing.
  virtual void LetOthersRun() = 0;
  // True when the system lets the host read this byte, which is there: a program learns that the
  // host is refused when it registers memory, not from its first transfer.
  virtual bool Admits(ProcessId, uint64_t /*address*/) { return true; }
};

struct Segment {
  SegmentId id;
  std::span<std::byte> bytes;  // the host's own mapping, page-aligned, zeroed
};

// Segments of memory shared with a group of processes.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual Result<Segment> CreateSegment(size_t bytes) = 0;  // ENOMEM
  virtual void DestroySegment(SegmentId segment) = 0;
  // Zeroes bytes of a live segment by giving their pages back to the system. They must lie within
  // the segment.
  virtual void Discard(SegmentId segment, size_t offset, size_t length) = 0;
};

// Counters that are descriptors in the client: readable while above zero, a read takes one.
class EventCounters {
 public:
  virtual ~EventCounters() = default;
  virtual Result<CounterId> Create() = 0;  // EMFILE
  virtual void Destroy(CounterId counter) = 0;
  virtual void Add(CounterId counter, uint32_t count) = 0;
  // Takes up to `count` back, for events that were dropped or moved before anyone read them.
  // Never blocks, whatever the client did to the descriptor. Returns how many it got: the rest
  // were taken by a reader that will find nothing.
  virtual uint32_t Remove(CounterId counter, uint32_t count) = 0;
};

}  // namespace rdmaemu
