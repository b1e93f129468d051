// Interfaces to the memory of other processes and to memory shared with them. The runtime
// implements them with process_vm_readv and memfds. Tests implement them with plain buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/base/ids.h"
#include "emulator/base/result.h"

namespace rdmaemu {

// A byte range in a process's address space. A range of length 0 is allowed and accesses nothing.
struct MemoryRange {
  uint64_t address;  // virtual address in the process
  uint64_t length;   // bytes
};

// Whether a thread may be copying (Memory::CopyStateOf).
enum class CopyState : uint8_t {
  kMayCopy,
  kTraced,     // a tracer has stopped it, before the copy or behind it
  kElsewhere,  // it is stopped or blocked outside of a copy, or has ended
};

// Access to the address spaces of a host's processes. A call returns EFAULT when any byte is
// unmapped, and ESRCH when the process has ended. The bytes moved before an error are unspecified.
class Memory {
 public:
  virtual ~Memory() = default;
  // Gathers `from` into `to`; the lengths must add up to to.size().
  virtual Status Read(ProcessId process, std::span<const MemoryRange> from,
                      std::span<std::byte> to) = 0;
  // Scatters `from` over `to`; the lengths must add up to from.size().
  virtual Status Write(ProcessId process, std::span<const MemoryRange> to,
                       std::span<const std::byte> from) = 0;
  // Do the same with several host buffers, for example for a train's packets, whose headers are
  // between the payloads. An implementation may use one system call for all of them.
  virtual Status ReadParts(ProcessId process, std::span<const MemoryRange> from,
                           std::span<const std::span<std::byte>> to);
  virtual Status WriteParts(ProcessId process, std::span<const MemoryRange> to,
                            std::span<const std::span<const std::byte>> from);
  // Moves bytes between two processes, or within one. Both lists must have the same total length.
  virtual Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
                      std::span<const MemoryRange> to) = 0;
  // Returns true when every page of the range is accessible now (for writing, if `write`). Memory
  // registration pins these pages (the kernel's ib_umem_get returns EFAULT otherwise).
  virtual bool Reachable(ProcessId process, MemoryRange range, bool write) = 0;
  // Returns the pid with which threads of `taker` may access the memory of `owner` (the pid of
  // process_vm_writev). 0: they have no access.
  virtual uint32_t PidFor(ProcessId taker, ProcessId owner) = 0;
  // Returns the pid with which threads of `taker` may access this host's own memory. 0: they have
  // no access.
  virtual uint32_t HostPidFor(ProcessId /*taker*/) { return 0; }
  // Returns true if a process shares some of the bytes with its host, which then copies them
  // without a system call. No other process may access them by PidFor.
  virtual bool IsShared(ProcessId, std::span<const MemoryRange>) { return false; }
  // Yields the processor. Call this while waiting for another process.
  virtual void LetOthersRun() = 0;
  // Sleeps for about a millisecond. Call this after many calls of LetOthersRun.
  virtual void LetOthersRunLonger() { LetOthersRun(); }
  // Returns whether the thread of a program may be in a copy with another process's memory at this
  // moment. `thread` has the number with which a program that PidFor admits sees it.
  virtual CopyState CopyStateOf(uint32_t /*thread*/) { return CopyState::kMayCopy; }
  // Returns true if a signal or a debugger has stopped the process.
  virtual bool IsStopped(ProcessId) { return false; }
  // Tells the user that the host no longer waits for a copy of this thread.
  virtual void SayCopyIsLate(uint32_t /*thread*/) {}
  // Returns true when the system permits the host to read this mapped byte. A program thus gets the
  // error when it registers memory, and not at its first transfer.
  virtual bool Admits(ProcessId, uint64_t /*address*/) { return true; }
};

struct Segment {
  SegmentId id;
  std::span<std::byte> bytes;  // the host's own mapping, page-aligned, zeroed
};

// Creates and destroys segments of memory that a group of processes shares.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual Result<Segment> CreateSegment(size_t bytes) = 0;  // ENOMEM
  virtual void DestroySegment(SegmentId segment) = 0;
  // Zeroes bytes of a segment by returning their pages to the system. The bytes must be in the
  // segment.
  virtual void Discard(SegmentId segment, size_t offset, size_t length) = 0;
  // Returns the descriptor of the segment's memory in this process. -1: there is none.
  virtual int Descriptor(SegmentId /*segment*/) const { return -1; }
  // Makes a segment of the memory of another host's segment, of which `descriptor` is a descriptor
  // in this process. Takes the descriptor over. EINVAL: the memory is not as long, or may shrink.
  virtual Result<Segment> AdoptSegment(int /*descriptor*/, size_t /*bytes*/) {
    return Fail(EOPNOTSUPP);
  }
};

// Counters that are file descriptors in the client. A counter above 0 is readable, and one read
// decrements it by 1.
class EventCounters {
 public:
  virtual ~EventCounters() = default;
  virtual Result<CounterId> Create() = 0;  // EMFILE
  virtual void Destroy(CounterId counter) = 0;
  virtual void Add(CounterId counter, uint32_t count) = 0;
  // Decrements the counter by up to `count`, for events that were dropped or moved before a program
  // read them. Never blocks, even if the client changed the descriptor. Returns by how much it
  // decremented the counter. The program has already read the rest and will find no event.
  virtual uint32_t Remove(CounterId counter, uint32_t count) = 0;
  // Returns this process's number of the counter's file. -1: there is no such counter.
  virtual int Descriptor(CounterId counter) const = 0;
};

}  // namespace rdmaemu
