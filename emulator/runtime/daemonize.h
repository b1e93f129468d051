// A process that lives on by itself: double fork, a session of its own, no descriptor of its
// parent's. The parent waits until the daemon says that it is ready, or why it is not.
#pragma once

#include <string>

#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {

// The daemon's side. Without a parent (a process in the foreground) its calls do nothing.
class ReadyNotice {
 public:
  ReadyNotice() = default;
  explicit ReadyNotice(int fd) : fd_(fd) {}
  // Says that all is well, or the message; either ends the parent's wait.
  void Ready();
  void Failed(const std::string& message);

 private:
  UniqueFd fd_;
};

struct DaemonizeResult {
  bool in_daemon = false;
  ReadyNotice notice;       // in the daemon
  UniqueFd kept;            // in the daemon: the descriptor that was to be kept
  OrMessage<void> outcome;  // in the parent
};
// Call with one thread. What the daemon prints goes to `log_path`, which is emptied. Of the
// caller's descriptors only `keep` is open in the daemon.
DaemonizeResult Daemonize(const std::string& log_path, UniqueFd keep);

}  // namespace rdmaemu::runtime
