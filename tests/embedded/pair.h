// Two sides of a connection in one thread, each with an id, a QP and a completion queue.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <rdmaemu/testing.h>

#include <array>
#include <optional>

namespace rdmaemu_test {

using rdmaemu::testing::CompletionIs;
using rdmaemu::testing::Event;
using rdmaemu::testing::EventIs;
using rdmaemu::testing::NextCompletion;
using rdmaemu::testing::NextEvent;

inline sockaddr_in At(const char* address, uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, address, &at.sin_addr), 1);
  return at;
}
inline sockaddr* Generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

struct Side {
  // Creates the side on the host of that name; nullptr: on the thread's host.
  explicit Side(const char* host = nullptr) {
    std::optional<rdmaemu::OnHost> there;
    if (host != nullptr) there.emplace(host);
    channel = rdma_create_event_channel();
    EXPECT_NE(channel, nullptr);
  }
  ~Side() {
    if (id != nullptr) {
      if (id->qp != nullptr) rdma_destroy_qp(id);
      rdma_destroy_id(id);
    }
    if (mr != nullptr) ibv_dereg_mr(mr);
    if (cq != nullptr) ibv_destroy_cq(cq);
    if (channel != nullptr) rdma_destroy_event_channel(channel);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // Creates a QP with a CQ of its own and a registered buffer. The id has a device.
  void MakeQp() {
    cq = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {8, 8, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0) << strerror(errno);
    const int access = IBV_ACCESS_LOCAL_WRITE;
    mr = ibv_reg_mr(id->pd, buffer.data(), buffer.size(), access);
    ASSERT_NE(mr, nullptr);
  }
  int Send() {
    ibv_sge piece{reinterpret_cast<uint64_t>(buffer.data()), 64, mr->lkey};
    ibv_send_wr work{}, *bad;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    return ibv_post_send(id->qp, &work, &bad);
  }
  int Receive() {
    ibv_sge piece{reinterpret_cast<uint64_t>(buffer.data()), 64, mr->lkey};
    ibv_recv_wr work{}, *bad;
    work.sg_list = &piece;
    work.num_sge = 1;
    return ibv_post_recv(id->qp, &work, &bad);
  }

  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::array<char, 256> buffer{};
};

// A listener, and a client that connects to it.
struct Pair {
  static constexpr uint16_t kPort = 7471;

  explicit Pair(const char* server_address = "127.0.0.1", const char* server_host = nullptr,
                const char* client_host = nullptr, uint16_t server_port = kPort)
      : address(server_address),
        port(server_port),
        listener(server_host),
        server(server_host),
        client(client_host) {}

  void Listen() {
    ASSERT_EQ(rdma_create_id(listener.channel, &listener.id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in at = At(address, port);
    ASSERT_EQ(rdma_bind_addr(listener.id, Generic(at)), 0) << strerror(errno);
    ASSERT_EQ(rdma_listen(listener.id, 4), 0) << strerror(errno);
  }
  void Resolve() {
    ASSERT_EQ(rdma_create_id(client.channel, &client.id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in at = At(address, port);
    ASSERT_EQ(rdma_resolve_addr(client.id, nullptr, Generic(at), 2000), 0) << strerror(errno);
    ASSERT_THAT(NextEvent(client.channel), EventIs(RDMA_CM_EVENT_ADDR_RESOLVED, 0));
    ASSERT_EQ(rdma_resolve_route(client.id, 2000), 0);
    ASSERT_THAT(NextEvent(client.channel), EventIs(RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    ASSERT_NO_FATAL_FAILURE(client.MakeQp());
  }
  static rdma_conn_param Parameters() {
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 3;
    return parameters;
  }
  int Connect() {
    rdma_conn_param parameters = Parameters();
    return rdma_connect(client.id, &parameters);
  }
  // Takes the request. Its id becomes the server's.
  void TakeRequest() {
    Event request = NextEvent(listener.channel);
    ASSERT_THAT(request, EventIs(RDMA_CM_EVENT_CONNECT_REQUEST, 0));
    server.id = request->id;
  }
  void Accept() {
    ASSERT_NO_FATAL_FAILURE(TakeRequest());
    ASSERT_NO_FATAL_FAILURE(server.MakeQp());
    rdma_conn_param parameters = Parameters();
    ASSERT_EQ(rdma_accept(server.id, &parameters), 0) << strerror(errno);
  }
  void Establish() {
    ASSERT_NO_FATAL_FAILURE(Listen());
    ASSERT_NO_FATAL_FAILURE(Resolve());
    ASSERT_EQ(Connect(), 0);
    ASSERT_NO_FATAL_FAILURE(Accept());
    ASSERT_THAT(NextEvent(client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
    ASSERT_THAT(NextEvent(listener.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  }

  const char* address;
  uint16_t port;
  Side listener, server, client;
};

}  // namespace rdmaemu_test
