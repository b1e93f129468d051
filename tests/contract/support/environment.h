// Where a contract test runs: device and addresses from the environment, so that the same binary
// judges the emulator, kernel rxe or real hardware. RDMA_TEST_DEVICE, RDMA_TEST_LOCAL,
// RDMA_TEST_REMOTE (the peer's address; absent: the local one), RDMA_TEST_PEER_ENV.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <string>

namespace rdma_contract {

// "" when the variable is not set.
std::string Variable(const char* name);

std::string DeviceName();
std::string LocalAddress();
std::string RemoteAddress();
bool TwoHosts();

// Places that a test may want beside the two ends, "" where the machine has none: skip the test
// then. An address that resolves and from which nothing ever comes (RDMA_TEST_SILENT).
std::string SilentAddress();
// One whose neighbour never answers, so that it does not resolve (RDMA_TEST_UNRESOLVED).
std::string UnresolvedAddress();
// A machine that is there and has no RDMA (RDMA_TEST_WITHOUT_RDMA).
std::string AddressWithoutRdma();

// How long a program waits so that `ms` of the devices' time pass. Their time runs as the program's
// own does, or RDMA_TEST_TIME_RATE times as fast; with a virtual clock it may jump besides.
int DevicesTime_ms(int ms);

// Applies RDMA_TEST_PEER_ENV ("NAME=VALUE;NAME=VALUE"): what makes a process live on the peer's
// machine. Has to run before the process's first call of either library.
void BecomeThePeersMachine();

// An IPv4 socket address; port in host order.
sockaddr_in SocketAddress(const std::string& dotted, uint16_t port);
// ::ffff:a.b.c.d
ibv_gid GidOf(const std::string& dotted);

}  // namespace rdma_contract
