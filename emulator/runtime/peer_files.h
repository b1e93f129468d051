// Descriptors of other hosts of the same user.
#pragma once

#include <cstdint>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Opens a descriptor of another process anew, with the flags of open(2). Never blocks. Empty: the
// process has ended, or has no such descriptor.
UniqueFd OpenOf(uint32_t pid, uint32_t fd, int flags);

}  // namespace rdmaemu::runtime
