// The doors in the operation tables of contexts (originals.h): posts, polls and arming, memory
// windows and extended objects.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::faults {

// Replaces the operations of a context that a call has just returned. Does nothing for nullptr.
void Adopt(ibv_context* context);

}  // namespace rdmaemu::layer::faults
