// The page that this process's group shares with its first host.
#pragma once

#include "emulator/abi/ring.h"

namespace rdmaemu::client {

// connection.cc. Returns nullptr before the first call.
DoorbellPage* OwnDoorbells();

}  // namespace rdmaemu::client
