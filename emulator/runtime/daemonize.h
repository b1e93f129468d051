// Starts a daemon: double fork, a new session, none of its parent's descriptors. The parent waits
// until the daemon reports that it is ready, or why it failed.
#pragma once

#include <functional>
#include <string>

#include "emulator/base/time.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// The daemon's report to its parent. In a foreground process without a parent its calls do nothing.
class ReadyNotice {
 public:
  ReadyNotice() = default;
  explicit ReadyNotice(int fd) : fd_(fd) {}
  // Report success, or a failure with its message. Either report ends the parent's wait.
  void Ready();
  void Failed(const std::string& message);

 private:
  UniqueFd fd_;
};

struct DaemonizeResult {
  bool in_daemon = false;
  ReadyNotice notice;       // in the daemon
  UniqueFd kept;            // in the daemon: the descriptor `keep`
  OrMessage<void> outcome;  // in the parent
};
// The parent calls `say` once if the daemon is not ready after this time.
struct SlowStart {
  std::function<void()> say;
  Duration after = std::chrono::seconds(5);
};
// Forks the daemon. Call this with a single thread. The daemon's output is written to `log_path`,
// which is emptied first. Of the caller's descriptors only `keep` stays open in the daemon. The
// parent waits for the report without a limit.
DaemonizeResult Daemonize(const std::string& log_path, UniqueFd keep, const SlowStart& slow);

}  // namespace rdmaemu::runtime
