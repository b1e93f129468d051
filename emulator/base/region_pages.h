// The checks that memory registration makes on pages.
#pragma once

#include <cstdint>

#include "emulator/base/uapi.h"

namespace rdmaemu {

// The result of the library's check of a region's pages. The library checks in the program's
// thread.
enum class RegionPages : uint32_t { kUnknown, kReachable, kUnreachable };

// Returns true when these IBV_ACCESS_* flags let the device write to the region (ib_umem_get's
// `writable`).
constexpr bool NeedsWritablePages(int access) {
  return (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                    IBV_ACCESS_MW_BIND)) != 0;
}

}  // namespace rdmaemu
