// Makes the object of a queue pair, for ibv_create_qp and ibv_create_qp_ex.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"

namespace rdmaemu::layer::checks {

void MadeQp(const Check& check, const char* call, ibv_qp* qp, const ibv_pd* pd,
            const ibv_qp_cap& cap, bool signals_all);

}  // namespace rdmaemu::layer::checks
