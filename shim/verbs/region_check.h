// Checks whether memory that a program registers is mapped and writable. The program's own thread
// asks the kernel, as in ibv_reg_mr of a kernel driver. A page that never becomes present (an
// unserved userfaultfd(2)) therefore blocks this program only. Other mappings cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/base/region_pages.h"

namespace rdmaemu::shim {

// Each page of a region of at most this many pages (1 MiB) is checked, and becomes present.
inline constexpr uint64_t kMaxPagesAsked = 256;
// A larger region must be mapped completely. Of its pages, this many at equal distances must be
// readable. Only the first and the last page are checked for writing.
inline constexpr uint64_t kPagesSampled = 64;

// Returns kUnknown if the kernel cannot check (before Linux 5.14). The host then reads
// /proc/PID/maps.
RegionPages LookAtPages(uint64_t address, uint64_t length, bool write);

}  // namespace rdmaemu::shim
