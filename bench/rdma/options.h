// The command-line options of the two processes.
#pragma once

#include <string>
#include <vector>

#include "bench/rdma/base.h"

namespace rdma_bench {

struct Options {
  std::string control_path, address, peer;
  bool huge_pages = false;
  bool alloc_buf = false;  // buffers of ibv_alloc_buf
  size_t buffer_mib = 16;
  unsigned rounds = 5;
  double round_seconds = 0.1;
  bool over_udp = false;
  uint32_t udp_payload = 4096;  // payload bytes of each packet of the reference over UDP
  bool ours_only = false;
  std::vector<std::string> figures;

  Pages pages() const { return huge_pages ? Pages::kHuge : Pages::kOrdinary; }
  size_t buffer_bytes() const { return buffer_mib << 20; }
};

}  // namespace rdma_bench
