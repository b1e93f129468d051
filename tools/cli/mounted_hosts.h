// Asks the running hosts of a registry for the files of `rdmaemu mount`.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"
#include "tools/cli/files/tree/mount_tree.h"

namespace rdmaemu::cli {

class MountedHosts final : public HostAnswers {
 public:
  // A call fails with ETIMEDOUT after this time. During kSilence afterwards, each call to the same
  // process fails at once. A walk over the files of a host that hangs therefore ends soon.
  static constexpr std::chrono::seconds kAnswerLimit{2};
  static constexpr std::chrono::seconds kSilence{1};
  static constexpr std::chrono::seconds kMoveLimit{10};  // of MoveClock

  explicit MountedHosts(runtime::Registry registry) : registry_(std::move(registry)) {}

  std::vector<std::string> Names() override;
  bool IsRunning(std::string_view host) override;
  Result<std::string> Call(std::string_view host, CallOp op, std::string_view body) override;
  Status MoveClock(std::string_view host, std::string_view how) override;
  std::string Refusal(std::string_view host) override;
  void SetRefusal(std::string_view host, std::string text) override;
  Result<uint64_t> StreamBytes(std::string_view host, StreamKind kind) override;
  Result<std::unique_ptr<Stream>> OpenStream(std::string_view host, StreamKind kind) override;

 private:
  // Calls to one host are serialised, because a host accepts few connections of one process.
  struct OneHost {
    std::mutex calling;
    pid_t silent_pid = 0;
    std::chrono::steady_clock::time_point silent_until = {};
    std::string refusal;  // under mutex_
  };
  OneHost& Of(std::string_view host);
  // Returns the path of the file that the host writes.
  Result<std::string> StreamPath(std::string_view host, StreamKind kind);

  runtime::Registry registry_;
  std::mutex mutex_;  // of hosts_
  std::map<std::string, OneHost, std::less<>> hosts_;
};

}  // namespace rdmaemu::cli
