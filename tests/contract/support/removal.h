// One program with ids in all states that react differently to a change of their device. It has a
// listener, both ends of a connection, a bound and a resolved id, a wildcard listener and an
// unbound id. They get their device in this order.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/contract/support/side.h"

namespace rdma_contract {

struct IdsOfEveryState {
  // gtest's messages contain the result of each step that fails unexpectedly.
  void Make(Side& side, const std::string& address) {
    listener = side.CreateId();
    ASSERT_EQ(side.Bind(listener, address, 0), 0);
    ASSERT_EQ(side.Listen(listener), 0);
    port = static_cast<uint16_t>(side.PortOf(listener));
    active = Resolved(side, address);
    active_qp = side.CreateCmQp(active);
    ASSERT_GE(active_qp, 0);
    ASSERT_EQ(side.CmConnect(active, {}), 0);
    const EventCopy request = side.NextEvent();
    ASSERT_TRUE(request.found && request.event == RDMA_CM_EVENT_CONNECT_REQUEST)
        << Describe(request);
    passive = request.id;
    passive_qp = side.CreateCmQp(passive);
    ASSERT_GE(passive_qp, 0);
    ASSERT_EQ(side.Accept(passive, {}), 0);
    for (int i = 0; i < 2; ++i) {
      const EventCopy event = side.NextEvent();
      ASSERT_TRUE(event.found && event.event == RDMA_CM_EVENT_ESTABLISHED) << Describe(event);
    }
    bound = side.CreateId();
    ASSERT_EQ(side.Bind(bound, address, 0), 0);
    resolved = Resolved(side, address);
    wildcard = side.CreateId();
    ASSERT_EQ(side.Bind(wildcard, "0.0.0.0", 0), 0);
    ASSERT_EQ(side.Listen(wildcard), 0);
    unbound = side.CreateId();
  }
  // Returns the ids that have the device, in the order in which they got it.
  std::vector<int> WithDevice() const { return {listener, active, passive, bound, resolved}; }

  // Expects this event once for each id that has the device, in order, then no more. On device
  // removal the kernel destroys the ids that already have their event at the same time. The passive
  // id may therefore get DISCONNECTED from the active one before its own event.
  void ExpectOneEach(Side& side, rdma_cm_event_type type) const {
    for (const int id : WithDevice()) {
      EventCopy event = side.NextEvent();
      if (type == RDMA_CM_EVENT_DEVICE_REMOVAL && event.found && event.id == passive &&
          event.event == RDMA_CM_EVENT_DISCONNECTED) {
        event = side.NextEvent();
      }
      ASSERT_TRUE(event.found) << "no " << rdma_event_str(type) << " of id " << id;
      EXPECT_EQ(event.event, type) << Describe(event);
      EXPECT_EQ(event.id, id);
      EXPECT_EQ(event.status, 0);
      EXPECT_EQ(event.listen_id, -1);
      EXPECT_FALSE(event.has_private_data);
      EXPECT_EQ(event.private_data_len, 0);
      EXPECT_EQ(event.conn.qp_num, 0u);
      EXPECT_EQ(event.conn.responder_resources, 0);
    }
    const EventCopy more = side.NextEvent(kQuiet_ms);
    EXPECT_FALSE(more.found) << Describe(more);
  }

  int Resolved(Side& side, const std::string& address) const {
    const int id = side.CreateId();
    EXPECT_EQ(side.ResolveAddr(id, address, port), 0);
    EventCopy event = side.NextEvent();
    EXPECT_TRUE(event.found && event.event == RDMA_CM_EVENT_ADDR_RESOLVED) << Describe(event);
    EXPECT_EQ(side.ResolveRoute(id), 0);
    event = side.NextEvent();
    EXPECT_TRUE(event.found && event.event == RDMA_CM_EVENT_ROUTE_RESOLVED) << Describe(event);
    return id;
  }

  int listener = -1, active = -1, passive = -1, bound = -1, resolved = -1, wildcard = -1,
      unbound = -1, active_qp = -1, passive_qp = -1;
  uint16_t port = 0;
};

}  // namespace rdma_contract
