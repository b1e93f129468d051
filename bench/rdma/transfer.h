// The traffic that is measured: messages one way with so many outstanding, and ping-pong.
#pragma once

#include <vector>

#include "bench/rdma/control.h"
#include "bench/rdma/endpoint.h"

namespace rdma_bench {

struct Traffic {
  ibv_wr_opcode opcode;
  uint32_t message_bytes;
  unsigned qps = 1;
  unsigned outstanding = 16;  // messages of each QP that are posted and not known to be complete
  unsigned list = 1;          // posted by one call; the last one alone is signalled
  bool block_on_events = false;
  bool inline_data = false;
};

struct Volume {
  uint64_t messages;
  double seconds;  // from the first post to the last completion
};

// The client's side of one round. Of a SEND it is checked that the server took all messages.
Volume SendFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
               const ServerFacts& server, double seconds);
// One-way times in microseconds, half of each round trip, sorted.
std::vector<double> PingPongFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
                                double seconds);

// The server's side of both.
Report ReceiveAll(Endpoint& endpoint, const Order& order);
Report EchoAll(Endpoint& endpoint, const Order& order);

// Connections that are made, established and taken down in `seconds`, `in_flight` at a time.
Volume ConnectFor(Endpoint& endpoint, const std::string& peer, uint16_t port, unsigned in_flight,
                  double seconds);
// The server's side: until an order comes on `control`, and all connections have gone.
void AcceptAll(Endpoint& endpoint, Control& control);

}  // namespace rdma_bench
