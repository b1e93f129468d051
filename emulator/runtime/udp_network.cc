#include "emulator/runtime/udp_network.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "emulator/runtime/epoll_tag.h"

namespace rdmaemu::runtime {

void UdpNetwork::Add(UdpPort port) { ports_.push_back(std::make_unique<UdpPort>(std::move(port))); }

UdpPort* UdpNetwork::PortOf(const NetAddress& address) const {
  for (const std::unique_ptr<UdpPort>& port : ports_) {
    if (port != nullptr && port->address() == address) return port.get();
  }
  return nullptr;
}

Status UdpNetwork::WatchPort(uint32_t number) {
  epoll_event event = EventFor(EventKind::kUdpPort, number);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ports_[number]->fd(), &event) != 0) return Fail(errno);
  return {};
}

Status UdpNetwork::Watch(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  for (uint32_t i = 0; i < ports_.size(); i++) {
    if (const Status watched = WatchPort(i); !watched) return watched;
  }
  return {};
}

Status UdpNetwork::Open(const HostAddress& address) {
  Result<UdpPort> port = UdpPort::Open(address.address, address.interface_index);
  if (!port) return Fail(port.error().code);
  auto place = std::find(ports_.begin(), ports_.end(), nullptr);
  if (place == ports_.end()) place = ports_.insert(place, nullptr);
  *place = std::make_unique<UdpPort>(std::move(*port));
  const Status watched = WatchPort(static_cast<uint32_t>(place - ports_.begin()));
  if (!watched) place->reset();
  return watched;
}

// Groups that were joined by the address stay until they are left: what they bring finds nobody.
void UdpNetwork::Close(const NetAddress& address) {
  for (std::unique_ptr<UdpPort>& port : ports_) {
    if (port == nullptr || port->address() != address) continue;
    if (allocated_ == port.get()) allocated_ = nullptr;
    port->Flush();  // what was said before the address went
    port.reset();
  }
}

Status UdpNetwork::JoinGroup(const NetAddress& local, const NetAddress& group) {
  if (groups_.size() >= kMaxGroups) return Fail(ENOBUFS);
  const UdpPort* const link = PortOf(local);
  if (link == nullptr) return Fail(EADDRNOTAVAIL);
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
  if (number >= ports_.size() || ports_[number] == nullptr) return false;
  const UdpPort& port = *ports_[number];
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
  UdpPort* const port = PortOf(flow.source);
  if (port == nullptr) return 0;
  const size_t count = port->AllocateRun(flow, traffic_class, bytes, rooms);
  if (count > 0) allocated_ = port;
  return count;
}

void UdpNetwork::Commit() {
  if (allocated_ != nullptr) allocated_->Commit();
  allocated_ = nullptr;
}

void UdpNetwork::Flush() {
  for (const std::unique_ptr<UdpPort>& port : ports_) {
    if (port != nullptr && port->has_pending()) port->Flush();
  }
}

bool UdpNetwork::blocked() const {
  return std::ranges::any_of(ports_,
                             [](const auto& port) { return port != nullptr && port->blocked(); });
}

}  // namespace rdmaemu::runtime
