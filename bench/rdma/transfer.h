// The measured traffic: one-way messages with a number outstanding, and ping-pong.
#pragma once

#include <vector>

#include "bench/rdma/control.h"
#include "bench/rdma/endpoint.h"

namespace rdma_bench {

struct Traffic {
  ibv_wr_opcode opcode;
  uint32_t message_bytes;
  unsigned qps = 1;
  unsigned outstanding = 16;  // messages per QP that are posted and not known to be complete
  unsigned list = 1;          // messages per post call; only the last one is signalled
  bool block_on_events = false;
  bool inline_data = false;
};

struct Volume {
  uint64_t messages;
  double seconds;  // from the first post to the last completion
};

// Runs the client's side of one round. For SEND, checks that the server received all messages.
Volume SendFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
               const ServerFacts& server, double seconds);
// Returns one-way times in microseconds, sorted. Each is half of a round trip.
std::vector<double> PingPongFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
                                double seconds);

// Run the server's side of the two functions above.
Report ReceiveAll(Endpoint& endpoint, const Order& order);
Report EchoAll(Endpoint& endpoint, const Order& order);

// Makes and disconnects connections for `seconds`, `in_flight` at a time.
Volume ConnectFor(Endpoint& endpoint, const std::string& peer, uint16_t port, unsigned in_flight,
                  double seconds);
// Runs the server's side until an order arrives on `control` and all connections have ended.
void AcceptAll(Endpoint& endpoint, Control& control);

}  // namespace rdma_bench
