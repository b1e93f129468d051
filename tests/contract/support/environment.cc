#include "tests/contract/support/environment.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace rdma_contract {

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

std::string DeviceName() {
  const std::string name = Variable("RDMA_TEST_DEVICE");
  return name.empty() ? "rxe0" : name;
}
std::string LocalAddress() {
  const std::string address = Variable("RDMA_TEST_LOCAL");
  return address.empty() ? "127.0.0.1" : address;
}
std::string RemoteAddress() {
  const std::string address = Variable("RDMA_TEST_REMOTE");
  return address.empty() ? LocalAddress() : address;
}
std::string SilentAddress() { return Variable("RDMA_TEST_SILENT"); }
std::string UnresolvedAddress() { return Variable("RDMA_TEST_UNRESOLVED"); }
std::string AddressWithoutRdma() { return Variable("RDMA_TEST_WITHOUT_RDMA"); }
int DevicesTime_ms(int ms) {
  const int rate = atoi(Variable("RDMA_TEST_TIME_RATE").c_str());
  return rate > 1 ? ms / rate : ms;
}
bool TwoHosts() { return !Variable("RDMA_TEST_PEER_ENV").empty(); }

void BecomeThePeersMachine() {
  std::istringstream assignments(Variable("RDMA_TEST_PEER_ENV"));
  for (std::string one; std::getline(assignments, one, ';');) {
    const size_t equals = one.find('=');
    if (equals != std::string::npos)
      setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
  }
}

sockaddr_in SocketAddress(const std::string& dotted, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, dotted.c_str(), &address.sin_addr);
  return address;
}

ibv_gid GidOf(const std::string& dotted) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  in_addr v4{};
  inet_pton(AF_INET, dotted.c_str(), &v4);
  memcpy(gid.raw + 12, &v4, 4);
  return gid;
}

}  // namespace rdma_contract
