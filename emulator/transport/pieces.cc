#include "emulator/transport/pieces.h"

#include <algorithm>

namespace rdmaemu::transport {

void Pieces::AddMore(const MemoryRef& ref) {
  if (ref.range.length == 0) return;
  if (ref.process != process_ && owners_.empty()) owners_.assign(count_, process_);
  if (mixed()) owners_.push_back(ref.process);
  if (count_ < kInline) {
    inline_[count_] = ref.range;
  } else {
    if (count_ == kInline) heap_.assign(inline_.begin(), inline_.end());
    heap_.push_back(ref.range);
  }
  count_++;
  length_ += ref.range.length;
}

void Pieces::DropFront(uint64_t bytes) {
  bytes = std::min(bytes, length_);
  Pieces rest;
  const std::span<const MemoryRange> all = ranges();
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t skip = std::min(bytes, all[i].length);
    bytes -= skip;
    rest.Add({owner(i), {all[i].address + skip, all[i].length - skip}});
  }
  *this = std::move(rest);
}

void Pieces::Truncate(uint64_t bytes) {
  Pieces kept;
  const std::span<const MemoryRange> all = ranges();
  for (size_t i = 0; i < all.size() && bytes > 0; ++i) {
    const uint64_t take = std::min(bytes, all[i].length);
    bytes -= take;
    kept.Add({owner(i), {all[i].address, take}});
  }
  *this = std::move(kept);
}

Status Pieces::Read(Memory& memory, std::span<std::byte> to) const {
  if (length_ == 0) return {};
  if (!mixed()) return memory.Read(process_, ranges(), to);
  size_t offset = 0;
  for (size_t i = 0; i < count_; ++i) {
    const MemoryRange range = ranges()[i];
    Status read = memory.Read(owners_[i], {&range, 1}, to.subspan(offset, range.length));
    if (!read) return read;
    offset += range.length;
  }
  return {};
}

Status Pieces::Write(Memory& memory, std::span<const std::byte> from) const {
  if (length_ == 0) return {};
  if (!mixed()) return memory.Write(process_, ranges(), from);
  size_t offset = 0;
  for (size_t i = 0; i < count_; ++i) {
    const MemoryRange range = ranges()[i];
    Status written = memory.Write(owners_[i], {&range, 1}, from.subspan(offset, range.length));
    if (!written) return written;
    offset += range.length;
  }
  return {};
}

Status Pieces::ReadParts(Memory& memory, std::span<const std::span<std::byte>> to) const {
  if (length_ == 0) return {};
  if (!mixed()) return memory.ReadParts(process_, ranges(), to);
  std::vector<std::byte> whole(length_);
  const Status read = Read(memory, whole);
  size_t offset = 0;
  for (const std::span<std::byte> part : to) {
    std::copy_n(whole.begin() + static_cast<ptrdiff_t>(offset), part.size(), part.begin());
    offset += part.size();
  }
  return read;
}

Status Pieces::WriteParts(Memory& memory, std::span<const std::span<const std::byte>> from) const {
  if (length_ == 0) return {};
  if (!mixed()) return memory.WriteParts(process_, ranges(), from);
  std::vector<std::byte> whole;
  for (const std::span<const std::byte> part : from) {
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return Write(memory, whole);
}

Status Pieces::CopyTo(Memory& memory, const Pieces& to) const {
  if (length_ == 0) return {};
  if (mixed() || to.mixed()) return CopyPiecewise(memory, to);
  return memory.Copy(process_, ranges(), to.process_, to.ranges());
}

Status Pieces::CopyPiecewise(Memory& memory, const Pieces& to) const {
  const std::span<const MemoryRange> source = ranges();
  const std::span<const MemoryRange> destination = to.ranges();
  size_t i = 0, j = 0;
  uint64_t done_i = 0, done_j = 0;
  while (i < source.size() && j < destination.size()) {
    const uint64_t bytes = std::min(source[i].length - done_i, destination[j].length - done_j);
    const MemoryRange from{source[i].address + done_i, bytes};
    const MemoryRange into{destination[j].address + done_j, bytes};
    Status copied = memory.Copy(owner(i), {&from, 1}, to.owner(j), {&into, 1});
    if (!copied) return copied;
    if ((done_i += bytes) == source[i].length) i++, done_i = 0;
    if ((done_j += bytes) == destination[j].length) j++, done_j = 0;
  }
  return {};
}

bool Pieces::IsAt(std::span<const rxe_sge> sges) const {
  size_t i = 0;
  for (const MemoryRange& range : ranges()) {
    while (i < sges.size() && sges[i].length == 0) i++;
    if (i == sges.size() || sges[i].addr != range.address) return false;
    i++;
  }
  return true;
}

bool Pieces::Reachable(Memory& memory, bool write) const {
  for (size_t i = 0; i < count_; ++i) {
    if (!memory.Reachable(owner(i), ranges()[i], write)) return false;
  }
  return true;
}

}  // namespace rdmaemu::transport
