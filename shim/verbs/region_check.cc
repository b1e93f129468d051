#include "shim/verbs/region_check.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace rdmaemu::shim {
namespace {

constexpr uint64_t kRegionPageBytes = 4096;

// Makes the pages present with the requested rights, without changing their bytes.
bool Populate(uint64_t address, uint64_t bytes, bool write) {
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  int result;
  do {
    result = madvise(reinterpret_cast<void*>(address), bytes, advice);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

bool KernelCanPopulate() {
  char on_stack = 0;
  return Populate(reinterpret_cast<uintptr_t>(&on_stack) & ~(kRegionPageBytes - 1),
                  kRegionPageBytes, true);
}

// Fails if an address of the range is not mapped. MS_ASYNC has no other effect.
bool IsMapped(uint64_t address, uint64_t bytes) {
  return msync(reinterpret_cast<void*>(address), bytes, MS_ASYNC) == 0;
}

bool LargeRegionIsReachable(uint64_t first, uint64_t bytes, bool write) {
  if (!IsMapped(first, bytes)) return false;
  if (!Populate(first, kRegionPageBytes, write)) return false;
  if (!Populate(first + bytes - kRegionPageBytes, kRegionPageBytes, write)) return false;
  const uint64_t pages = bytes / kRegionPageBytes;
  for (uint64_t i = 0; i < kPagesSampled; i++) {
    const uint64_t page = pages / kPagesSampled * i;
    if (!Populate(first + page * kRegionPageBytes, kRegionPageBytes, false)) return false;
  }
  return true;
}

}  // namespace

RegionPages LookAtPages(uint64_t address, uint64_t length, bool write) {
  const uint64_t last = address + length - 1;
  if (length == 0 || last < address || last > UINT64_MAX - kRegionPageBytes)
    return RegionPages::kUnknown;
  const int before = errno;
  RegionPages found = RegionPages::kUnknown;
  if (KernelCanPopulate()) {
    const uint64_t first = address & ~(kRegionPageBytes - 1);
    const uint64_t bytes = (last | (kRegionPageBytes - 1)) + 1 - first;
    const bool reachable = bytes / kRegionPageBytes <= kMaxPagesAsked
                               ? Populate(first, bytes, write)
                               : LargeRegionIsReachable(first, bytes, write);
    found = reachable ? RegionPages::kReachable : RegionPages::kUnreachable;
  }
  errno = before;
  return found;
}

}  // namespace rdmaemu::shim
