// To which of a program's hosts a call goes: that of the object that it is about, which its first
// number tells (IdSpace), or that which the calling thread is on.
#pragma once

#include <cstdint>
#include <optional>

#include "emulator/abi/calls.h"

namespace rdmaemu::embedded {

// Nothing for an op that is none.
std::optional<CallRoute> RouteOf(uint32_t op);

// The number of the host that the call is for; `entered`: the thread's.
uint32_t HostOfCall(uint32_t op, const void* in, uint32_t in_size, uint32_t entered);

// The call destroys an object, and answers 0 where its host is gone, as libibverbs does for a
// device that was taken away (RDMAV_ALLOW_DISASSOC_DESTROY): a test that ends gives back what it
// has.
bool IsDestroyCall(uint32_t op);

}  // namespace rdmaemu::embedded
