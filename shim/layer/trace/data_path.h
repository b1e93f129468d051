// Polling, whose completions and empty polls have records of their own.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::trace {

int PollCq(ibv_cq* cq, int count, ibv_wc* out);
int StartPoll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int NextPoll(ibv_cq_ex* cq);

}  // namespace rdmaemu::layer::trace
