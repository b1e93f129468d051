// All wire addresses of a host as its Network: a datagram leaves through the socket of its source,
// and comes by the socket of its destination or of the multicast group.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/group_port.h"
#include "emulator/runtime/udp_port.h"
#include "emulator/runtime/udp_receiver.h"

namespace rdmaemu::runtime {

class UdpNetwork final : public Network {
 public:
  static constexpr size_t kMaxGroups = 4096;  // a socket each

  // Sends per Host::Work must leave before the loop sleeps: the loop calls Flush.
  void Add(UdpPort port);
  // Has all sockets watched, those of addresses and groups that come later too: kUdpPort and
  // kGroupPort with their numbers. An errno of epoll_ctl(2).
  Status Watch(int epoll_fd);

  // An address that the host gets while it runs; EADDRINUSE, EADDRNOTAVAIL and the like.
  Status Open(const HostAddress& address) override;
  void Close(const NetAddress& address) override;

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override;
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) override;
  void Commit() override;
  // ENOBUFS above kMaxGroups; EADDRNOTAVAIL when no port has the address; else as GroupPort::Open.
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override;
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override;

  // `at`: the own address by which it came.
  using Handler = std::function<void(const wire::UdpFlow& flow,
                                     std::span<const std::span<const std::byte>> udp_payloads,
                                     const NetAddress& at)>;
  // Takes one batch from the port or group of that number; false when there was nothing, or when
  // the group has been left or the port closed.
  bool ReceivePort(uint32_t number, const Handler& handler);
  bool ReceiveGroup(uint32_t number, const Handler& handler);

  // Gives to the kernel what waits.
  void Flush();
  // True when the kernel did not take all: Flush again a little later.
  bool blocked() const;

 private:
  bool Receive(int fd, const NetAddress& destination, const NetAddress& at, const Handler& handler);
  Status WatchPort(uint32_t number);
  UdpPort* PortOf(const NetAddress& address) const;  // nullptr: there is none

  std::vector<std::unique_ptr<UdpPort>> ports_;  // by number; nullptr: free
  std::map<uint32_t, GroupPort> groups_;         // by number; none comes twice
  uint32_t last_group_ = 0;
  int epoll_fd_ = -1;  // not ours
  UdpReceiver receiver_;
  UdpPort* allocated_ = nullptr;
};

}  // namespace rdmaemu::runtime
