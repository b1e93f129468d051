// What this machine can do without RDMA, measured between the same two processes in the same run. A
// figure is given as a ratio to one of these references.
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

#include "bench/rdma/base.h"
#include "bench/rdma/control.h"

namespace rdma_bench {

// The address of a socket. `address` is an IPv4 address, `port` is in host order.
sockaddr_in SocketAddress(const std::string& address, uint16_t port);

// Returns bytes per second. Messages are consecutive in working sets, as in the benchmark.
double MemcpyFor(const Buffer& from, const Buffer& to, size_t message_bytes, double seconds);
// Uses one process_vm_writev (or readv) per message, between our buffer and the server's.
double ProcessVmFor(const Buffer& own, const ServerFacts& server, bool write, size_t message_bytes,
                    double seconds);
// Uses UDP_SEGMENT and UDP_GRO between these IPv4 addresses. Packets have 104 bytes more than their
// payload. Both sides compute a CRC of each packet. Returns payload bytes per second.
struct UdpEnds {
  std::string own, peer;
  uint32_t payload_bytes;
};
double UdpFor(const Buffer& own, Control& control, const UdpEnds& ends, double seconds);
// Returns TCP connections per second to this IPv4 address. They are made one at a time, accepted
// and reset.
double TcpConnectFor(Control& control, const std::string& peer, double seconds);

// Messages of kRateMessageBytes per second, from our buffer to the server's. The ring is in shared
// memory. Both processes copy each message, and yield when the ring is full or empty.
double RingRateFor(const Buffer& own, Control& control, double seconds);
// One send(2) and one recv(2) per message, on a Unix socket of type SEQPACKET.
double UnixSocketRateFor(const Buffer& own, Control& control, const std::string& control_path,
                         double seconds);

// The ping-pongs return one-way times in microseconds, sorted. Each is half of a round trip.
// Two processes on one processor that yield to each other.
std::vector<double> YieldPingPongFor(Control& control, double seconds);
// Two processes on two processors that wake each other by eventfds. Empty with one processor.
std::vector<double> WakePingPongFor(Control& control, double seconds);

// The server's sides of the references.
void YieldPong(Control& control);
void WakePong(Control& control);
void UdpSink(Control& control, const Buffer& own, const std::string& address, size_t payload_bytes);
void RingSink(Control& control, const Buffer& own);
void UnixSocketSink(Control& control, const Buffer& own, const std::string& control_path);
void TcpAcceptAll(Control& control, const std::string& own);

}  // namespace rdma_bench
