// A program that uses RDMA CM ids through the commands of rdma_user_cm.h, as librdmacm does. The
// program has one event channel, and functions for the steps of a connection.
#pragma once

#include <arpa/inet.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "emulator/host/testing/world.h"

namespace rdmaemu::testing {

inline sockaddr_in6 Ipv4Socket(const std::string& address, uint16_t port) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &ipv4.sin_addr) != 1) {
    throw std::runtime_error("not an IPv4 address: " + address);
  }
  sockaddr_in6 wide{};  // the size in the commands
  std::memcpy(static_cast<void*>(&wide), &ipv4, sizeof ipv4);
  return wide;
}

class CmProgram {
 public:
  explicit CmProgram(Client& client) : client(client) {
    CmChannelOut out{};
    if (client.Call(CallOp::kCmCreateChannel, Nothing{}, out) != 0) {
      throw std::runtime_error("no event channel");
    }
    channel = out.channel;
    counter = client.Counter();
  }

  static constexpr uint32_t Op(uint32_t command) {
    return static_cast<uint32_t>(CallOp::kCmCommand) + command;
  }
  template <class Command>
  Reply Do(uint32_t command, const Command& in) {
    const CmCall<Command> call{channel, 0, in};
    Reply reply = client.CallBytes(Op(command), &call, sizeof call);
    if (reply.error != 0) throw std::runtime_error("a command of connection management failed");
    return reply;
  }

  uint32_t CreateId(uint16_t port_space) {
    const uint8_t type = port_space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
    return As<rdma_ucm_create_id_resp>(
               Do(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{5, 0, port_space, type, {}}))
        .id;
  }
  uint32_t Listen(uint16_t port_space, const std::string& address, uint16_t port,
                  uint32_t backlog) {
    const uint32_t id = CreateId(port_space);
    Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket(address, port), id});
    Do(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
    return id;
  }
  // Resolves and connects. Afterwards a REQ or SIDR_REQ is in flight.
  uint32_t Connect(uint16_t port_space, const std::string& address, uint16_t port) {
    const uint32_t id = CreateId(port_space);
    Do(RDMA_USER_CM_CMD_RESOLVE_IP, rdma_ucm_resolve_ip{{}, Ipv4Socket(address, port), id, 2000});
    Event();
    Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
    Event();
    Do(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{Parameters(), id, 0, {}});
    return id;
  }
  // Answers a REQ with a REP.
  void Accept(uint32_t id) {
    Do(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{6, Parameters(), id, 0, {}});
  }
  // Answers a REP with an RTU.
  void Establish(uint32_t id) { Do(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{6, {}, id, 0, {}}); }
  void Disconnect(uint32_t id) { Do(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}); }

  // Takes the latest event and drops all events before it.
  rdma_ucm_event_resp Event() {
    rdma_ucm_event_resp event = TakeEvent();
    while (client.world.counters.value(counter) > 0) event = TakeEvent();
    return event;
  }

  // Takes the oldest event.
  rdma_ucm_event_resp Next() { return TakeEvent(); }

  static rdma_ucm_conn_param Parameters() {
    rdma_ucm_conn_param parameters{};
    parameters.qp_num = 17;
    parameters.private_data_len = 8;
    parameters.responder_resources = parameters.initiator_depth = 1;
    parameters.retry_count = parameters.rnr_retry_count = 2;
    parameters.valid = 1;
    return parameters;
  }

  Client& client;
  uint32_t channel;
  CounterId counter;

 private:
  template <class Out>
  static Out As(const Reply& reply) {
    Out out{};
    std::memcpy(&out, reply.body.data(), std::min(sizeof out, reply.body.size()));
    return out;
  }
  rdma_ucm_event_resp TakeEvent() {
    if (!client.world.counters.Take(counter)) throw std::runtime_error("no event waits");
    return As<rdma_ucm_event_resp>(Do(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}));
  }
};

}  // namespace rdmaemu::testing
