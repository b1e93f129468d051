// Numbers by which the parts of a host speak of what is outside it: processes, groups of them,
// shared segments, event counters.
#pragma once

#include <cstdint>

namespace rdmaemu {

// One connected process; what Memory reads and writes. Never reused while the host lives.
enum class ProcessId : uint32_t { kNone = 0 };
// A process and the processes forked from it. What one of them made belongs to it and to those
// forked from it afterwards (survivors.h), as a descriptor of the kernel would.
enum class GroupId : uint32_t { kNone = 0 };
// A descriptor that poll and read treat as the kernel's: an eventfd in semaphore mode.
enum class CounterId : uint32_t { kNone = 0 };
// A memfd that a host shares with one group.
enum class SegmentId : uint32_t { kNone = 0 };

}  // namespace rdmaemu
