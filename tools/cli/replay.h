// `rdmaemu run --replay TRACE`: a run compared with an earlier one by their traces
// (emulator/trace/replay.h says what of them).
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

  // Reads the earlier trace, and fills in what the host is started with for a second one: the seed,
  // and a trace of its own where none was asked for.
  static runtime::OrMessage<Replay> Open(const std::string& path, const runtime::Registry& registry,
                                         runtime::HostOptions& options);
  Replay(Replay&& other) noexcept;
  Replay& operator=(Replay&& other) noexcept;
  ~Replay();  // removes a trace that nobody asked for

  // While the program runs: looks at what its host has written down since the last look, and says
  // on stderr, once, that the run has left the earlier one.
  void Look();
  // When the program has ended: says on stderr where its run left the earlier one. True when it did
  // not.
  bool Report(runtime::HostClient& client) const;

 private:
  static constexpr size_t kMaxBytesALook = size_t{4} << 20;

  Replay() = default;
  void Say(const char* severity, const char* when, const trace::Departure& departure) const;

  std::string path_, new_path_, removed_;
  trace::Run earlier_;
  std::optional<trace::RunFollower> follower_;  // until it has told something, or cannot
  size_t looked_at_ = 0;                        // bytes of the new trace, in whole lines
};

}  // namespace rdmaemu::cli
