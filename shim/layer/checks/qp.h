// Makes the object of a queue pair, for ibv_create_qp and ibv_create_qp_ex.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"

namespace rdmaemu::layer::checks {

void MadeQp(const Check& check, const char* call, ibv_qp* qp, const ibv_pd* pd,
            const ibv_qp_cap& cap, bool signals_all);

// The attributes of RTR that rdma_init_qp_attr(3) returned with min_rnr_timer 0, as the kernel's
// ib_cm_init_qp_rtr_attr does. A program that passes these attributes to ibv_modify_qp makes no
// mistake. Call both functions only within a Section. The table keeps the latest kMaxGiven entries.
inline constexpr int kMaxGiven = 256;
void AddGiven(const ibv_qp_attr& attr);
bool IsGiven(const ibv_qp_attr& attr);

}  // namespace rdmaemu::layer::checks
