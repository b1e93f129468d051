// The host of a run on the system backend: a thread of `rdmaemu run` that owns the fault rules of
// the run's programs. This host has a name and a socket in the registry, and serves `rdmaemu fault`
// as an emulated host does. It has no devices and no clients.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/trace_files.h"
#include "emulator/runtime/unique_fd.h"
#include "tools/cli/system_host/decisions.h"

namespace rdmaemu::cli {

class SystemHost {
 public:
  static constexpr size_t kMaxConnections = 4096;

  // Reads the scenario of `options`, takes the host's name, creates the trace and starts the
  // thread.
  static runtime::OrMessage<std::unique_ptr<SystemHost>> Start(const runtime::Registry& registry,
                                                               const runtime::HostOptions& options);
  // Ends the thread and writes the rest of the trace. Programs that still run continue without
  // rules.
  ~SystemHost();
  SystemHost(const SystemHost&) = delete;
  SystemHost& operator=(const SystemHost&) = delete;

  const std::string& socket_path() const { return socket_path_; }
  const std::string& doors_path() const { return doors_path_; }
  const std::string& seed() const { return seed_; }

 private:
  struct Connection {
    runtime::UniqueFd socket;
    pid_t pid;
  };

  SystemHost(const runtime::Registry& registry, const runtime::HostOptions& options,
             const RandomSeed& seed);
  runtime::OrMessage<void> Open();
  void Serve();
  void Accept();
  bool Read(uint32_t number, Connection& connection);
  // Returns the reply, or nothing when the reply is delayed.
  std::optional<Reply> AnswerTo(uint32_t number, const Connection& connection,
                                std::span<const std::byte> message);
  void SendReady();
  void Drop(uint32_t number);
  Reply StatusReply() const;

  const std::string name_, seed_, socket_path_, lock_path_, doors_path_;
  runtime::UniqueFd lock_, listener_, stop_;
  layer::faults::DoorsPage* doors_ = nullptr;
  runtime::TraceFiles trace_;
  Decisions decisions_;
  std::map<uint32_t, Connection> connections_;
  uint32_t last_number_ = 0;
  std::thread thread_;
};

}  // namespace rdmaemu::cli
