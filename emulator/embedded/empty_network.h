// What is around a host inside a process: a network on which there is nobody else.
#pragma once

#include <vector>

#include "emulator/host/host.h"

namespace rdmaemu::embedded {

// What leaves the host is lost, as on a wire with nobody at its other end.
class EmptyNetwork final : public Network {
 public:
  std::span<std::byte> Allocate(const wire::UdpFlow&, uint8_t, size_t bytes) override {
    lost_.resize(bytes);
    return lost_;
  }
  void Commit() override {}

 private:
  std::vector<std::byte> lost_;
};

}  // namespace rdmaemu::embedded
