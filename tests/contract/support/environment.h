// The device and addresses of a contract test, from the environment. The same binary thus tests the
// emulator, kernel rxe or real hardware. The variables are RDMA_TEST_DEVICE, RDMA_TEST_LOCAL,
// RDMA_TEST_REMOTE (the peer's address; by default the local one) and RDMA_TEST_PEER_ENV.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <string>

namespace rdma_contract {

// Returns "" when the variable is not set.
std::string Variable(const char* name);

std::string DeviceName();
std::string LocalAddress();
std::string RemoteAddress();
bool TwoHosts();

// Further addresses that a test may need. Each returns "" when the machine has no such address; the
// test is then skipped. SilentAddress resolves but never answers (RDMA_TEST_SILENT).
std::string SilentAddress();
// An address whose neighbour never answers, so that it does not resolve (RDMA_TEST_UNRESOLVED).
std::string UnresolvedAddress();
// An address of a running machine without RDMA (RDMA_TEST_WITHOUT_RDMA).
std::string AddressWithoutRdma();

// Returns how long, in ms, a program waits until `ms` of the devices' time have passed. The
// devices' time runs at the program's rate, or RDMA_TEST_TIME_RATE times as fast. With a virtual
// clock the devices' time may also jump.
int DevicesTime_ms(int ms);

// Applies RDMA_TEST_PEER_ENV ("NAME=VALUE;NAME=VALUE"), which moves a process to the peer's
// machine. Must run before the process's first call of either library.
void BecomeThePeersMachine();

// Returns an IPv4 socket address; port in host order.
sockaddr_in SocketAddress(const std::string& dotted, uint16_t port);
// Returns ::ffff:a.b.c.d.
ibv_gid GidOf(const std::string& dotted);

}  // namespace rdma_contract
