// `rdmaemu run --replay TRACE` compares a run with an earlier one by their traces
// (emulator/trace/replay.h defines the comparison).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"
#include "emulator/trace/replay.h"

namespace rdmaemu::cli {

class Replay {
 public:
  static constexpr size_t kMaxTraceBytes = size_t{1} << 30;

  // Reads the earlier trace. Sets the options of the second run's host: the same seed, and a
  // temporary trace if the options name none.
  static runtime::OrMessage<Replay> Open(const std::string& path, const runtime::Registry& registry,
                                         runtime::HostOptions& options);
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&& other) noexcept;
  ~Replay();  // removes a temporary trace

  // Reads the new records of the host's trace while the program runs. When the run has departed
  // from the earlier one, prints so on stderr, once.
  void Look();
  // Call this after the program has ended. If its run departed from the earlier one, prints where
  // on stderr. Returns true if it did not.
  bool Report(runtime::HostClient& client) const;

 private:
  static constexpr size_t kMaxBytesALook = size_t{4} << 20;

  Replay() = default;
  void Say(const char* severity, const char* when, const trace::Departure& departure) const;

  std::string path_, new_path_, removed_;
  trace::Run earlier_;
  std::optional<trace::RunFollower> follower_;  // until it reports a departure, or fails
  size_t looked_at_ = 0;                        // bytes read from the new trace, in whole lines
};

}  // namespace rdmaemu::cli
