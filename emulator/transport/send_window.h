// Limits the packets that a sender may have in flight on the wire. The capacity of the peer's
// socket is unknown. The window therefore grows while nothing is lost, and halves after a loss.
// TCP's window does the same, but with a clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rdmaemu::transport {

class SendWindow {
 public:
  // With packets of 4 KiB, 2 MiB in flight keep both hosts busy while the scheduler does not run
  // one of them.
  static constexpr uint32_t kMost = 512;
  static constexpr uint32_t kLeast = 8;
  // Growth per window after a loss. It is small, so that losses stay rare with a small socket
  // buffer.
  static constexpr uint32_t kStep = 4;

  void Reset(uint32_t start_packets) {
    packets_ = std::max(start_packets, kLeast);
    threshold_ = std::max(packets_, kMost);
    credit_ = 0;
    is_full_ = false;
  }
  uint32_t packets() const { return packets_; }
  // Records that the window stopped the sender. Only a window that stops the sender grows.
  void NoteFull() { is_full_ = true; }
  // Records that the peer received `count` packets.
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
  // Records a loss. A response, or a missing response, revealed it.
  void Lost() {
    packets_ = threshold_ = std::max(packets_ / 2, kLeast);
    credit_ = 0;
  }

 private:
  uint32_t packets_ = kLeast;
  uint32_t threshold_ = kMost;
  uint32_t credit_ = 0;  // packets acknowledged since the last growth
  bool is_full_ = false;
};

}  // namespace rdmaemu::transport
