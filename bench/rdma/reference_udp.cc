// Plain UDP sockets at full speed: the kernel segments and coalesces, isa-l computes a CRC.
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <isa-l.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "bench/rdma/reference.h"

namespace rdma_bench {
namespace {

constexpr size_t kHeaderBytes = 100;
constexpr size_t kCrcBytes = 4;
constexpr size_t kMaxBurstPackets = 64;  // UDP_MAX_SEGMENTS of Linux 6.1
constexpr size_t kMaxBurstBytes = 65507;
// Limit of unacknowledged bursts. A larger limit is not faster, and this one fits into the receive
// buffer of an ordinary user.
constexpr uint64_t kWindowBursts = 4;
constexpr int kSocketBufferBytes = 4 << 20;
constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr timeval kPatience{5, 0};

// isa-l's AVX-512 code leaves the upper halves of the vector registers in use. On some processors
// the next SSE instruction then takes more than 100 ns (emulator/wire/icrc.cc).
#if defined(__x86_64__)
__attribute__((target("avx"))) void ClearUpperHalves() { _mm256_zeroupper(); }
#endif
uint32_t Crc(uint32_t crc, unsigned char* data, size_t bytes) {
  const uint32_t result = crc32_gzip_refl(crc, data, bytes);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) ClearUpperHalves();
#endif
  return result;
}

// The packets of one measurement, in bytes.
struct Shape {
  explicit Shape(size_t payload) : payload(payload) {}
  const size_t payload;
  const size_t packet = kHeaderBytes + payload + kCrcBytes;
  const size_t burst_packets = std::min(kMaxBurstPackets, kMaxBurstBytes / packet);
};

class UdpSocket {
 public:
  explicit UdpSocket(const std::string& own) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    Require(fd_ >= 0, "socket");
    sockaddr_in address = SocketAddress(own, 0);
    Require(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
    const int bytes = kSocketBufferBytes;
    // Requests the largest buffers. Only CAP_NET_ADMIN allows more than the system's limit.
    for (const auto& [force, plain] :
         {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}}) {
      if (setsockopt(fd_, SOL_SOCKET, force, &bytes, sizeof bytes) != 0)
        setsockopt(fd_, SOL_SOCKET, plain, &bytes, sizeof bytes);
    }
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  }
  ~UdpSocket() { close(fd_); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  void SetOption(int name, int value) {
    Require(setsockopt(fd_, SOL_UDP, name, &value, sizeof value) == 0, "a UDP option");
  }
  void ConnectTo(const std::string& peer, uint16_t port) {
    sockaddr_in address = SocketAddress(peer, port);
    Require(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "connect");
  }
  uint16_t port() const {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    Require(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0, "getsockname");
    return ntohs(address.sin_port);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// A burst whose payload stays in the message, with separate headers and CRCs.
class Burst {
 public:
  explicit Burst(const Shape& shape) : shape_(shape) {
    for (size_t i = 0; i < kMaxBurstPackets; i++) {
      headers_[i].fill(static_cast<unsigned char>(i));
      pieces_[3 * i] = {headers_[i].data(), kHeaderBytes};
      pieces_[3 * i + 2] = {&crcs_[i], kCrcBytes};
    }
    header_.msg_iov = pieces_.data();
  }
  void Send(int fd, std::byte* payload, size_t packets) {
    for (size_t i = 0; i < packets; i++) {
      std::byte* const here = payload + i * shape_.payload;
      pieces_[3 * i + 1] = {here, shape_.payload};
      const uint32_t crc = Crc(0, headers_[i].data(), kHeaderBytes);
      crcs_[i] = Crc(crc, reinterpret_cast<unsigned char*>(here), shape_.payload);
    }
    header_.msg_iovlen = 3 * packets;
    Require(sendmsg(fd, &header_, 0) == static_cast<ssize_t>(packets * shape_.packet),
            "sendmsg of a burst");
  }

 private:
  const Shape shape_;
  std::array<std::array<unsigned char, kHeaderBytes>, kMaxBurstPackets> headers_;
  std::array<uint32_t, kMaxBurstPackets> crcs_;
  std::array<iovec, 3 * kMaxBurstPackets> pieces_;
  msghdr header_{};
};

uint64_t ReceivePackets(int fd) {
  uint64_t packets = 0;
  Require(recv(fd, &packets, sizeof packets, 0) == sizeof packets,
          "an acknowledgement (was a packet lost?)");
  return packets;
}

}  // namespace

double UdpFor(const Buffer& own, Control& control, const UdpEnds& ends, double seconds) {
  const Shape shape(ends.payload_bytes);
  UdpSocket socket(ends.own);
  socket.SetOption(UDP_SEGMENT, static_cast<int>(shape.packet));
  control.Send(Order{.task = Task::kUdpSink, .message_bytes = ends.payload_bytes});
  socket.ConnectTo(ends.peer, control.Receive<Report>().port);
  Burst burst(shape);
  Walk messages(own.size(), kMessageBytes);
  uint64_t sent = 0, acknowledged = 0, bytes = 0;
  const double begin = NowSeconds();
  while (NowSeconds() - begin < seconds) {
    std::byte* const message = own.data() + messages.Next();
    for (size_t done = 0; done < kMessageBytes;) {
      const size_t packets = std::min(shape.burst_packets, (kMessageBytes - done) / shape.payload);
      while (sent + packets - acknowledged > kWindowBursts * shape.burst_packets) {
        acknowledged = ReceivePackets(socket.fd());
      }
      burst.Send(socket.fd(), message + done, packets);
      sent += packets;
      done += packets * shape.payload;
    }
    bytes += kMessageBytes;
  }
  while (acknowledged < sent) acknowledged = ReceivePackets(socket.fd());
  const double rate = static_cast<double>(bytes) / (NowSeconds() - begin);
  const char end = 0;
  Require(send(socket.fd(), &end, 1, 0) == 1, "sending the end");
  control.Receive<Report>();
  return rate;
}

void UdpSink(Control& control, const Buffer& own, const std::string& address,
             size_t payload_bytes) {
  const Shape shape(payload_bytes);
  UdpSocket socket(address);
  socket.SetOption(UDP_GRO, 1);
  control.Send(Report{.port = socket.port()});
  Walk places(own.size(), kMaxBurstBytes);
  uint64_t packets = 0;
  for (;;) {
    std::byte* const place = own.data() + places.Next();
    sockaddr_in sender{};
    socklen_t sender_bytes = sizeof sender;
    const ssize_t got = recvfrom(socket.fd(), place, kMaxBurstBytes, 0,
                                 reinterpret_cast<sockaddr*>(&sender), &sender_bytes);
    Require(got > 0, "receiving a burst");
    if (got == 1) break;
    for (ssize_t done = 0; done < got; done += shape.packet, packets++) {
      auto* const packet = reinterpret_cast<unsigned char*>(place + done);
      uint32_t stated;
      std::memcpy(&stated, packet + shape.packet - kCrcBytes, kCrcBytes);
      if (Crc(0, packet, shape.packet - kCrcBytes) != stated) {
        throw Failure("a packet of the UDP reference has a wrong CRC");
      }
    }
    Require(sendto(socket.fd(), &packets, sizeof packets, 0, reinterpret_cast<sockaddr*>(&sender),
                   sender_bytes) == sizeof packets,
            "sending an acknowledgement");
  }
  control.Send(Report{.messages = packets});
}

}  // namespace rdma_bench
