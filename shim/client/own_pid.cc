#include "shim/client/own_pid.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace rdmaemu::client {
namespace {

constexpr size_t kPageBytes = 4096;

// A page that a forked child finds empty, whichever way it was forked. Its first word is the id.
// nullptr: not made yet. kNoPage: the kernel cannot make one.
std::atomic<uint32_t*> g_page{nullptr};
uint32_t g_no_page;
constexpr uint32_t* kNoPage = &g_no_page;

std::atomic<uint32_t> g_owner{0};

uint32_t* MakePage() {
  void* const bytes =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return kNoPage;
  if (madvise(bytes, kPageBytes, MADV_WIPEONFORK) == 0) return static_cast<uint32_t*>(bytes);
  munmap(bytes, kPageBytes);
  return kNoPage;
}

uint32_t* Page() {
  uint32_t* page = g_page.load(std::memory_order_acquire);
  if (page != nullptr) return page;
  uint32_t* const made = MakePage();
  if (g_page.compare_exchange_strong(page, made)) return made;
  if (made != kNoPage) munmap(made, kPageBytes);  // another thread was faster
  return page;
}

}  // namespace

uint32_t OwnPid() {
  uint32_t* const page = Page();
  if (page == kNoPage) return static_cast<uint32_t>(getpid());
  std::atomic_ref known(*page);
  uint32_t pid = known.load(std::memory_order_relaxed);
  if (pid == 0) {
    pid = static_cast<uint32_t>(getpid());
    known.store(pid, std::memory_order_relaxed);
  }
  return pid;
}

void OwnConnection() { g_owner.store(OwnPid(), std::memory_order_relaxed); }

uint32_t OtherOwner() {
  const uint32_t owner = g_owner.load(std::memory_order_relaxed);
  return owner == 0 || owner == OwnPid() ? 0 : owner;
}

}  // namespace rdmaemu::client
