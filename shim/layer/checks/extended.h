// Checks of extended queues: ibv_create_qp_ex, ibv_create_cq_ex and ibv_create_srq_ex, posting by
// ibv_wr_*, and polling by ibv_start_poll.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu::layer::checks {

// Replaces the operations of a context that create extended queues.
void AdoptExtended(ibv_context* context, verbs_context& extended);

// Replace the operations of an extended queue. Do nothing for nullptr.
void AdoptQp(ibv_qp_ex* qp);
void AdoptCq(ibv_cq_ex* cq);

}  // namespace rdmaemu::layer::checks
