#include "emulator/runtime/udp_network.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "emulator/runtime/epoll_tag.h"

namespace rdmaemu::runtime {

Status UdpNetwork::Watch(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  for (uint32_t i = 0; i < ports_.size(); i++) {
    epoll_event event = EventFor(EventKind::kUdpPort, i);
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ports_[i].fd(), &event) != 0) return Fail(errno);
  }
  return {};
}

Status UdpNetwork::JoinGroup(const NetAddress& local, const NetAddress& group) {
  if (groups_.size() >= kMaxGroups) return Fail(ENOBUFS);
  const auto link = std::ranges::find(ports_, local, &UdpPort::address);
  if (link == ports_.end()) return Fail(EADDRNOTAVAIL);
  Result<GroupPort> opened = GroupPort::Open(local, link->interface_index(), group);
  if (!opened) return tl::make_unexpected(opened.error());
  // Closing its socket takes a group out of the epoll descriptor.
  epoll_event event = EventFor(EventKind::kGroupPort, last_group_ + 1);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, opened->fd(), &event) != 0) return Fail(errno);
  groups_.emplace(++last_group_, std::move(*opened));
  return {};
}

void UdpNetwork::LeaveGroup(const NetAddress& local, const NetAddress& group) {
  std::erase_if(groups_, [&](const auto& each) {
    return each.second.local() == local && each.second.group() == group;
  });
}

bool UdpNetwork::Receive(int fd, const NetAddress& destination, const NetAddress& at,
                         const Handler& handler) {
  return receiver_.Receive(
      fd, destination,
      [&](const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> udp_payloads) {
        handler(flow, udp_payloads, at);
      });
}

bool UdpNetwork::ReceivePort(uint32_t number, const Handler& handler) {
  const UdpPort& port = ports_[number];
  return Receive(port.fd(), port.address(), port.address(), handler);
}

bool UdpNetwork::ReceiveGroup(uint32_t number, const Handler& handler) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return false;
  const GroupPort& port = group->second;
  return Receive(port.fd(), port.group(), port.local(), handler);
}

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
