// Receives datagrams from a socket, one batch per system call, and groups those of one flow.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "emulator/base/net_address.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::runtime {

class UdpReceiver {
 public:
  static constexpr size_t kBatch = 16;  // bursts per recvmmsg

  UdpReceiver();
  ~UdpReceiver();
  UdpReceiver(UdpReceiver&&) noexcept;
  UdpReceiver& operator=(UdpReceiver&&) noexcept;

  // Called with consecutive datagrams of one flow, at most one batch.
  using Handler = std::function<void(const wire::UdpFlow& flow,
                                     std::span<const std::span<const std::byte>> udp_payloads)>;
  // Receives one batch from a socket that is bound to `destination`. Returns false if there was no
  // datagram.
  bool Receive(int fd, const NetAddress& destination, const Handler& handler);
  // The total QueueCharge of the last batch.
  uint64_t charge() const { return charge_; }
  // Returns how many bytes were received.
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
  uint64_t charge_ = 0;
  uint64_t received_bytes_ = 0;
};

}  // namespace rdmaemu::runtime
