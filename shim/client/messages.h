// One call and its reply as messages on the socket to a host process.
#pragma once

#include <cstdint>

#include "emulator/abi/calls.h"
#include "shim/client/page_calls.h"

namespace rdmaemu::client {

// Sends one call, header.size bytes at `in`, and takes its reply with `wanted` descriptors, which
// the caller owns. The reply's errno; EPROTO for another number of descriptors; EIO when the
// connection has broken.
int Exchange(int socket, CallHeader header, const void* in, Buffer& out, int* descriptors,
             uint32_t wanted);

}  // namespace rdmaemu::client
