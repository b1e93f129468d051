// operator new and delete of the module. The module must not use the program's malloc, because a
// signal handler may interrupt malloc, and a leak checker would count the module's memory. Memory
// is from mappings, in blocks of powers of two, and freed blocks are reused. Most callers are
// inside a Section or in a constructor. The lock is for findings, which are stored after the
// Section.
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t kMinShift = 5, kMaxShift = 40;
constexpr size_t kPieceBytes = size_t{256} << 10;

struct Free {
  Free* next;
};

std::atomic<bool> g_is_locked;
Free* g_free[kMaxShift];
char *g_piece, *g_piece_end;

struct Header {
  size_t shift;
  size_t unused;
};

char* Map(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return static_cast<char*>(memory);
}

void* Take(size_t shift) {
  if (Free* const block = g_free[shift]) {
    g_free[shift] = block->next;
    return block;
  }
  const size_t bytes = size_t{1} << shift;
  if (bytes > kPieceBytes / 4) return Map(bytes);
  if (static_cast<size_t>(g_piece_end - g_piece) < bytes) {
    g_piece = Map(kPieceBytes);
    g_piece_end = g_piece + kPieceBytes;
  }
  void* const block = g_piece;
  g_piece += bytes;
  return block;
}

class Locked {
 public:
  Locked() {
    while (g_is_locked.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  ~Locked() { g_is_locked.store(false, std::memory_order_release); }
};

}  // namespace

void* operator new(size_t bytes) {
  const size_t shift = std::max<size_t>(std::bit_width(bytes + sizeof(Header) - 1), kMinShift);
  if (shift >= kMaxShift) abort();
  const Locked locked;
  auto* const header = static_cast<Header*>(Take(shift));
  header->shift = shift;
  return header + 1;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* const header = static_cast<Header*>(memory) - 1;
  const size_t shift = header->shift;
  const Locked locked;
  auto* const block = reinterpret_cast<Free*>(header);
  block->next = g_free[shift];
  g_free[shift] = block;
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
