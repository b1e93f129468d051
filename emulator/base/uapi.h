// The kernel's user ABI headers, which define constants and layouts for this project. The C
// library's headers compile only with this order of includes.
#pragma once

// clang-format off
#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_rxe.h>
// clang-format on
