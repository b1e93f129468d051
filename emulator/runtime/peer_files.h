// Descriptors of other hosts of the same user.
#pragma once

#include <cstdint>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Opens a descriptor of another process anew, with the flags of open(2). Never blocks. Empty: the
// process has ended, or has no such descriptor.
UniqueFd OpenOf(uint32_t pid, uint32_t fd, int flags);

// Duplicates the counter `fd` of another process (pidfd_getfd(2)). Empty: there is no such counter,
// or the process may not trace the other one.
UniqueFd DuplicateCounterOf(uint32_t pid, int fd);

}  // namespace rdmaemu::runtime
