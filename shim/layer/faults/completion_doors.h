// The door of completions. Between the library and the program, rules change, delay or drop
// completions.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::faults {

// Installs the door. Call it before the door of ibv_modify_qp is installed, because this door fails
// queue pairs by that function.
void InstallCompletionDoor(void** (*slot_of)(const char*));

using PollCqFunction = int (*)(ibv_cq* cq, int count, ibv_wc* out);
// Polls by `next` and applies the rules at `wc` to the polled completions.
int PollKept(ibv_cq* cq, int count, ibv_wc* out, PollCqFunction next);

// Replaces the polling operations of an extended CQ that a call has just returned. Does nothing for
// nullptr.
void Created(ibv_cq_ex* cq);

}  // namespace rdmaemu::layer::faults
