// Implements `rdmaemu ab`, which runs a test on two backends and compares what the program saw
// (docs/ab.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emulator/fault/programs.h"
#include "tools/cli/trace.h"

namespace rdmaemu::cli {

struct AbSide {
  std::string backend;  // "emulator", "system"
  std::string device, address;
};

struct AbRequest {
  AbSide a{"emulator", "", ""}, b{"system", "", ""};
  std::string b_trace;  // of an earlier run, instead of side b
  // A file with fault rules. If the request names no other programs to run, the file must also have
  // programs (docs/ab.md).
  std::string scenario;
  std::string server, client;
  std::vector<std::string> test;  // instead of a server and a client
  std::string timeout = "10s";    // for the server to listen; for it to end after the client
  std::string keep;               // directory for the traces; empty: none
  bool hashes_payloads = false;
  CompareOptions compare;
};
int Ab(const AbRequest& request);

// Runs the programs of a test on one backend. Writes their traces to `traces`.NAME, and their exit
// statuses to `traces`.status: a JSON array of pairs, name and status.
struct AbProgramsRequest {
  std::string backend, device, timeout, traces;
  std::string end_timeout = {};  // for the server to end after the client; empty: `timeout`
  bool hashes_payloads = false;
  // On the emulator: the hosts of programs that do not run on RDMAEMU_HOST, by the program's name.
  std::map<std::string, std::string> hosts = {};
  bool has_checks = false;  // findings of the usage checks are in `traces`.NAME.checks
  std::vector<fault::Program> programs;
};
// Writes the request to a file for AbPrograms, which runs in a process on the backend. Returns
// false and sets errno when the file cannot be written.
bool WriteRequest(const AbProgramsRequest& request, const std::string& path);
int AbPrograms(const std::string& path);

}  // namespace rdmaemu::cli
