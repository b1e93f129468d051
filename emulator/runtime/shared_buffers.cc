#include "emulator/runtime/shared_buffers.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "emulator/runtime/clock.h"

namespace rdmaemu::runtime {
namespace {

template <class Number>
void CopyNumber(std::byte* to, const std::byte* from) {
  Number number;
  if (reinterpret_cast<uintptr_t>(from) % sizeof number == 0) {
    number = __atomic_load_n(reinterpret_cast<const Number*>(from), __ATOMIC_RELAXED);
  } else {
    std::memcpy(&number, from, sizeof number);
  }
  __atomic_store_n(reinterpret_cast<Number*>(to), number, __ATOMIC_RELAXED);
}

// Copies at most 8 bytes, of which none is behind the next boundary of 8.
void CopyTail(std::byte* to, const std::byte* from, size_t bytes) {
  const auto aligned = [&](size_t size) {
    return bytes == size && reinterpret_cast<uintptr_t>(to) % size == 0;
  };
  if (aligned(8)) return CopyNumber<uint64_t>(to, from);
  if (aligned(4)) return CopyNumber<uint32_t>(to, from);
  if (aligned(2)) return CopyNumber<uint16_t>(to, from);
  for (size_t i = 0; i < bytes; i++) CopyNumber<uint8_t>(to + i, from + i);
}

void CopyInOrder(std::byte* to, const std::byte* from, size_t bytes) {
  const auto end = reinterpret_cast<uintptr_t>(to) + bytes;
  const size_t tail = std::min<size_t>(bytes, (end - 1) % 8 + 1);
  const size_t head = bytes - tail;
  if (to < from + bytes && from < to + bytes) {
    std::memmove(to, from, bytes);  // both in one process's memory
    return;
  }
  std::memcpy(to, from, head);
  std::atomic_thread_fence(std::memory_order_release);
  CopyTail(to + head, from + head, tail);
}

}  // namespace

SharedBuffers::SharedBuffers(uint64_t address, std::span<std::byte> bytes)
    : arena_(*reinterpret_cast<BufferArena*>(bytes.data())),
      address_(address),
      bytes_(bytes.data()) {}

bool SharedBuffers::Hold(std::span<const iovec> ranges) const {
  return usable_ && std::ranges::all_of(ranges, [this](const iovec& range) {
           const uint64_t begin = reinterpret_cast<uint64_t>(range.iov_base) - address_;
           if (range.iov_len == 0) return true;
           if (begin >= BufferArena::kBytes || range.iov_len > BufferArena::kBytes - begin)
             return false;
           const uint64_t first = begin / BufferArena::kGranuleBytes;
           const uint64_t last = (begin + range.iov_len - 1) / BufferArena::kGranuleBytes;
           return arena_.AllShared(first, last - first + 1);
         });
}

bool SharedBuffers::Touch(std::span<const MemoryRange> ranges) const {
  return std::ranges::any_of(ranges, [this](const MemoryRange& range) {
    const uint64_t low = std::max(range.address, address_);
    const uint64_t end = range.address + range.length, arena_end = address_ + BufferArena::kBytes;
    const uint64_t high = std::min(end < range.address ? UINT64_MAX : end, arena_end);
    if (low >= high) return false;
    const uint64_t first = (low - address_) / BufferArena::kGranuleBytes;
    const uint64_t last = (high - 1 - address_) / BufferArena::kGranuleBytes;
    return !arena_.NoneShared(first, last - first + 1);
  });
}

void* SharedBuffers::At(const void* address) const {
  return bytes_ + (reinterpret_cast<uint64_t>(address) - address_);
}

uint32_t SharedBuffers::ordinary_buffers() const {
  return std::atomic_ref(arena_.ordinary_buffers).load(std::memory_order_relaxed);
}

uint32_t SharedBuffers::Changes() const {
  return std::atomic_ref(arena_.changes).load(std::memory_order_seq_cst);
}

void SharedBuffers::SetCopies(uint32_t copies) {
  std::atomic_ref(arena_.host_copies).store(copies, std::memory_order_seq_cst);
}

void SharedBuffers::AwaitChange() {
  const Time until = RealNow() + kLongestWait;
  while (Changes() % 2 != 0) {
    if (RealNow() >= until) {
      usable_ = false;
      return;
    }
    sched_yield();
  }
}

SharedBuffers::Access::Access(SharedBuffers* buffers) : buffers_(buffers) {
  if (buffers == nullptr || buffers->depth_++ > 0) return;
  is_outermost_ = true;
  for (;;) {
    buffers->SetCopies(1);
    changes_ = buffers->Changes();
    if (changes_ % 2 == 0 || !buffers->usable_) return;
    buffers->SetCopies(0);
    buffers->AwaitChange();
  }
}

SharedBuffers::Access::~Access() {
  if (buffers_ != nullptr && --buffers_->depth_ == 0) buffers_->SetCopies(0);
}

bool SharedBuffers::Access::WasInVain() const {
  return is_outermost_ && buffers_->usable_ && buffers_->Changes() != changes_;
}

Status CopyVectors(std::span<const iovec> to, std::span<const iovec> from) {
  size_t done_of_to = 0, done_of_from = 0;
  for (;;) {
    while (!to.empty() && to[0].iov_len == done_of_to) {
      to = to.subspan(1);
      done_of_to = 0;
    }
    while (!from.empty() && from[0].iov_len == done_of_from) {
      from = from.subspan(1);
      done_of_from = 0;
    }
    if (to.empty() && from.empty()) return {};
    if (to.empty() || from.empty()) return Fail(EFAULT);
    const size_t bytes = std::min(to[0].iov_len - done_of_to, from[0].iov_len - done_of_from);
    CopyInOrder(static_cast<std::byte*>(to[0].iov_base) + done_of_to,
                static_cast<const std::byte*>(from[0].iov_base) + done_of_from, bytes);
    done_of_to += bytes;
    done_of_from += bytes;
  }
}

}  // namespace rdmaemu::runtime
