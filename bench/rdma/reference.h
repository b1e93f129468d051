// What this machine can do without RDMA, measured between the same two processes in the same run:
// a figure is a ratio to one of these.
#pragma once

#include <vector>

#include "bench/rdma/base.h"
#include "bench/rdma/control.h"

namespace rdma_bench {

// Bytes a second. Messages lie one after another in working sets as the benchmark's do.
double MemcpyFor(const Buffer& from, const Buffer& to, size_t message_bytes, double seconds);
// A single process_vm_writev (or readv) a message, between our buffer and the server's.
double ProcessVmFor(const Buffer& own, const ServerFacts& server, bool write, size_t message_bytes,
                    double seconds);
// UDP with UDP_SEGMENT and UDP_GRO on loopback, packets of 4200 bytes with 4096 of payload, and a
// CRC of each on both sides; payload bytes a second.
double UdpFor(const Buffer& own, Control& control, double seconds);
// TCP connections a second on loopback, one at a time, each accepted and reset.
double TcpConnectFor(Control& control, double seconds);

// One-way times in microseconds, half of each round trip, sorted.
// Two processes on one processor that yield to each other:
std::vector<double> YieldPingPongFor(Control& control, double seconds);
// Two processes on two processors that wake each other by eventfds. Empty with one processor:
std::vector<double> WakePingPongFor(Control& control, double seconds);

// The server's sides.
void YieldPong(Control& control);
void WakePong(Control& control);
void UdpSink(Control& control, const Buffer& own);
void TcpAcceptAll(Control& control);

}  // namespace rdma_bench
