// The main functions of the two processes.
#pragma once

#include "bench/rdma/options.h"

namespace rdma_bench {

// Executes the orders of one client until kQuit.
void RunServer(const Options& options);
// Measures the requested figures and prints a line of JSON for each.
void RunClient(const Options& options);

}  // namespace rdma_bench
