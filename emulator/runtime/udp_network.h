// All wire addresses of a host as its Network: a datagram leaves through the socket of its source.
#pragma once

#include <span>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/udp_port.h"

namespace rdmaemu::runtime {

class UdpNetwork final : public Network {
 public:
  // Sends per Host::Work must leave before the loop sleeps: the loop calls Flush.
  void Add(UdpPort port) { ports_.push_back(std::move(port)); }

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override;
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) override;
  void Commit() override;

  // Gives to the kernel what waits.
  void Flush();
  // True when the kernel did not take all: Flush again a little later.
  bool blocked() const;
  std::span<UdpPort> ports() { return ports_; }

 private:
  std::vector<UdpPort> ports_;
  UdpPort* allocated_ = nullptr;
};

}  // namespace rdmaemu::runtime
