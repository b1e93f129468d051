// Asks running hosts for their status without blocking on a host that does not answer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

using WatchClock = std::chrono::steady_clock;

// Parses a host's status (emulator/host/status.h). Removes the connections that only make queries
// from "clients". Returns null if the text is not a status.
nlohmann::ordered_json ParseStatus(const std::string& status);

// Counters whose rates are shown. docs/counters.md explains them.
struct Traffic {
  uint64_t packets_sent = 0, packets_received = 0;  // on the wire
  uint64_t bytes_sent = 0, bytes_received = 0;      // of these packets
  uint64_t local_packets = 0;                       // between QPs of the host
  uint64_t message_bytes = 0;                       // of completed requests
};

// A host's reply.
struct HostReply {
  nlohmann::ordered_json status = {};  // as ParseStatus returns it
  std::string devices = {};            // "rxe0 127.0.1.1; rxe1 (port down) 127.0.1.2"
  uint64_t processes = 0;
  uint64_t qps = 0, ids = 0, connections = 0;
  Traffic traffic = {};
  uint64_t dropped = 0;            // sum over all reasons
  uint64_t rules_fired = 0;        // sum over the host's current rules
  WatchClock::time_point at = {};  // time of its receipt
};

// The state of one host over many queries. A query opens its own connection, because an open
// connection keeps the host alive.
class HostPoll {
 public:
  // A host that has not answered for this time is silent. Frames do not wait for silent hosts.
  static constexpr std::chrono::milliseconds kAnswerLimit{500};

  HostPoll(const runtime::Registry& registry, std::string name)
      : path_(registry.SocketPath(name)), name_(std::move(name)) {}

  // Starts a query, unless one is in progress.
  void Ask(WatchClock::time_point now);
  // Handles the host's reply. Call this when `fd` is readable.
  void Receive(WatchClock::time_point now);

  // The descriptor of the query in progress. -1: no query is in progress.
  int fd() const { return client_ ? client_->fd() : -1; }
  // Returns whether a frame should wait for this host.
  bool IsAwaited(WatchClock::time_point now) const {
    return client_ && now - *unanswered_since_ < kAnswerLimit;
  }
  bool IsSilent(WatchClock::time_point now) const {
    return unanswered_since_ && !IsAwaited(now) && !has_ended_;
  }
  // The host has run and runs no longer.
  bool has_ended() const { return has_ended_; }
  // Begin of the oldest query without a reply.
  std::optional<WatchClock::time_point> unanswered_since() const { return unanswered_since_; }

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }  // 0: no process has listened yet
  const std::optional<HostReply>& last() const { return last_; }
  // The reply before `last` of the same process.
  const std::optional<HostReply>& previous() const { return previous_; }

 private:
  void Connect(WatchClock::time_point now);
  void End();
  void Retry(WatchClock::time_point now);

  std::string path_, name_;
  std::optional<runtime::HostClient> client_;
  std::optional<HostReply> asked_;  // the status has arrived, the list of rules has not
  std::optional<HostReply> last_, previous_;
  std::optional<WatchClock::time_point> unanswered_since_;
  pid_t pid_ = 0;
  bool has_ended_ = false;
  bool may_retry_ = false;
};

// All hosts of a registry, or the one that is named.
class HostPolls {
 public:
  // An ended host is listed in this many frames.
  static constexpr int kEndedFrames = 5;

  // `registry` must outlive this object. An empty `only` means all hosts.
  HostPolls(const runtime::Registry& registry, std::string only)
      : registry_(registry), only_(std::move(only)) {}

  // Begins a frame: asks each host of the registry, and forgets hosts that ended long ago.
  void Ask(WatchClock::time_point now);
  // Returns whether the frame is complete: each host has answered, has ended or is silent.
  bool IsComplete(WatchClock::time_point now) const;
  // Returns the time at which the next awaited host becomes silent.
  std::optional<WatchClock::time_point> NextLimit(WatchClock::time_point now) const;
  // Returns the hosts with a query in progress.
  std::vector<HostPoll*> InProgress();
  // Returns the hosts to list, by name: those that have answered, are silent or have ended.
  std::vector<const HostPoll*> Listed(WatchClock::time_point now) const;

 private:
  struct Entry {
    HostPoll poll;
    int frames_ended = 0;
  };
  const runtime::Registry& registry_;
  std::string only_;
  std::map<std::string, Entry> hosts_;
};

}  // namespace rdmaemu::cli
