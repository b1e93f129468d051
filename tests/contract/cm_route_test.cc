// Routes. A destination uses the device whose network contains it. A destination outside all
// networks is ENETUNREACH (addr4_resolve of the kernel's addr.c). Measured on rdma_rxe.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/contract/support/outside.h"
#include "tests/contract/support/removal.h"
#include "tests/contract/support/state.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

constexpr char kNowhere[] = "203.0.113.1";  // TEST-NET-3 of RFC 5737
constexpr int kTimeout_ms = 1000;

class Route : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNothingChanges(); !why.empty()) GTEST_SKIP() << why;
    second = std::make_unique<SecondDevice>();
    side = std::make_unique<Side>(Place::kLocalProcess);
  }
  void TearDown() override {
    side.reset();
    second.reset();
  }
  void ExpectEvent(rdma_cm_event_type type, int status = 0) {
    const EventCopy event = side->NextEvent();
    ASSERT_TRUE(event.found) << "no " << rdma_event_str(type);
    EXPECT_EQ(event.event, type) << Describe(event);
    EXPECT_EQ(event.status, status) << Describe(event);
  }
  std::string SourceOf(int id) {
    char text[INET_ADDRSTRLEN] = "";
    const in_addr source = side->FieldsOf(id).source.sin_addr;
    inet_ntop(AF_INET, &source, text, sizeof text);
    return text;
  }

  std::unique_ptr<SecondDevice> second;
  std::unique_ptr<Side> side;
};

TEST_F(Route, TheSourceIsTheAddressOnTheDestinationsNetwork) {
  const int near = side->CreateId(), far = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(far, second->neighbour(), 1), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(SourceOf(far), second->address());
  ASSERT_EQ(side->ResolveAddr(near, SilentAddress(), 1), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(SourceOf(near), side->address());
}

TEST_F(Route, ASourceOfTheSameNetworkResolves) {
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, second->neighbour(), 1, second->address()), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(SourceOf(id), second->address());
}

TEST_F(Route, ADestinationInNoNetworkIsUnreachable) {
  const int id = side->CreateId();
  EXPECT_EQ(side->ResolveAddr(id, kNowhere, 1), ENETUNREACH);
  EXPECT_EQ(side->ResolveAddr(id, second->neighbour(), 1), 0) << "the id may try again";
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
}

// With a source address the kernel uses the routes of its interface. It takes an IPv4 address
// without a route for a neighbour. This does not hold on loopback and on a link without ARP.
TEST_F(Route, FromASourceItIsANeighbourThatNeverAnswers) {
  if (IsIwarp() || side->address().starts_with("127.")) GTEST_SKIP() << "needs a link with ARP";
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, kNowhere, 1, side->address(), kTimeout_ms), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
}

struct EndpointOrder {
  char destination[64], source[64];  // source "": none
};
struct EndpointOutcome {
  int error;  // errno of the call that failed, 0: rdma_create_ep has made an id
  in_addr source;
};
EndpointOutcome CreateEndpointStep(State&, const EndpointOrder& order) {
  rdma_addrinfo hints{}, *info = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  sockaddr_in source = SocketAddress(*order.source == 0 ? "0.0.0.0" : order.source, 0);
  if (*order.source != 0) {
    hints.ai_src_addr = reinterpret_cast<sockaddr*>(&source);
    hints.ai_src_len = sizeof source;
  }
  if (rdma_getaddrinfo(order.destination, "7471", &hints, &info) != 0) return {errno, {}};
  rdma_cm_id* id = nullptr;
  EndpointOutcome outcome{};
  if (rdma_create_ep(&id, info, nullptr, nullptr) == 0) {
    outcome.source = reinterpret_cast<const sockaddr_in*>(rdma_get_local_addr(id))->sin_addr;
    rdma_destroy_ep(id);
  } else {
    outcome.error = errno;
  }
  rdma_freeaddrinfo(info);
  return outcome;
}

class EndpointRoute : public Route {
 protected:
  // Returns the address from which rdma_create_ep resolved the destination, or the text of errno.
  std::string Create(const std::string& destination, const std::string& source = "") {
    EndpointOrder order{};
    destination.copy(order.destination, sizeof order.destination - 1);
    source.copy(order.source, sizeof order.source - 1);
    const EndpointOutcome outcome = side->worker().Call(&CreateEndpointStep, order);
    if (outcome.error != 0) return strerror(outcome.error);
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &outcome.source, text, sizeof text);
    return text;
  }
};

TEST_F(EndpointRoute, IsThatOfResolveAddr) {
  EXPECT_EQ(Create(second->neighbour()), second->address());
  EXPECT_EQ(Create(SilentAddress()), side->address());
  EXPECT_EQ(Create(second->neighbour(), second->address()), second->address());
}

TEST_F(EndpointRoute, OfADestinationInNoNetworkDoesNotExist) {
  EXPECT_EQ(Create(kNowhere), strerror(ENETUNREACH));
  EXPECT_EQ(Create(second->neighbour()), second->address()) << "the next one is resolved";
}

TEST_F(EndpointRoute, FromASourceLeadsToANeighbourThatNeverAnswers) {
  if (IsIwarp() || side->address().starts_with("127.")) GTEST_SKIP() << "needs a link with ARP";
  EXPECT_EQ(Create(kNowhere, side->address()), strerror(ETIMEDOUT));
}

TEST_F(Route, AGroupLeavesByTheSourcesDevice) {
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, "239.1.1.1", 1, second->address()), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(SourceOf(id), second->address());
}

}  // namespace
}  // namespace rdma_contract
