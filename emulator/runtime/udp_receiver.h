// Takes datagrams from a socket, as many as one system call gives, and hands on what belongs
// together.
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
  static constexpr size_t kBatch = 16;  // bursts of one recvmmsg

  UdpReceiver();
  ~UdpReceiver();
  UdpReceiver(UdpReceiver&&) noexcept;
  UdpReceiver& operator=(UdpReceiver&&) noexcept;

  // Gets what came of one flow without a break, as much as one batch holds.
  using Handler = std::function<void(const wire::UdpFlow& flow,
                                     std::span<const std::span<const std::byte>> udp_payloads)>;
  // Takes one batch from a socket that is bound to `destination`; false when there was nothing.
  bool Receive(int fd, const NetAddress& destination, const Handler& handler);
  // QueueCharge of the last batch.
  uint64_t charge() const { return charge_; }

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
  uint64_t charge_ = 0;
};

}  // namespace rdmaemu::runtime
