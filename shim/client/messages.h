// Sends one call to a host process and receives its reply, as messages on the socket.
#pragma once

#include <cstdint>

#include "emulator/abi/calls.h"
#include "shim/client/page_calls.h"

namespace rdmaemu::client {

// Sends one call with header.size bytes at `in`. Receives its reply with `wanted` descriptors,
// which the caller then owns. Returns the reply's errno, EPROTO for another number of descriptors,
// EMFILE without room for them, or EIO if the connection has broken.
int Exchange(int socket, CallHeader header, const void* in, Buffer& out, int* descriptors,
             uint32_t wanted);

}  // namespace rdmaemu::client
