// A paused host, as under SIGSTOP. Datagrams that arrive during the pause are queued, as in the
// host's sockets.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu {

class HostPause {
 public:
  // Limit of the queued datagrams. Further datagrams are lost, as in a full receive buffer.
  static constexpr size_t kMaxDatagrams = 4096;

  struct Datagram {
    wire::UdpFlow flow;
    std::vector<std::byte> bytes;
    std::optional<NetAddress> at;
  };

  // Pauses the host at least until that time.
  void Begin(Time until) {
    if (!until_ || *until_ < until) until_ = until;
  }
  bool active() const { return until_.has_value(); }
  std::optional<Time> until() const { return until_; }
  // Ends the pause and returns the queued datagrams.
  std::deque<Datagram> End() {
    until_.reset();
    return std::exchange(waiting_, {});
  }
  // Returns false when the datagram is lost.
  bool Keep(const wire::UdpFlow& flow, std::span<const std::byte> bytes, const NetAddress* at) {
    if (waiting_.size() >= kMaxDatagrams) return false;
    waiting_.push_back(
        {flow, {bytes.begin(), bytes.end()}, at == nullptr ? std::nullopt : std::optional(*at)});
    return true;
  }

 private:
  std::optional<Time> until_;
  std::deque<Datagram> waiting_;
};

}  // namespace rdmaemu
