#include "shim/verbs/program_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "shim/client/machine_clock.h"
#include "shim/client/own_pid.h"
#include "shim/client/valgrind.h"

namespace rdmaemu::shim {
namespace {

constexpr uintptr_t kPageBytes = 4096;
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
// The size of getcpu's result. The kernel writes the result, which shows whether a page is
// writable.
constexpr size_t kProbeBytes = sizeof(unsigned);

// A check for use under Valgrind, which warns about the system call in CanRead and about
// uninitialised bytes. This call costs five times as much, but does not read the bytes of the page
// (Linux 5.14).
bool CanReadUnderValgrind(uintptr_t address) {
  const int before = errno;
  void* const page = reinterpret_cast<void*>(address & ~(kPageBytes - 1));
  const bool readable = madvise(page, kPageBytes, MADV_POPULATE_READ) == 0;
  errno = before;
  return readable;
}

// rt_sigprocmask reads a signal set before it rejects an invalid `how` (Abseil's AddressIsReadable
// does the same). The address is aligned down, so its eight bytes are in one page.
bool CanRead(uintptr_t address) {
  if (client::IsUnderValgrind() && CanReadUnderValgrind(address)) return true;
  constexpr long kNoSuchHow = ~0L;
  const int before = errno;
  const long answer =
      syscall(SYS_rt_sigprocmask, kNoSuchHow, address & ~uintptr_t{7}, nullptr, size_t{8});
  const bool readable = answer == 0 || errno != EFAULT;
  errno = before;
  return readable;
}

// Writes random bytes to the range, which may be shorter than getcpu's result. A program's seccomp
// filter may refuse this call, too. The memory is then taken as writable: only a mistake of the
// program unmaps it.
bool CanWriteRandomBytes(uintptr_t address, size_t bytes) {
  return syscall(SYS_getrandom, address, bytes, 0) == static_cast<long>(bytes) || errno != EFAULT;
}

// The caller must overwrite the range immediately. `bytes` is not 0, and the range is in one page.
bool CanWrite(uintptr_t address, size_t bytes) {
  const int before = errno;
  bool writable = false;
  if (bytes >= kProbeBytes) {
    writable = syscall(SYS_getcpu, address, nullptr, nullptr) == 0;
    // A seccomp filter may refuse getcpu without looking at the address.
    if (!writable && errno != EFAULT) writable = CanWriteRandomBytes(address, kProbeBytes);
  } else {
    writable = CanWriteRandomBytes(address, bytes);
  }
  errno = before;
  return writable;
}

// Writes to the memory of another process. Returns 0 or an errno. Preserves errno.
int WriteToProcess(uint32_t pid, uint64_t address, const void* from, size_t bytes) {
  const int before = errno;
  const iovec own{const_cast<void*>(from), bytes}, other{reinterpret_cast<void*>(address), bytes};
  const ssize_t written = process_vm_writev(static_cast<pid_t>(pid), &own, 1, &other, 1, 0);
  const int error = written == static_cast<ssize_t>(bytes) ? 0 : written < 0 ? errno : EFAULT;
  errno = before;
  return error;
}

}  // namespace

void ProgramMemory::Begin() {
  timespec now;
  client::MachineClock()(CLOCK_MONOTONIC, &now);
  now_ns_ = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

ProgramMemory::Page& ProgramMemory::Entry(uintptr_t page) {
  return pages_[(page / kPageBytes) % kPages];
}

bool ProgramMemory::Read(void* to, uint64_t address, size_t bytes) {
  if (client::OtherOwner() != 0) return false;
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
  if (const uint32_t owner = client::OtherOwner(); owner != 0 && bytes > 0) {
    const int error = WriteToProcess(owner, address, from, bytes);
    if (error != EPERM && error != ENOSYS) return error == 0;
  }
  for (uintptr_t at = address; at < end; at = (at & ~(kPageBytes - 1)) + kPageBytes) {
    const uintptr_t page = at & ~(kPageBytes - 1);
    Page& known = Entry(page);
    if (known.address == page && now_ns_ < known.until_ns) continue;
    const size_t here = std::min(end, page + kPageBytes) - at;
    if (page == 0 || !CanWrite(at, here)) return false;
    known = {page, now_ns_ + kBelievedFor_ns};
  }
  memcpy(reinterpret_cast<void*>(address), from, bytes);
  return true;
}

}  // namespace rdmaemu::shim
