#include "emulator/base/memory.h"

#include <algorithm>
#include <cerrno>

namespace rdmaemu {
namespace {

// Calls move(ranges, part) for each part, in order, with the ranges that the part covers.
template <class Part, class MoveFunction>
Status ForEachPart(std::span<const MemoryRange> ranges, std::span<const Part> parts,
                   MoveFunction move) {
  size_t index = 0;
  uint64_t used = 0;  // of ranges[index]
  for (const Part& part : parts) {
    for (size_t done = 0; done < part.size();) {
      if (index == ranges.size()) return Fail(EFAULT);  // the lists' totals differ
      const uint64_t bytes = std::min<uint64_t>(part.size() - done, ranges[index].length - used);
      const MemoryRange range{ranges[index].address + used, bytes};
      const Status moved = move(std::span(&range, 1), part.subspan(done, bytes));
      if (!moved) return moved;
      done += bytes;
      if ((used += bytes) == ranges[index].length) index++, used = 0;
    }
  }
  return {};
}

}  // namespace

Status Memory::ReadParts(ProcessId process, std::span<const MemoryRange> from,
                         std::span<const std::span<std::byte>> to) {
  return ForEachPart(from, to, [&](std::span<const MemoryRange> range, std::span<std::byte> part) {
    return Read(process, range, part);
  });
}

Status Memory::WriteParts(ProcessId process, std::span<const MemoryRange> to,
                          std::span<const std::span<const std::byte>> from) {
  return ForEachPart(to, from,
                     [&](std::span<const MemoryRange> range, std::span<const std::byte> part) {
                       return Write(process, range, part);
                     });
}

}  // namespace rdmaemu
