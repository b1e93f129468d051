// Who is who in two program traces: processes and threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// A process image: what ran under one pid between exec(3) and the next one.
struct ProcessImage {
  std::string name;
  // How often each thread made each record: "call post_send".
  std::map<int64_t, std::map<std::string, size_t>> threads;
};

// The processes of a trace, and which of them each record belongs to (the index in `images`).
struct Processes {
  std::vector<ProcessImage> images;
  std::vector<uint32_t> of_record;
};

// Names processes by their program, in the order in which they began: "rping", "rping.2". A child
// of a traced process has the parent's name in front: "rping/rping".
Processes FindProcesses(const std::vector<Record>& records);

// Returns for each thread of `b` the number of the thread of `a` that did most nearly the same.
// Thread 1 is thread 1. A thread without a counterpart has a number that `a` does not use.
std::map<int64_t, int64_t> MatchThreads(const ProcessImage& a, const ProcessImage& b);

}  // namespace rdmaemu::trace_tools
