// How many packets a sender may have on their way over the wire: what the peer's socket holds is
// not known, so the window grows while nothing is lost and halves when something is (as TCP's
// does, without a clock).
#pragma once

#include <algorithm>
#include <cstdint>

namespace rdmaemu::transport {

class SendWindow {
 public:
  // Packets of 4 KiB: 2 MiB on their way keep both hosts busy while one of them is scheduled away.
  static constexpr uint32_t kMost = 512;
  static constexpr uint32_t kLeast = 8;
  // After a loss it grows by this much a window: losses stay rare where a socket is small.
  static constexpr uint32_t kStep = 4;

  void Reset(uint32_t start_packets) {
    packets_ = std::max(start_packets, kLeast);
    threshold_ = std::max(packets_, kMost);
    credit_ = 0;
    is_full_ = false;
  }
  uint32_t packets() const { return packets_; }
  // The window kept the sender from sending: only then it is worth growing.
  void NoteFull() { is_full_ = true; }
  // Packets have arrived at the peer.
  void Acknowledged(uint32_t count) {
    if (!is_full_) return;
    is_full_ = false;
    const uint32_t most = std::max(packets_, kMost);
    if (packets_ < threshold_) {
      packets_ = std::min(packets_ + count, most);
      return;
    }
    credit_ += count;
    if (credit_ < packets_) return;
    credit_ = 0;
    packets_ = std::min(packets_ + kStep, most);
  }
  // Something was lost: an answer said so, or none came.
  void Lost() {
    packets_ = threshold_ = std::max(packets_ / 2, kLeast);
    credit_ = 0;
  }

 private:
  uint32_t packets_ = kLeast;
  uint32_t threshold_ = kMost;
  uint32_t credit_ = 0;  // acknowledged since it last grew
  bool is_full_ = false;
};

}  // namespace rdmaemu::transport
