// The page that this process's group shares with its first host.
#pragma once

#include <sys/types.h>

#include "emulator/abi/ring.h"

namespace rdmaemu::client {

// connection.cc. Returns nullptr before the first call.
DoorbellPage* OwnDoorbells();
// connection.cc. Returns the process id of the host in this process's namespace. Returns 0 if the
// host has none there, or has ended.
pid_t OwnHost();

}  // namespace rdmaemu::client
