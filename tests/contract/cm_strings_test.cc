// Names of events, statuses and states (rdma_event_str(3), ibv_event_type_str(3)).
#include <set>
#include <string>

#include "tests/contract/support/direct.h"

namespace rdma_contract {
namespace {

TEST(Strings, EachEventHasItsEnumeratorsName) {
  const char* const names[] = {
      "ADDR_RESOLVED",   "ADDR_ERROR",       "ROUTE_RESOLVED", "ROUTE_ERROR",
      "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR",  "UNREACHABLE",
      "REJECTED",        "ESTABLISHED",      "DISCONNECTED",   "DEVICE_REMOVAL",
      "MULTICAST_JOIN",  "MULTICAST_ERROR",  "ADDR_CHANGE",    "TIMEWAIT_EXIT"};
  for (int i = 0; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++i) {
    EXPECT_EQ(rdma_event_str(static_cast<rdma_cm_event_type>(i)),
              std::string("RDMA_CM_EVENT_") + names[i]);
  }
}

TEST(Strings, AnEventThatIsNoneIsUnknown) {
  EXPECT_STREQ(rdma_event_str(static_cast<rdma_cm_event_type>(1000)), "UNKNOWN EVENT");
  EXPECT_STREQ(rdma_event_str(static_cast<rdma_cm_event_type>(-1)), "UNKNOWN EVENT");
}

TEST(Strings, CompletionStatusesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    names.insert(ibv_wc_status_str(static_cast<ibv_wc_status>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(IBV_WC_TM_RNDV_INCOMPLETE) + 1);
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR), "RNR retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR), "remote access error");
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(1000)), "unknown");
}

TEST(Strings, AsynchronousEventsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int i = 0; i <= IBV_EVENT_GID_CHANGE; ++i) {
    names.insert(ibv_event_type_str(static_cast<ibv_event_type>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(IBV_EVENT_GID_CHANGE) + 1);
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_COMM_EST), "communication established");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_DEVICE_FATAL), "local catastrophic error");
  EXPECT_STREQ(ibv_event_type_str(static_cast<ibv_event_type>(1000)), "unknown");
}

TEST(Strings, PortStatesAndNodeTypes) {
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_DOWN), "down");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_port_state_str(static_cast<ibv_port_state>(1000)), "unknown");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_RNIC), "iWARP NIC");
}

}  // namespace
}  // namespace rdma_contract
