// Connects two ids step by step. Each test runs only the steps that it needs.
#pragma once

#include <gtest/gtest.h>
#include "tests/contract/support/numbers.h"
#include "tests/contract/support/side.h"

namespace rdma_contract {

class ConnectionTest : public testing::Test {
 protected:
  // ---- steps; each asserts its success

  void StartListening(rdma_port_space space = RDMA_PS_TCP, int backlog = 16) {
    listener = passive.CreateId(space);
    ASSERT_GE(listener, 0);
    ASSERT_EQ(passive.Bind(listener, passive.address(), 0), 0);
    ASSERT_EQ(passive.Listen(listener, backlog), 0);
    port = static_cast<uint16_t>(passive.PortOf(listener));
    ASSERT_NE(port, 0);
  }
  // Creates an active id, resolves its address and route, and stores its index in *id.
  void Resolve(int* id, rdma_port_space space = RDMA_PS_TCP, uint16_t to_port = 0) {
    *id = active.CreateId(space);
    ASSERT_GE(*id, 0);
    ASSERT_EQ(active.ResolveAddr(*id, passive.address(), to_port ? to_port : port), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(active.ResolveRoute(*id), 0);
    ExpectEvent(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  void Request(const ConnectSpec& spec = {}) {
    ASSERT_NO_FATAL_FAILURE(Resolve(&active_id));
    active_qp = active.CreateCmQp(active_id);
    ASSERT_GE(active_qp, 0);
    ASSERT_EQ(active.CmConnect(active_id, spec), 0);
    request = passive.NextEvent();
    ASSERT_TRUE(request.found);
    ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
    passive_id = request.id;
  }
  void AcceptRequest(const ConnectSpec& spec = {}) {
    passive_qp = passive.CreateCmQp(passive_id);
    ASSERT_GE(passive_qp, 0);
    ASSERT_EQ(passive.Accept(passive_id, spec), 0);
  }
  void Establish(const ConnectSpec& asked = {}, const ConnectSpec& answered = {}) {
    if (listener < 0) {
      ASSERT_NO_FATAL_FAILURE(StartListening());
    }
    ASSERT_NO_FATAL_FAILURE(Request(asked));
    ASSERT_NO_FATAL_FAILURE(AcceptRequest(answered));
    active_established = ExpectEvent(active, RDMA_CM_EVENT_ESTABLISHED);
    passive_established = ExpectEvent(passive, RDMA_CM_EVENT_ESTABLISHED);
  }

  static EventCopy ExpectEvent(Side& side, rdma_cm_event_type type, int status = 0,
                               int limit_ms = kPatience_ms) {
    const EventCopy event = side.NextEvent(limit_ms);
    EXPECT_TRUE(event.found) << "no " << rdma_event_str(type);
    if (event.found) {
      EXPECT_EQ(event.event, type) << Describe(event);
      EXPECT_EQ(event.status, status) << Describe(event);
    }
    return event;
  }
  static void ExpectQuiet(Side& side) {
    const EventCopy event = side.NextEvent(kQuiet_ms);
    EXPECT_FALSE(event.found) << Describe(event);
  }
  static void ExpectPrivateData(const EventCopy& event, int full, int sent, uint32_t seed = 1) {
    EXPECT_EQ(event.private_data_len, full);
    EXPECT_EQ(FirstDifference({event.private_data, static_cast<size_t>(sent)}, seed), -1);
    for (int i = sent; i < full; ++i) EXPECT_EQ(event.private_data[i], 0) << i;
  }

  Side active{Place::kThisProcess};
  Side passive{Place::kPeersMachine};
  int listener = -1, active_id = -1, passive_id = -1, active_qp = -1, passive_qp = -1;
  uint16_t port = 0;
  EventCopy request, active_established, passive_established;
};

}  // namespace rdma_contract
