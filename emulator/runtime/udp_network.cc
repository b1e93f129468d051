#include "emulator/runtime/udp_network.h"

#include <algorithm>

namespace rdmaemu::runtime {

std::span<std::byte> UdpNetwork::Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                          size_t bytes) {
  std::span<std::byte> room;
  AllocateRun(flow, traffic_class, {&bytes, 1}, {&room, 1});
  return room;
}

size_t UdpNetwork::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                               std::span<const size_t> bytes,
                               std::span<std::span<std::byte>> rooms) {
  allocated_ = nullptr;
  for (UdpPort& port : ports_) {
    if (port.address() != flow.source) continue;
    const size_t count = port.AllocateRun(flow, traffic_class, bytes, rooms);
    if (count > 0) allocated_ = &port;
    return count;
  }
  return 0;
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
