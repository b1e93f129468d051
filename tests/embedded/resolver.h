// The smallest client: an id that resolves an address.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <stdexcept>
#include <string>

namespace rdmaemu_test {

struct Resolver {
  // Throws std::runtime_error when a call fails.
  explicit Resolver(const std::string& address) : channel(rdma_create_event_channel()) {
    if (channel == nullptr) throw std::runtime_error("rdma_create_event_channel failed");
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(7471);
    constexpr int kTimeout_ms = 2000;
    if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) == 1 &&
        rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 &&
        rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kTimeout_ms) == 0) {
      return;
    }
    Close();
    throw std::runtime_error("the address cannot be resolved");
  }
  ~Resolver() { Close(); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  rdma_event_channel* channel;
  rdma_cm_id* id = nullptr;

 private:
  void Close() {
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }
};

}  // namespace rdmaemu_test
