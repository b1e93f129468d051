// Chooses the host that gets a program's call. This is the host of the object in the call, found by
// the object's number (IdSpace), or the host that the calling thread has entered.
#pragma once

#include <cstdint>
#include <optional>

#include "emulator/abi/calls.h"

namespace rdmaemu::embedded {

// Returns nullopt for an unknown op.
std::optional<CallRoute> RouteOf(uint32_t op);

// Returns the number of the host for the call. `entered` is the host of the calling thread.
uint32_t HostOfCall(uint32_t op, const void* in, uint32_t in_size, uint32_t entered);

// Returns true if the call destroys an object. Such a call returns 0 after its host has ended, as
// libibverbs does for a removed device (RDMAV_ALLOW_DISASSOC_DESTROY). A test can thus free its
// objects at its end.
bool IsDestroyCall(uint32_t op);

}  // namespace rdmaemu::embedded
