// Whose payloads TransportHooks::Quiesce moves to program memory. Small payloads may stand in
// shared memory (slab.h) and copies may be on offer to a program's threads (copy_jobs.h): whoever
// changes or ends what the payload's place depends on names the scope first.
#pragma once

#include <variant>

#include "emulator/base/ids.h"
#include "emulator/base/memory.h"

namespace rdmaemu {

struct CompletionQueue;
struct GroupShare;
struct MemoryRegion;
struct QueuePair;

// What the queue pair received and what it has sent. It is about to be reset, flushed or destroyed.
struct QpPayloads {
  QueuePair& qp;
};
// What stands beside the queue's completions. The queue is about to be moved or destroyed.
struct QueuePayloads {
  CompletionQueue& cq;
};
// All payloads in or for the region's memory. The region is about to be changed, or with `ends`, to
// be deregistered or moved: what is still to be sent from it is not read any more.
struct RegionPayloads {
  const MemoryRegion& region;
  bool ends = true;
};
// Copies by remote right to bytes of a region: a window's, or all where the region is invalidated.
struct RemotePayloads {
  ProcessId process;
  MemoryRange range;
};
// All copies from or to the process's memory. The process has ended.
struct ProcessPayloads {
  ProcessId process;
};
// All payloads of the group's processes. Another process is about to join it, or with `ends`, the
// last one has ended and nobody is left to see them.
struct GroupPayloads {
  GroupShare& share;
  bool ends = false;
};
using PayloadScope = std::variant<QpPayloads, QueuePayloads, RegionPayloads, RemotePayloads,
                                  ProcessPayloads, GroupPayloads>;

}  // namespace rdmaemu
