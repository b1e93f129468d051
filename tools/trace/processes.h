// Names the processes of a program trace, and matches the threads of two traces.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// A process image: the program that a process runs from one exec(3) to the next.
struct ProcessImage {
  std::string name;
  // The number of records of each thread, by kind and name: "call post_send".
  std::map<int64_t, std::map<std::string, size_t>> threads;
};

// The process images of a trace. `of_record` has the index in `images` for each record.
struct Processes {
  std::vector<ProcessImage> images;
  std::vector<uint32_t> of_record;
};

// Names processes by their program, in the order in which they began: "rping", "rping.2". The name
// of a traced process's child begins with the parent's name: "rping/rping". The name after exec(3)
// begins with the name before it: "sh>rping".
Processes FindProcesses(const std::vector<Record>& records);

// Returns, for each thread of `b`, the number of the thread of `a` with the most similar calls.
// Thread 1 always matches thread 1. A thread without a counterpart gets a number that `a` does not
// use. With more than 256 threads, threads of the same number match.
std::map<int64_t, int64_t> MatchThreads(const ProcessImage& a, const ProcessImage& b);

}  // namespace rdmaemu::trace_tools
