// Names of asynchronous events for traces, as verbs.h spells them. (ibv_event_type_str is in the
// library that programs load, not in the host.)
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu {

// "IBV_EVENT_CQ_ERR"; "unknown" for a value that verbs.h has no name for.
const char* AsyncEventName(ibv_event_type type);

}  // namespace rdmaemu
