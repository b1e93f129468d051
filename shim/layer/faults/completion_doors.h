// The door of completions: a completion changes, waits or is lost between the library and the
// program.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::faults {

// Call it before the door of ibv_modify_qp is installed, whose function fails a queue pair for a
// rule.
void InstallCompletionDoor(void** (*slot_of)(const char*));

using PollCqFunction = int (*)(ibv_cq* cq, int count, ibv_wc* out);
// Polls by `next` and applies the rules at `wc` to what it returns.
int PollKept(ibv_cq* cq, int count, ibv_wc* out, PollCqFunction next);

// Replaces the polling operations of an extended CQ that a call has just returned. Does nothing for
// nullptr.
void Created(ibv_cq_ex* cq);

}  // namespace rdmaemu::layer::faults
