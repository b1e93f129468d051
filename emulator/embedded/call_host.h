// Makes calls of calls.h that query or change the host that the process uses. This host is inside
// the process, or is a host process.
#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>

#include "emulator/abi/calls.h"
#include "emulator/runtime/host_client.h"

namespace rdmaemu::embedded {

// Connects to the host process on which `rdmaemu run` placed this program. The program's own
// connection is busy while one of its calls is held. Returns an errno if there is no such host yet.
tl::expected<runtime::HostClient, int> ConnectAside();

// Makes a call on the connection of ConnectAside, else through the process's libibverbs.so.1.

// Returns 0 or a negative errno. Without a host (ENOTSUP, EIO or ENODEV), rdmaemu_last_error()
// gives a reason. `out` (may be null) gets the whole reply.
int CallHost(CallOp op, const void* in, size_t in_bytes, std::string* out);

}  // namespace rdmaemu::embedded
