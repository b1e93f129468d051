// One figure of the benchmark and its text form `what:bytes:count`, such as write:65536 or
// send_rate:64:16.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace rdma_bench {

enum class Measure {
  kBandwidth,    // 16 outstanding
  kAwaited,      // one outstanding: the client awaits each completion
  kMessageRate,  // small messages, posted as lists
  kLatency,
  kConnections,
};

struct Figure {
  Measure measure;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool block_on_events = false;
  bool inline_data = false;
  uint32_t bytes = 0;
  unsigned count = 1;  // QPs; for connections, how many are made concurrently
};

// Throws Failure if the text is not a figure.
Figure ParseFigure(const std::string& text);

}  // namespace rdma_bench
