// The synchronous half of rdma_cm: ids without a channel, rdma_getaddrinfo, rdma_create_ep,
// rdma_get_request, and the inline calls of rdma_verbs.h.
#include <gtest/gtest.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>

#include "tests/contract/support/connection.h"
#include "tests/contract/support/state.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

constexpr size_t kMessage = 64;

struct Endpoint {
  char address[64];
  uint16_t port;
  uint8_t* message;
};
struct Outcome {
  int error = 0;
  const char* at = nullptr;  // a literal, at the same address in every process of the test
  int result = 0;
};
#define STEP(call)                                    \
  do {                                                \
    if ((call) != 0) return Outcome{errno, #call, 0}; \
  } while (false)

ibv_qp_init_attr Queues() {
  ibv_qp_init_attr init{};
  init.cap = {4, 4, 1, 1, 16};
  init.sq_sig_all = 1;
  return init;
}

rdma_addrinfo* InfoOf(const Endpoint& endpoint, int flags) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  const std::string port = std::to_string(endpoint.port);
  return rdma_getaddrinfo(endpoint.address, port.c_str(), &hints, &info) == 0 ? info : nullptr;
}

// Creates a listening endpoint. `result` is its port.
Outcome ListenStep(State& state, const Endpoint& endpoint) {
  rdma_addrinfo* info = InfoOf(endpoint, RAI_PASSIVE);
  if (info == nullptr) return {errno, "rdma_getaddrinfo", 0};
  ibv_qp_init_attr init = Queues();
  rdma_cm_id* listener = nullptr;
  STEP(rdma_create_ep(&listener, info, nullptr, &init));
  rdma_freeaddrinfo(info);
  state.ids.push_back(listener);
  STEP(rdma_listen(listener, 4));
  return {0, nullptr, ntohs(rdma_get_src_port(listener))};
}

// Takes one request, echoes one message, and disconnects after the peer.
Outcome ServeStep(State& state, const Endpoint& endpoint) {
  rdma_cm_id* id = nullptr;
  STEP(rdma_get_request(state.ids[0], &id));
  if (id->qp == nullptr || id->event == nullptr) return {0, "the request has no QP or no event", 1};
  ibv_mr* mr = rdma_reg_msgs(id, endpoint.message, kMessage);
  if (mr == nullptr) return {errno, "rdma_reg_msgs", 0};
  STEP(rdma_post_recv(id, nullptr, endpoint.message, kMessage, mr));
  STEP(rdma_accept(id, nullptr));
  ibv_wc wc{};
  if (rdma_get_recv_comp(id, &wc) != 1) return {errno, "rdma_get_recv_comp", 0};
  if (wc.status != IBV_WC_SUCCESS) return {0, "the receive failed", wc.status};
  STEP(rdma_post_send(id, nullptr, endpoint.message, kMessage, mr, 0));
  if (rdma_get_send_comp(id, &wc) != 1) return {errno, "rdma_get_send_comp", 0};
  STEP(rdma_disconnect(id));
  rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
  return {0, nullptr, wc.status};
}

Outcome ConnectStep(State&, const Endpoint& endpoint) {
  rdma_addrinfo* info = InfoOf(endpoint, 0);
  if (info == nullptr) return {errno, "rdma_getaddrinfo", 0};
  ibv_qp_init_attr init = Queues();
  rdma_cm_id* id = nullptr;
  STEP(rdma_create_ep(&id, info, nullptr, &init));
  rdma_freeaddrinfo(info);
  ibv_mr* mr = rdma_reg_msgs(id, endpoint.message, kMessage);
  if (mr == nullptr) return {errno, "rdma_reg_msgs", 0};
  ibv_mr* answer = rdma_reg_msgs(id, endpoint.message + kMessage, kMessage);
  if (answer == nullptr) return {errno, "rdma_reg_msgs", 0};
  STEP(rdma_post_recv(id, nullptr, endpoint.message + kMessage, kMessage, answer));
  STEP(rdma_connect(id, nullptr));
  if (id->event == nullptr || id->event->event != RDMA_CM_EVENT_ESTABLISHED)
    return {0, "no ESTABLISHED in id->event", 1};
  STEP(rdma_post_send(id, nullptr, endpoint.message, kMessage, mr, IBV_SEND_SIGNALED));
  ibv_wc wc{};
  if (rdma_get_send_comp(id, &wc) != 1) return {errno, "rdma_get_send_comp", 0};
  if (rdma_get_recv_comp(id, &wc) != 1) return {errno, "rdma_get_recv_comp", 0};
  STEP(rdma_disconnect(id));
  rdma_dereg_mr(mr);
  rdma_dereg_mr(answer);
  rdma_destroy_ep(id);
  return {0, nullptr, wc.status};
}

class Endpoints : public testing::Test {
 protected:
  Endpoint At(const std::string& address, uint16_t port, const Buffer& buffer) {
    Endpoint endpoint{{}, port, buffer.data};
    strncpy(endpoint.address, address.c_str(), sizeof endpoint.address - 1);
    return endpoint;
  }
  static void ExpectGood(const Outcome& outcome) {
    EXPECT_EQ(outcome.at, nullptr)
        << outcome.at << ": " << strerror(outcome.error) << ", " << outcome.result;
  }
  Side active{Place::kThisProcess};
  Side passive{Place::kPeersMachine};
};

TEST_F(Endpoints, EchoAMessageWithoutAnEventLoop) {
  const Buffer there = Allocate(kMessage), here = Allocate(2 * kMessage);
  FillPattern(here.bytes().first(kMessage), 5);
  const Outcome listening = passive.worker().Call(&ListenStep, At(passive.address(), 0, there));
  ASSERT_NO_FATAL_FAILURE(ExpectGood(listening));
  const auto port = static_cast<uint16_t>(listening.result);
  ASSERT_NE(port, 0);
  passive.worker().Begin(&ServeStep, At(passive.address(), port, there));
  ExpectGood(active.worker().Call(&ConnectStep, At(passive.address(), port, here)));
  ExpectGood(passive.worker().Finish<Outcome>());
  EXPECT_EQ(FirstDifference(there.bytes(), 5), -1);
  EXPECT_EQ(FirstDifference(here.bytes().subspan(kMessage), 5), -1);
}

TEST_F(Endpoints, ConnectingToNobodyIsRefused) {
  const Buffer here = Allocate(2 * kMessage);
  const Outcome outcome = active.worker().Call(&ConnectStep, At(passive.address(), 9, here));
  ASSERT_NE(outcome.at, nullptr);
  EXPECT_EQ(outcome.error, ECONNREFUSED) << outcome.at;
}

TEST_F(Endpoints, APortInUseIsRefused) {
  const Buffer none = Allocate(8);
  const Outcome first = passive.worker().Call(&ListenStep, At(passive.address(), 0, none));
  ASSERT_NO_FATAL_FAILURE(ExpectGood(first));
  const Outcome second = passive.worker().Call(
      &ListenStep, At(passive.address(), static_cast<uint16_t>(first.result), none));
  ASSERT_NE(second.at, nullptr);
  EXPECT_EQ(second.error, EADDRINUSE) << second.at;
}

TEST(SynchronousIds, ResolveAtOnceAndKeepTheLastEvent) {
  if (IsIwarp()) GTEST_SKIP() << kResets;
  Side side(Place::kThisProcess);
  const int id = side.CreateSyncId();
  ASSERT_GE(id, 0);
  EXPECT_TRUE(side.FieldsOf(id).has_channel);
  ASSERT_EQ(side.ResolveAddr(id, LocalAddress(), 1), 0);
  EXPECT_EQ(side.FieldsOf(id).event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_TRUE(side.FieldsOf(id).has_verbs);
  ASSERT_EQ(side.ResolveRoute(id), 0);
  EXPECT_EQ(side.FieldsOf(id).event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_GE(side.CreateCmQp(id), 0);
  EXPECT_EQ(side.CmConnect(id, {}), ECONNREFUSED);
  EXPECT_EQ(side.FieldsOf(id).event, RDMA_CM_EVENT_REJECTED);
}

TEST(SynchronousIds, AnAsynchronousListenerHasNoRequestsToGet) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  rdma_cm_id *id = nullptr, *got = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_listen(id, 1), 0);
  EXPECT_EQ(rdma_get_request(id, &got), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

TEST(AddrInfo, OfAPassiveSideHasASourceOfAnActiveOneADestination) {
  rdma_addrinfo hints{}, *info = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_PASSIVE;
  ASSERT_EQ(rdma_getaddrinfo(LocalAddress().c_str(), "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(info->ai_dst_len, 0u);
  EXPECT_EQ(info->ai_port_space, RDMA_PS_TCP);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  rdma_freeaddrinfo(info);
  hints.ai_flags = 0;
  ASSERT_EQ(rdma_getaddrinfo(LocalAddress().c_str(), "7399", &hints, &info), 0);
  EXPECT_EQ(info->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port), 7399);
  rdma_freeaddrinfo(info);
  hints.ai_flags = RAI_NUMERICHOST;
  EXPECT_NE(rdma_getaddrinfo("not a number", "7399", &hints, &info), 0);
}

}  // namespace
}  // namespace rdma_contract
