// What this machine can do without RDMA, measured between the same two processes in the same run. A
// figure is given as a ratio to one of these references.
#pragma once

#include <vector>

#include "bench/rdma/base.h"
#include "bench/rdma/control.h"

namespace rdma_bench {

// Returns bytes per second. Messages are consecutive in working sets, as in the benchmark.
double MemcpyFor(const Buffer& from, const Buffer& to, size_t message_bytes, double seconds);
// Uses one process_vm_writev (or readv) per message, between our buffer and the server's.
double ProcessVmFor(const Buffer& own, const ServerFacts& server, bool write, size_t message_bytes,
                    double seconds);
// Uses UDP_SEGMENT and UDP_GRO on loopback. Packets have 4200 bytes, of which 4096 are payload.
// Both sides compute a CRC of each packet. Returns payload bytes per second.
double UdpFor(const Buffer& own, Control& control, double seconds);
// Returns TCP connections per second on loopback. They are made one at a time, accepted and reset.
double TcpConnectFor(Control& control, double seconds);

// The ping-pongs return one-way times in microseconds, sorted. Each is half of a round trip.
// Two processes on one processor that yield to each other.
std::vector<double> YieldPingPongFor(Control& control, double seconds);
// Two processes on two processors that wake each other by eventfds. Empty with one processor.
std::vector<double> WakePingPongFor(Control& control, double seconds);

// The server's sides of the references.
void YieldPong(Control& control);
void WakePong(Control& control);
void UdpSink(Control& control, const Buffer& own);
void TcpAcceptAll(Control& control);

}  // namespace rdma_bench
