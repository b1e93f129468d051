// The pages that this process's group shares with its hosts.
#pragma once

#include <atomic>

#include "emulator/abi/ring.h"
#include "emulator/base/id_space.h"

namespace rdmaemu::client {

// doorbells.cc. By the number of the host inside this process. A host process has the first entry.
extern std::atomic<DoorbellPage*> g_doorbells[IdSpace::kMaxParts];
// The page of the first host. Returns nullptr before the first call.
DoorbellPage* OwnDoorbells();

// connection.cc. Wakes a sleeping host. Returns false if the host is unreachable.
bool WakeHost();

// turn_waits.cc. Returns true if that host has last run on this thread's processor.
bool IsHostHere();

}  // namespace rdmaemu::client
