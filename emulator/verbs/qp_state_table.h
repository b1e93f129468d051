// The allowed transitions of a QP's state, with their required and optional attributes: the table
// of the IBTA (11.2.5.2) as in ib_modify_qp_is_ok.
#pragma once

#include <infiniband/verbs.h>

namespace rdmaemu {

// Returns true when a QP of `type` (RC, UC, UD) may move from `from` to `to` with the attributes of
// `mask` (IBV_QP_*). All required attributes must be set, and no other than the optional ones. Both
// states must be RESET to ERR.
bool QpTransitionAllowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace rdmaemu
