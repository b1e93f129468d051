// `rdmaemu hosts --watch`: shows the running hosts until the user ends the command.
#pragma once

#include <chrono>
#include <string>

#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

inline constexpr std::chrono::milliseconds kMinWatchInterval{100};
inline constexpr std::chrono::hours kMaxWatchInterval{1};

struct WatchRequest {
  std::string host = {};  // "": all hosts
  Duration interval = std::chrono::seconds(1);
  bool json = false;
};

// Shows the hosts once per interval: on a terminal as a table that is redrawn, else as one table
// after the other. With `json`, prints one JSON object per line. Returns 0 when the user pressed q.
// When a signal ends the command, restores the terminal and ends the process by the same signal.
runtime::OrMessage<int> WatchHosts(const runtime::Registry& registry, const WatchRequest& request);

}  // namespace rdmaemu::cli
