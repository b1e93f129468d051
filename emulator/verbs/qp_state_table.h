// Which changes of a QP's state there are, and which attributes each needs and takes: the table
// of the IBTA (11.2.5.2) as ib_modify_qp_is_ok keeps it.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu {

// True when a QP of `type` (RC, UC, UD) may go from `from` to `to` with the attributes of `mask`
// (IBV_QP_*): all that are required are there, and none that is not allowed. Both states must be
// RESET to ERR.
bool QpTransitionAllowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace rdmaemu
