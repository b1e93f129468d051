// The payloads that TransportHooks::Quiesce moves to program memory. Small payloads may be in
// shared memory (slab.h), and copies may be offered to a program's threads (copy_jobs.h). Code that
// changes or ends a payload's place first calls Quiesce with the scope.
#pragma once

#include <variant>

#include "emulator/base/ids.h"
#include "emulator/base/memory.h"

namespace rdmaemu {

struct CompletionQueue;
struct GroupShare;
struct MemoryRegion;
struct QueuePair;

// Payloads that the queue pair received and sent. Used before the QP is reset, flushed or
// destroyed.
struct QpPayloads {
  QueuePair& qp;
};
// Payloads in the slots beside the queue's completions. Used before the queue is moved or
// destroyed.
struct QueuePayloads {
  CompletionQueue& cq;
};
// All payloads in the region's memory, or on their way to it. Used before the region is changed.
// Used with `ends` before the region is deregistered or moved. After `ends`, the host reads no more
// payloads from the region.
struct RegionPayloads {
  const MemoryRegion& region;
  bool ends = true;
};
// Copies that a remote key permits to bytes of a region: a window's bytes, or all bytes of an
// invalidated region.
struct RemotePayloads {
  ProcessId process;
  MemoryRange range;
};
// All copies from or to the process's memory. Used after the process has ended.
struct ProcessPayloads {
  ProcessId process;
};
// All payloads of the group's processes. Used before another process joins the group. Used with
// `ends` after the last process has ended.
struct GroupPayloads {
  GroupShare& share;
  bool ends = false;
};
using PayloadScope = std::variant<QpPayloads, QueuePayloads, RegionPayloads, RemotePayloads,
                                  ProcessPayloads, GroupPayloads>;

}  // namespace rdmaemu
