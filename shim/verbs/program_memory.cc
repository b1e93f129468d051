#include "shim/verbs/program_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace rdmaemu::shim {
namespace {

constexpr uintptr_t kPageBytes = 4096;
// What the kernel writes to ask whether a page can be written: getcpu's answer.
constexpr size_t kProbeBytes = sizeof(unsigned);

// rt_sigprocmask reads a signal set before it finds that `how` is none (as Abseil's
// AddressIsReadable has it). Aligned down, the eight bytes are of the same page.
bool CanRead(uintptr_t address) {
  constexpr long kNoSuchHow = ~0L;
  const int before = errno;
  const long answer =
      syscall(SYS_rt_sigprocmask, kNoSuchHow, address & ~uintptr_t{7}, nullptr, size_t{8});
  const bool readable = answer == 0 || errno != EFAULT;
  errno = before;
  return readable;
}

// The probe's bytes are overwritten right after it.
bool CanWrite(uintptr_t address) {
  const int before = errno;
  const bool writable = syscall(SYS_getcpu, address, nullptr, nullptr) == 0;
  errno = before;
  return writable;
}

bool WriteThroughKernel(uintptr_t address, const void* from, size_t bytes) {
  const int before = errno;
  const iovec local{const_cast<void*>(from), bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  const bool written =
      process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  errno = before;
  return written;
}

}  // namespace

void ProgramMemory::Begin() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  now_ns_ = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

ProgramMemory::Page& ProgramMemory::Entry(uintptr_t page) {
  return pages_[(page / kPageBytes) % kPages];
}

bool ProgramMemory::Read(void* to, uint64_t address, size_t bytes) {
  const uintptr_t end = address + bytes;
  if (end < address) return false;
  for (uintptr_t at = address; at < end; at = (at & ~(kPageBytes - 1)) + kPageBytes) {
    const uintptr_t page = at & ~(kPageBytes - 1);
    Page& known = Entry(page);
    if (known.address == page && now_ns_ < known.until_ns) continue;
    if (page == 0 || !CanRead(at)) return false;
    known = {page, now_ns_ + kBelievedFor_ns};
  }
  memcpy(to, reinterpret_cast<const void*>(address), bytes);
  return true;
}

bool ProgramMemory::Write(uint64_t address, const void* from, size_t bytes) {
  const uintptr_t end = address + bytes;
  if (end < address) return false;
  for (uintptr_t at = address; at < end; at = (at & ~(kPageBytes - 1)) + kPageBytes) {
    const uintptr_t page = at & ~(kPageBytes - 1);
    Page& known = Entry(page);
    if (known.address == page && now_ns_ < known.until_ns) continue;
    if (std::min(end, page + kPageBytes) - at < kProbeBytes) {
      return WriteThroughKernel(address, from, bytes);
    }
    if (page == 0 || !CanWrite(at)) return false;
    known = {page, now_ns_ + kBelievedFor_ns};
  }
  memcpy(reinterpret_cast<void*>(address), from, bytes);
  return true;
}

}  // namespace rdmaemu::shim
