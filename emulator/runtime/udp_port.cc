#include "emulator/runtime/udp_port.h"

#include <linux/errqueue.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "emulator/runtime/socket_options.h"
#include "emulator/wire/packet.h"

// <netinet/udp.h> of older C libraries lacks this constant. The value is that of <linux/udp.h>.
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

namespace rdmaemu::runtime {
namespace {

constexpr int kTtl = 64;  // as rdma_rxe, whatever the system's default is

// Multicast packets are sent only on the link of the port's own address. Members on this machine
// also receive them, as with the kernel's rdma_rxe.
bool SetMulticastOptions(int fd, const NetAddress& own, uint32_t interface_index) {
  if (!own.IsIpv4()) {
    return SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface_index)) &&
           SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, kTtl);
  }
  ip_mreqn link{};
  link.imr_address.s_addr = htonl(own.ToIpv4());
  link.imr_ifindex = static_cast<int>(interface_index);
  return SetOption(fd, IPPROTO_IP, IP_MULTICAST_IF, link) &&
         SetOption(fd, IPPROTO_IP, IP_MULTICAST_TTL, kTtl);
}

bool SetProtocolOptions(int fd, bool ipv4) {
  const int on = 1;
  SetOption(fd, SOL_UDP, UDP_GRO, on);  // GRO delivers a burst in one piece if the kernel has it
  if (ipv4) {
    const int discover = IP_PMTUDISC_DO;
    return SetOption(fd, IPPROTO_IP, IP_MTU_DISCOVER, discover) &&
           SetOption(fd, IPPROTO_IP, IP_TTL, kTtl);
  }
  const int discover = IPV6_PMTUDISC_DO;
  // rdma_rxe sends UDP over IPv6 with checksum 0. The kernel drops such datagrams without this
  // option.
  return SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, on) &&
         SetOption(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, discover) &&
         SetOption(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kTtl) &&
         SetOption(fd, SOL_UDP, UDP_NO_CHECK6_RX, on);
}

template <class T>
void AddControl(msghdr& header, int level, int type, const T& value) {
  auto* const base = static_cast<std::byte*>(header.msg_control);
  auto* const control = reinterpret_cast<cmsghdr*>(base + header.msg_controllen);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(control), &value, sizeof value);
  header.msg_controllen += CMSG_SPACE(sizeof value);
}

}  // namespace

Result<UdpPort> UdpPort::Open(const NetAddress& address, uint32_t interface_index) {
  const bool ipv4 = address.IsIpv4();
  UniqueFd fd(socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || !SetProtocolOptions(fd.get(), ipv4)) return Fail(errno);
  SetBufferSizes(fd.get());
  UdpPort port(std::move(fd), address, interface_index);
  socklen_t size = 0;
  const sockaddr_storage name = port.SocketAddress(address, wire::kRoceUdpPort, size);
  if (bind(port.fd(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
      !SetMulticastOptions(port.fd(), address, interface_index)) {
    return Fail(errno);
  }
  return port;
}

UdpPort::UdpPort(UniqueFd fd, const NetAddress& address, uint32_t interface_index)
    : fd_(std::move(fd)),
      address_(address),
      interface_index_(interface_index),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kSendBufferBytes)) {
  waiting_.reserve(kMaxBatch);
}

sockaddr_storage UdpPort::SocketAddress(const NetAddress& address, uint16_t port,
                                        socklen_t& size) const {
  sockaddr_storage storage{};
  if (address.IsIpv4()) {
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(storage);
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    ipv4.sin_addr.s_addr = htonl(address.ToIpv4());
    size = sizeof ipv4;
    return storage;
  }
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(storage);
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  std::memcpy(&ipv6.sin6_addr, address.bytes.data(), address.bytes.size());
  if (address.IsLinkLocal()) ipv6.sin6_scope_id = interface_index_;
  size = sizeof ipv6;
  return storage;
}

void UdpPort::ReportRefusals() {
  const int on = 1;
  reports_refusals_ = address_.IsIpv4() ? SetOption(fd_.get(), IPPROTO_IP, IP_RECVERR, on)
                                        : SetOption(fd_.get(), IPPROTO_IPV6, IPV6_RECVERR, on);
}

std::vector<NetAddress> UdpPort::TakeRefused() {
  std::vector<NetAddress> refused;
  while (reports_refusals_) {
    sockaddr_storage destination{};
    std::byte payload;
    iovec vector{&payload, sizeof payload};
    alignas(cmsghdr) std::array<std::byte, 256> control;
    msghdr header{};
    header.msg_name = &destination;
    header.msg_namelen = sizeof destination;
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    if (recvmsg(fd_.get(), &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr;
         each = CMSG_NXTHDR(&header, each)) {
      const bool is_error = (each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_RECVERR) ||
                            (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_RECVERR);
      if (!is_error) continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(each), sizeof error);
      const bool is_icmp =
          error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6;
      if (is_icmp && error.ee_errno == ECONNREFUSED) {
        uint16_t port = 0;
        refused.push_back(AddressFrom(destination, port));
      }
    }
  }
  return refused;
}

std::span<std::byte> UdpPort::Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                       size_t bytes) {
  std::span<std::byte> room;
  AllocateRun(flow, traffic_class, {&bytes, 1}, {&room, 1});
  return room;
}

size_t UdpPort::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                            std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
  waiting_.resize(committed_);
  if (flow.destination.IsIpv4() != address_.IsIpv4()) return 0;
  size_t offset =
      waiting_.empty() ? kBytesBeforeFirst : waiting_.back().offset + waiting_.back().bytes;
  for (size_t i = 0; i < bytes.size(); i++) {
    if (bytes[i] == 0 || bytes[i] > kMaxDatagramBytes) return i;
    if (waiting_.size() == kMaxBatch || kSendBufferBytes - offset < bytes[i]) {
      if (i > 0) return i;
      if (!blocked_) Flush();
      if (!waiting_.empty()) return 0;
      offset = kBytesBeforeFirst;
    }
    waiting_.push_back({offset, bytes[i], flow.destination, flow.destination_port, traffic_class});
    rooms[i] = std::span(buffer_.get() + offset, bytes[i]);
    offset += bytes[i];
  }
  return bytes.size();
}

void UdpPort::Commit() {
  committed_ = waiting_.size();
  if (committed_ == 0 || blocked_) return;
  if (waiting_.back().offset + waiting_.back().bytes >= kFlushBytes) Flush();
}

// The kernel does not split a burst on loopback. On other links it may, and then gives the packets
// consecutive IP IDs, which the ICRC of an emulator's packets does not have. rdma_rxe drops such
// packets. IPv6 has no IP ID.
bool UdpPort::AcceptsBursts(const NetAddress& destination) const {
  if (!segmentation_) return false;
  if (destination.IsLoopback() || !destination.IsIpv4()) return true;
  return emulators_ != nullptr && emulators_->Contains(destination);
}

size_t UdpPort::BurstLength(size_t first) const {
  const Waiting& head = waiting_[first];
  if (!AcceptsBursts(head.destination)) return 1;
  size_t count = 1, total = head.bytes;
  for (size_t i = first + 1; i < waiting_.size() && count < kMaxSegments; i++, count++) {
    const Waiting& next = waiting_[i];
    if (next.destination != head.destination || next.traffic_class != head.traffic_class ||
        next.destination_port != head.destination_port || next.bytes > head.bytes ||
        total + next.bytes > kMaxDatagramBytes) {
      break;
    }
    total += next.bytes;
    if (next.bytes < head.bytes) return count + 1;  // a shorter datagram ends a burst
  }
  return count;
}

void UdpPort::Flush() {
  struct Message {
    sockaddr_storage destination;
    iovec vector;
    alignas(cmsghdr) std::array<std::byte, 64> control;
    size_t datagrams;
    uint64_t charge;
  };
  constexpr size_t kMessages = 32;
  std::array<Message, kMessages> messages;
  std::array<mmsghdr, kMessages> headers;
  blocked_ = awaits_peer_ = false;
  bool error_taken = false;
  waiting_.resize(committed_);
  while (sent_ < waiting_.size()) {
    size_t count = 0;
    uint64_t charge = 0;
    for (size_t next = sent_; next < waiting_.size() && count < kMessages; count++) {
      Message& message = messages[count];
      const Waiting& head = waiting_[next];
      message.datagrams = BurstLength(next);
      const Waiting& tail = waiting_[next + message.datagrams - 1];
      message.vector = {buffer_.get() + head.offset, tail.offset + tail.bytes - head.offset};
      message.charge = QueueCharge(message.vector.iov_len, message.datagrams);
      if (peers_ != nullptr && !peers_->Fits(head.destination, charge, message.charge)) break;
      charge += message.charge;
      msghdr& header = headers[count].msg_hdr;
      header = {};
      header.msg_name = &message.destination;
      message.destination =
          SocketAddress(head.destination, head.destination_port, header.msg_namelen);
      header.msg_iov = &message.vector;
      header.msg_iovlen = 1;
      header.msg_control = message.control.data();
      if (message.datagrams > 1) {
        AddControl(header, SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(head.bytes));
      }
      if (head.traffic_class != 0 && address_.IsIpv4()) {
        AddControl(header, IPPROTO_IP, IP_TOS, static_cast<int>(head.traffic_class));
      } else if (head.traffic_class != 0) {
        AddControl(header, IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(head.traffic_class));
      }
      if (header.msg_controllen == 0) header.msg_control = nullptr;
      next += message.datagrams;
    }
    if (count == 0) {
      blocked_ = awaits_peer_ = true;
      return;
    }
    const int sent = sendmmsg(fd_.get(), headers.data(), static_cast<unsigned>(count), 0);
    if (sent > 0) {
      error_taken = false;
      for (int i = 0; i < sent; i++) {
        const Message& message = messages[static_cast<size_t>(i)];
        if (peers_ != nullptr) peers_->Sent(waiting_[sent_].destination, message.charge);
        sent_ += message.datagrams;
        sent_bytes_ += message.vector.iov_len;
      }
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      blocked_ = true;
      return;
    } else if (errno == EINTR) {
      continue;
    } else if (reports_refusals_ && !error_taken) {
      error_taken = true;  // the error may be of an earlier datagram; the next call reports its own
    } else if (messages[0].datagrams > 1 && (errno == EINVAL || errno == EIO)) {
      segmentation_ = false;  // UDP_SEGMENT is not supported: send the same datagrams one by one
    } else {
      sent_ += messages[0].datagrams;
    }
  }
  waiting_.clear();
  sent_ = committed_ = 0;
}

}  // namespace rdmaemu::runtime
