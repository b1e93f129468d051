// The kernel's user ABI headers that give this project its constants and layouts, in the one
// order in which they agree with the C library's.
#pragma once

// clang-format off
#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <rdma/rdma_user_rxe.h>
// clang-format on
