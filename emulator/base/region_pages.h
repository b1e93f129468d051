// What registering memory asks of its pages.
#pragma once

#include <cstdint>

#include "emulator/base/uapi.h"

namespace rdmaemu {

// What a program's library found out about a region's pages, in the program's own thread.
enum class RegionPages : uint32_t { kUnknown, kReachable, kUnreachable };

// The device writes to a region with these IBV_ACCESS_* flags (ib_umem_get's `writable`).
constexpr bool NeedsWritablePages(int access) {
  return (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                    IBV_ACCESS_MW_BIND)) != 0;
}

}  // namespace rdmaemu
