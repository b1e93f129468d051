// Calls of calls.h that show and change whichever host the process uses: one inside it, or a host
// process whose client it is.
#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>

#include "emulator/abi/calls.h"
#include "emulator/runtime/host_client.h"

namespace rdmaemu::embedded {

// A connection of its own to the host process that `rdmaemu run` put this program on: the program's
// is busy as long as one of its calls is held up. An errno where there is no such host, or not yet.
tl::expected<runtime::HostClient, int> ConnectAside();

// By ConnectAside, else through the process's libibverbs.so.1.

// 0 or a negative errno, for which rdmaemu_last_error() has a reason where there is no host at all:
// ENOTSUP, EIO or ENODEV. `out` (may be null) takes the whole reply.
int CallHost(CallOp op, const void* in, size_t in_bytes, std::string* out);

}  // namespace rdmaemu::embedded
