// The two processes.
#pragma once

#include "bench/rdma/options.h"

namespace rdma_bench {

// Does what one client orders, until it says that it has done.
void RunServer(const Options& options);
// Measures the figures that were asked for and prints a line of JSON for each.
void RunClient(const Options& options);

}  // namespace rdma_bench
