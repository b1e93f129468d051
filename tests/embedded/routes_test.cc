// A machine's routes are the networks of its devices' addresses. They decide an id's device, and
// which destinations are ENETUNREACH. The expected results were measured on Linux 6.1 with
// rdma_rxe.
#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::EmbeddedTest;

class RoutesTest : public EmbeddedTest {
 protected:
  explicit RoutesTest(const char* gateways = "") : EmbeddedTest(Options(gateways)) {
    AddHost("b", {DeviceAt("10.88.0.9")});
    channel = rdma_create_event_channel();
  }
  ~RoutesTest() override {
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }
  static rdmaemu::EmbeddingOptions Options(const char* gateways) {
    rdmaemu::EmbeddingOptions options;
    options.name = "a";
    options.devices = {DeviceAt("10.77.0.1,fd77::1"), DeviceAt("10.88.0.1,fd88::1")};
    options.devices[1].name = "rxe1";
    options.gateways = gateways;
    return options;
  }
  static sockaddr_storage Socket(const char* text) {
    sockaddr_storage storage{};
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(Pair::kPort);
    } else {
      EXPECT_EQ(inet_pton(AF_INET6, text, &v6->sin6_addr), 1) << text;
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(Pair::kPort);
    }
    return storage;
  }
  static sockaddr* Of(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }

  // Returns "ENETUNREACH", the name of another event than ADDR_RESOLVED, or "DEVICE from ADDRESS".
  std::string Resolve(const char* destination, const char* source = nullptr) {
    if (id != nullptr) rdma_destroy_id(id);
    EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), 0);
    sockaddr_storage from = Socket(source != nullptr ? source : "0.0.0.0"),
                     to = Socket(destination);
    if (rdma_resolve_addr(id, source != nullptr ? Of(from) : nullptr, Of(to), 2000) != 0) {
      return errno == ENETUNREACH ? "ENETUNREACH" : strerror(errno);
    }
    const Event event = NextEvent(channel);
    if (!event || event->event != RDMA_CM_EVENT_ADDR_RESOLVED) {
      return rdmaemu::testing::Describe(event);
    }
    return ibv_get_device_name(id->verbs->device) + std::string(" from ") + Source();
  }
  std::string Source() const {
    char text[INET6_ADDRSTRLEN] = "";
    const sockaddr* own = rdma_get_local_addr(id);
    if (own->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(own)->sin_addr, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(own)->sin6_addr, text,
                sizeof text);
    }
    return text;
  }
  // Returns the errno of rdma_create_ep for the result of rdma_getaddrinfo; 0: it created an id.
  int CreateEndpoint(const char* destination, const char* source = nullptr) {
    rdma_addrinfo hints{}, *info = nullptr;
    hints.ai_port_space = RDMA_PS_TCP;
    sockaddr_storage from = Socket(source != nullptr ? source : "0.0.0.0");
    if (source != nullptr) {
      hints.ai_src_addr = Of(from);
      hints.ai_src_len = sizeof(sockaddr_in);
    }
    if (rdma_getaddrinfo(destination, "7471", &hints, &info) != 0) return errno;
    if (id != nullptr) rdma_destroy_id(id);
    id = nullptr;
    const int error = rdma_create_ep(&id, info, nullptr, nullptr) == 0 ? 0 : errno;
    rdma_freeaddrinfo(info);
    return error;
  }

  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
};

TEST_F(RoutesTest, TheDestinationsNetworkChoosesTheDevice) {
  EXPECT_EQ(Resolve("10.77.0.9"), "rxe0 from 10.77.0.1");
  EXPECT_EQ(Resolve("10.88.0.9"), "rxe1 from 10.88.0.1");
  EXPECT_EQ(Resolve("fd88::9"), "rxe1 from fd88::1");
}

TEST_F(RoutesTest, ADestinationInNoNetworkIsUnreachable) {
  EXPECT_EQ(Resolve("10.99.0.9"), "ENETUNREACH");
  EXPECT_EQ(Resolve("fd99::9"), "ENETUNREACH");
  EXPECT_EQ(Resolve("255.255.255.255"), "ENETUNREACH");
}

TEST_F(RoutesTest, ASourceChoosesTheDeviceAndOnlyItsRoutes) {
  EXPECT_EQ(Resolve("10.88.0.9", "10.88.0.1"), "rxe1 from 10.88.0.1");
  EXPECT_EQ(Resolve("10.88.0.9", "10.77.0.1"), "RDMA_CM_EVENT_ADDR_ERROR, status -110");
  EXPECT_EQ(Resolve("fd88::9", "fd77::1"), "ENETUNREACH");
  EXPECT_EQ(Resolve("10.88.0.9", "192.0.2.55"), strerror(EADDRNOTAVAIL));
}

TEST_F(RoutesTest, AnIdThatFailedResolvesAgain) {
  ASSERT_EQ(Resolve("10.99.0.9"), "ENETUNREACH");
  sockaddr_storage to = Socket("10.88.0.9");
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, Of(to), 2000), 0);
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_ADDR_RESOLVED, 0));
  EXPECT_EQ(Source(), "10.88.0.1");
}

TEST_F(RoutesTest, EndpointsTakeTheSameRoutes) {
  EXPECT_EQ(CreateEndpoint("10.88.0.9"), 0);
  EXPECT_EQ(Source(), "10.88.0.1");
  EXPECT_EQ(CreateEndpoint("10.99.0.9"), ENETUNREACH);
  EXPECT_EQ(CreateEndpoint("10.88.0.9", "10.88.0.1"), 0);
  EXPECT_EQ(CreateEndpoint("10.88.0.9", "10.77.0.1"), ETIMEDOUT);
}

TEST_F(RoutesTest, AConnectionLeavesByItsNetworksDevice) {
  Pair pair("10.88.0.9", "b", "a");
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  EXPECT_STREQ(ibv_get_device_name(pair.client.id->verbs->device), "rxe1");
}

TEST_F(RoutesTest, AGroupIsJoinedOnTheDeviceOfTheBoundAddress) {
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), 0);
  sockaddr_storage own = Socket("10.88.0.1"), group = Socket("239.1.1.1");
  ASSERT_EQ(rdma_bind_addr(id, Of(own)), 0);
  ASSERT_EQ(rdma_join_multicast(id, Of(group), nullptr), 0);
  const Event joined = NextEvent(channel);
  ASSERT_THAT(joined, EventIs(RDMA_CM_EVENT_MULTICAST_JOIN, 0));
  EXPECT_STREQ(ibv_get_device_name(id->verbs->device), "rxe1");
}

TEST_F(RoutesTest, AGroupIsResolvedByTheFirstDevice) {
  EXPECT_EQ(Resolve("239.1.1.1"), "rxe0 from 10.77.0.1");
  EXPECT_EQ(Resolve("239.1.1.1", "10.88.0.1"), "rxe1 from 10.88.0.1");
}

TEST_F(RoutesTest, AnAddressThatIsAddedIsARoute) {
  ASSERT_EQ(Resolve("10.99.7.9"), "ENETUNREACH");
  ASSERT_EQ(rdmaemu_address_add("rxe1", "10.99.0.1/16"), 0) << rdmaemu_last_error();
  EXPECT_EQ(Resolve("10.99.7.9"), "rxe1 from 10.99.0.1");
  ASSERT_EQ(rdmaemu_address_remove("10.99.0.1"), 0);
  EXPECT_EQ(Resolve("10.99.7.9"), "ENETUNREACH");
}

// The passive side has no route for its answer, so it drops the request (cm_init_av_for_response).
TEST_F(RoutesTest, ARequestFromNowhereIsNotAnswered) {
  AddHost("c", {DeviceAt("10.66.0.3/8")});
  Pair pair("10.88.0.9", "b", "c");
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
}

class GatewayTest : public RoutesTest {
 protected:
  GatewayTest() : RoutesTest("10.88.0.254,fd77::fe") {}
};

TEST_F(GatewayTest, LeadsToWhatIsInNoNetwork) {
  EXPECT_EQ(Resolve("203.0.113.1"), "rxe1 from 10.88.0.1");
  EXPECT_EQ(Resolve("2001:db8::1"), "rxe0 from fd77::1");
  EXPECT_EQ(Resolve("10.77.0.9"), "rxe0 from 10.77.0.1");
  EXPECT_EQ(CreateEndpoint("203.0.113.1"), 0);
}

TEST_F(GatewayTest, IsOfOneDevice) {
  EXPECT_EQ(Resolve("203.0.113.1", "10.88.0.1"), "rxe1 from 10.88.0.1");
  EXPECT_EQ(Resolve("203.0.113.1", "10.77.0.1"), "RDMA_CM_EVENT_ADDR_ERROR, status -110");
}

TEST_F(GatewayTest, TakesGroupsToItsDevice) {
  EXPECT_EQ(Resolve("239.1.1.1"), "rxe1 from 10.88.0.1");
}

TEST(GatewayOption, IsANeighbourOfTheHost) {
  for (const char* wrong : {"203.0.113.1", "10.77.0.1", "239.1.1.1", "nowhere"}) {
    rdmaemu_device device{.name = "rxe0", .profile = nullptr, .addresses = "10.77.0.1"};
    rdmaemu_options options{};
    options.size = sizeof options;
    options.devices = &device;
    options.device_count = 1;
    options.gateways = wrong;
    EXPECT_EQ(rdmaemu_open(&options), -EINVAL) << wrong;
    EXPECT_NE(std::string(rdmaemu_last_error()).find(wrong), std::string::npos)
        << rdmaemu_last_error();
  }
}

}  // namespace
}  // namespace rdmaemu_test
