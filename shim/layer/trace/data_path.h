// The recording replacements of the poll operations. Completions and empty polls have their own
// kinds of records, so the generic FastCall (wrap.h) does not fit.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::trace {

int PollCq(ibv_cq* cq, int count, ibv_wc* out);
int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int NextPoll(ibv_cq_ex* cq);

}  // namespace rdmaemu::layer::trace
