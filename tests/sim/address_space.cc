#include "tests/sim/address_space.h"

#include <cstring>
#include <string>

namespace rdmaemu::sim {

void AddressSpaces::Add(ProcessId process, uint64_t base, std::span<std::byte> bytes,
                        Watcher watcher) {
  spaces_[process] = {base, bytes, std::move(watcher)};
}

bool AddressSpaces::Reachable(ProcessId process, MemoryRange range, bool) {
  const auto it = spaces_.find(process);
  if (it == spaces_.end()) return false;
  const Space& space = it->second;
  return range.address >= space.base && range.address - space.base <= space.bytes.size() &&
         range.length <= space.bytes.size() - (range.address - space.base);
}

std::byte* AddressSpaces::Find(ProcessId process, const MemoryRange& range, Space** space) {
  const auto it = spaces_.find(process);
  if (it == spaces_.end()) return nullptr;
  if (!Reachable(process, range, true)) {
    verdict_.Complain("memory", "the host touched " + std::to_string(range.length) + " bytes at " +
                                    std::to_string(range.address) + ", outside of process " +
                                    std::to_string(static_cast<uint32_t>(process)));
    return nullptr;
  }
  *space = &it->second;
  return it->second.bytes.data() + (range.address - it->second.base);
}

Status AddressSpaces::Read(ProcessId process, std::span<const MemoryRange> from,
                           std::span<std::byte> to) {
  size_t done = 0;
  for (const MemoryRange& range : from) {
    if (range.length == 0) continue;
    Space* space = nullptr;
    const std::byte* bytes = Find(process, range, &space);
    if (bytes == nullptr) return Fail(EFAULT);
    std::memcpy(to.data() + done, bytes, range.length);
    done += range.length;
  }
  return {};
}

Status AddressSpaces::Write(ProcessId process, std::span<const MemoryRange> to,
                            std::span<const std::byte> from) {
  size_t done = 0;
  for (const MemoryRange& range : to) {
    if (range.length == 0) continue;
    Space* space = nullptr;
    std::byte* bytes = Find(process, range, &space);
    if (bytes == nullptr) return Fail(EFAULT);
    space->watcher(range.address - space->base, range.length);
    std::memcpy(bytes, from.data() + done, range.length);
    done += range.length;
  }
  return {};
}

Status AddressSpaces::Copy(ProcessId source, std::span<const MemoryRange> from,
                           ProcessId destination, std::span<const MemoryRange> to) {
  size_t total = 0;
  for (const MemoryRange& range : from) total += range.length;
  std::vector<std::byte> between(total);
  if (const Status read = Read(source, from, between); !read) return read;
  return Write(destination, to, between);
}

}  // namespace rdmaemu::sim
