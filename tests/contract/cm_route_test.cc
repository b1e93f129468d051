// Routes. A destination uses the device whose network contains it. A destination outside all
// networks is ENETUNREACH (addr4_resolve of the kernel's addr.c). Measured on rdma_rxe.
#include <arpa/inet.h>

#include <cerrno>
#include <memory>

#include "tests/contract/support/outside.h"
#include "tests/contract/support/removal.h"
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

TEST_F(Route, AGroupLeavesByTheSourcesDevice) {
  const int id = side->CreateId();
  ASSERT_EQ(side->ResolveAddr(id, "239.1.1.1", 1, second->address()), 0);
  ExpectEvent(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(SourceOf(id), second->address());
}

}  // namespace
}  // namespace rdma_contract
