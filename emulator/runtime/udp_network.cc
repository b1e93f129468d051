#include "emulator/runtime/udp_network.h"

#include <algorithm>

namespace rdmaemu::runtime {

std::span<std::byte> UdpNetwork::Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                          size_t bytes) {
  allocated_ = nullptr;
  for (UdpPort& port : ports_) {
    if (port.address() != flow.source) continue;
    const std::span<std::byte> room = port.Allocate(flow, traffic_class, bytes);
    if (!room.empty()) allocated_ = &port;
    return room;
  }
  return {};
}

void UdpNetwork::Commit() {
  if (allocated_ != nullptr) allocated_->Commit();
  allocated_ = nullptr;
}

void UdpNetwork::Flush() {
  for (UdpPort& port : ports_) {
    if (port.has_pending()) port.Flush();
  }
}

bool UdpNetwork::blocked() const {
  return std::any_of(ports_.begin(), ports_.end(),
                     [](const UdpPort& port) { return port.blocked(); });
}

}  // namespace rdmaemu::runtime
