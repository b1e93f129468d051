// Makes the object of a queue pair, for ibv_create_qp and ibv_create_qp_ex.
#pragma once

#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"

namespace rdmaemu::layer::checks {

// `sees_posts`: all sends are posted by ibv_post_send.
void MadeQp(const Check& check, const char* call, ibv_qp* qp, const ibv_pd* pd,
            const ibv_qp_cap& cap, bool signals_all, bool sees_posts);

}  // namespace rdmaemu::layer::checks
