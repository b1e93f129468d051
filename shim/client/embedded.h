// The host inside this process that replaces the connection (rdmaemu_client_embed). The library
// reads this pointer at each place where it would send a message.
#pragma once

#include <atomic>

#include "shim/client/client_abi.h"

namespace rdmaemu::client {

// Null for clients of a host process.
extern std::atomic<const rdmaemu_embedded_host*> g_embedded;

inline const rdmaemu_embedded_host* Embedded() {
  return g_embedded.load(std::memory_order_acquire);
}

}  // namespace rdmaemu::client
