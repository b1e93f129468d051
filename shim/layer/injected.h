// Marks in program traces what a fault rule did.
#pragma once

#include <cstdint>

#include "shim/layer/caller.h"

namespace rdmaemu::layer {

// What a rule changed: the call itself, or an event, completion or asynchronous event that the call
// gives to the program.
enum class Injected : uint32_t { kCall, kLine };

}  // namespace rdmaemu::layer

extern "C" {
// The layer's libibverbs.so.1 exports this function, and modules call it in the program's call.
// Records that `rule` acted in the thread's present call. `index`: of kLine, the position among
// what the call gives. Does nothing without a recording. Preserves errno.
RDMAEMU_LAYER_SHARED void rdmaemu_layer_mark_injected(const char* rule,
                                                      rdmaemu::layer::Injected what,
                                                      uint32_t index);
}
