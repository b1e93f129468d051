// Implements `rdmaemu ab`, which runs a test on two backends and compares what the program saw
// (docs/ab.md).
#pragma once

#include <string>
#include <vector>

#include "tools/cli/trace.h"

namespace rdmaemu::cli {

struct AbSide {
  std::string backend;  // "emulator", "system"
  std::string device, address;
};

struct AbRequest {
  AbSide a{"emulator", "", ""}, b{"system", "", ""};
  std::string b_trace;  // of an earlier run, instead of side b
  std::string server, client;
  std::vector<std::string> test;  // instead of a server and a client
  std::string timeout = "10s";    // for the server to listen, and to end after the client
  std::string keep;               // directory for the traces; empty: none
  CompareOptions compare;
};
int Ab(const AbRequest& request);

// Runs a server and its client on one backend. `AbPair` starts the client when the server listens.
// `AbPair` writes the traces to `traces`.server and `traces`.client, and the exit statuses of both
// to `traces`.status.
struct AbPairRequest {
  std::string backend, device, server, client, timeout, traces;
};
int AbPair(const AbPairRequest& request);

}  // namespace rdmaemu::cli
