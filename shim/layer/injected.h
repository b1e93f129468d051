// Marks the effects of fault rules in program traces.
#pragma once

#include <cstdint>

#include "shim/layer/caller.h"

namespace rdmaemu::layer {

// The change that a rule made: to the call itself, or to an event, completion or asynchronous event
// that the call returns.
enum class Injected : uint32_t { kCall, kLine };

}  // namespace rdmaemu::layer

extern "C" {
// The layer's libibverbs.so.1 exports this function. Modules call it during the program's call.
// Records that `rule` acted in the thread's current call. `index`: for kLine, the position among
// the returned events or completions. Does nothing without a recording. Preserves errno.
RDMAEMU_LAYER_SHARED void rdmaemu_layer_mark_injected(const char* rule,
                                                      rdmaemu::layer::Injected what,
                                                      uint32_t index);
}
