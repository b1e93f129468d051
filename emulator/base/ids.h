// Ids of objects outside a host: processes, process groups, shared segments and event counters.
#pragma once

#include <cstdint>

namespace rdmaemu {

// One connected process, whose memory Memory reads and writes. A host never reuses an id.
enum class ProcessId : uint32_t { kNone = 0 };
// A process and the processes forked from it. An object belongs to the process that created it and
// to processes forked from that process afterwards (survivors.h). File descriptors of the kernel
// have the same rule.
enum class GroupId : uint32_t { kNone = 0 };
// A descriptor that behaves in poll(2) and read(2) like the kernel's: an eventfd in semaphore mode.
enum class CounterId : uint32_t { kNone = 0 };
// A memfd that a host shares with one group.
enum class SegmentId : uint32_t { kNone = 0 };

}  // namespace rdmaemu
