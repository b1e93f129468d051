// The page that this process's group shares with its first host.
#pragma once

#include "emulator/abi/ring.h"

namespace rdmaemu::client {

// connection.cc. Returns nullptr before the first call.
DoorbellPage* OwnDoorbells();

// turn_waits.cc. Returns true if that host has last run on this thread's processor.
bool IsHostHere();

}  // namespace rdmaemu::client
