// Whether memory that a program registers is there and may be written. The program's own thread
// asks the kernel, as it does in ibv_reg_mr of a kernel driver: pages that never become present (an
// unserved userfaultfd(2)) stop this program alone, and other mappings cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/base/region_pages.h"

namespace rdmaemu::shim {

// A region of at most so many pages (1 MiB) is looked at page by page, and its pages become
// present.
inline constexpr uint64_t kMaxPagesAsked = 256;
// Of a larger one all must be mapped, and so many pages be readable, at equal distances; whether
// they may be written is asked of the first and the last one alone.
inline constexpr uint64_t kPagesSampled = 64;

// kUnknown where the kernel cannot tell (before Linux 5.14): the host then reads /proc/PID/maps.
RegionPages LookAtPages(uint64_t address, uint64_t length, bool write);

}  // namespace rdmaemu::shim
