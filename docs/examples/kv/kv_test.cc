// Tests of the server and its client under faults, on an emulated device inside this test. Time is
// virtual: minutes on a network take milliseconds here.
#include <gmock/gmock.h>
#include <rdmaemu/testing.h>

#include <memory>
#include <string>
#include <thread>

#include "client.h"
#include "server.h"

namespace {

using rdmaemu::Fault;
using rdmaemu::testing::WithFault;
using testing::HasSubstr;

class KvTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  KvTest() : server(0), thread([this] { server.Run(); }) {}
  ~KvTest() override {
    server.Stop();
    thread.join();
  }

  std::unique_ptr<kv::Client> Connect(const char* address = "127.0.0.1") {
    return std::make_unique<kv::Client>(address, server.port());
  }
  // Returns why the client could not connect, "" when it connected.
  std::string WhyNot(const char* address = "127.0.0.1") {
    try {
      Connect(address);
      return "";
    } catch (const kv::RdmaError& error) {
      return error.what();
    }
  }
  void AwaitConnections(size_t count) {
    while (server.connections() != count) std::this_thread::yield();
  }

  kv::Server server;
  std::thread thread;
};

TEST_F(KvTest, KeepsWhatIsPut) {
  auto client = Connect();
  EXPECT_EQ(client->Get("name"), std::nullopt);
  client->Put("name", "value");
  client->Put("long", std::string(kv::kMaxValueBytes, 'x'));
  EXPECT_EQ(client->Get("name"), "value");
  EXPECT_EQ(client->Get("long"), std::string(kv::kMaxValueBytes, 'x'));
  EXPECT_TRUE(client->Delete("name"));
  EXPECT_FALSE(client->Delete("name"));
}

TEST_F(KvTest, ARejectedClientIsToldAndTheNextIsServed) {
  WithFault("at = \"cm.req\", first = 1, reject = 28, private_data = \"try later\"", [&] {
    EXPECT_THAT(WhyNot(), HasSubstr("RDMA_CM_EVENT_REJECTED (28)"));
    Connect()->Put("a", "1");
  });
}

TEST_F(KvTest, LostRequestsAreRepeated) {
  WithFault("at = \"cm.req\", first = 3, drop = true", [&] { Connect()->Put("a", "1"); });
}

TEST_F(KvTest, ALostReplyIsRepeatedAndMakesOneConnection) {
  WithFault("at = \"cm.rep\", first = 2, drop = true", [&] {
    auto client = Connect();
    client->Put("a", "1");
    EXPECT_EQ(server.connections(), 1u);
  });
}

// The first requests arrive before ESTABLISHED. A server must not wait for ESTABLISHED before it
// answers.
TEST_F(KvTest, RequestsAreServedBeforeALateRtu) {
  WithFault("at = \"cm.rtu\", first = 1, drop = true", [&] {
    auto client = Connect();
    client->Put("a", "1");
    EXPECT_EQ(client->Get("a"), "1");
  });
}

TEST_F(KvTest, ASilentServerIsReportedAfterItsTime) {
  const auto before = host.now();
  WithFault("at = \"cm.req\", drop = true",
            [&] { EXPECT_THAT(WhyNot(), HasSubstr("RDMA_CM_EVENT_UNREACHABLE (-110)")); });
  EXPECT_GT(host.now() - before, std::chrono::minutes(1));
}

TEST_F(KvTest, AnAddressThatCannotBeResolvedIsReported) {
  WithFault("at = \"event.addr_resolved\", event = \"addr_error\", status = -19",
            [&] { EXPECT_THAT(WhyNot(), HasSubstr("RDMA_CM_EVENT_ADDR_ERROR (-19)")); });
}

TEST_F(KvTest, AServerOutOfMemoryRefusesOneClientAndServesTheOthers) {
  auto first = Connect();
  first->Put("a", "1");
  // The client registers its memory first, then the server.
  WithFault("at = \"call.reg_mr\", nth = 2, errno = \"ENOMEM\"",
            [&] { EXPECT_THAT(WhyNot(), HasSubstr("RDMA_CM_EVENT_REJECTED")); });
  EXPECT_EQ(first->Get("a"), "1");
  EXPECT_EQ(Connect()->Get("a"), "1");
}

TEST_F(KvTest, AClientWithoutResourcesFailsAndLeavesNothing) {
  for (const char* call : {"create_channel", "create_cq", "reg_mr", "create_qp"}) {
    WithFault("at = \"call." + std::string(call) + "\", first = 1, errno = \"ENOMEM\"",
              [&] { EXPECT_THAT(WhyNot(), HasSubstr("Cannot allocate memory")) << call; });
  }
  Connect()->Put("a", "1");
}

TEST_F(KvTest, AClientThatGoesIsForgotten) {
  for (int i = 0; i < 3; i++) {
    auto client = Connect();
    client->Put("a", "1");
    EXPECT_EQ(server.connections(), 1u);
    client.reset();
    AwaitConnections(0);
  }
}

TEST_F(KvTest, AStrangerIsTurnedAway) {
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(server.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
  using rdmaemu::testing::EventIs;
  using rdmaemu::testing::NextEvent;
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_ADDR_RESOLVED));
  ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_ROUTE_RESOLVED));
  rdma_conn_param parameters = {};
  parameters.qp_num = 77;
  ASSERT_EQ(rdma_connect(id, &parameters), 0);
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

TEST_F(KvTest, ADeviceThatIsRemovedEndsItsConnectionsAndReturns) {
  auto client = Connect();
  client->Put("a", "1");
  ASSERT_EQ(rdmaemu_device_remove("rxe0"), 0) << rdmaemu_last_error();
  AwaitConnections(0);
  EXPECT_NE(WhyNot(), "");
  client.reset();
  ASSERT_EQ(rdmaemu_device_add("rxe0", nullptr), 0) << rdmaemu_last_error();
  EXPECT_EQ(Connect()->Get("a"), "1");
}

TEST_F(KvTest, APulledCableEndsARequestAndNotTheServer) {
  auto client = Connect();
  client->Put("a", "1");
  ASSERT_EQ(rdmaemu_port_set("rxe0", 0), 0) << rdmaemu_last_error();
  EXPECT_THROW(client->Get("a"), kv::RdmaError);
  client.reset();
  ASSERT_EQ(rdmaemu_port_set("rxe0", 1), 0) << rdmaemu_last_error();
  EXPECT_EQ(Connect()->Get("a"), "1");
}

// The server runs on a machine of its own.
class KvMachinesTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  static constexpr char kServerAddress[] = "127.0.0.2";

  KvMachinesTest() {
    AddHost("server", {{"rxe0", "rxe", kServerAddress}});
    server = On("server", [] { return std::make_unique<kv::Server>(0); });
    thread = std::thread([this] {
      const rdmaemu::OnHost there("server");
      try {
        server->Run();
      } catch (const kv::RdmaError& error) {
        end = error.what();
      }
    });
  }
  ~KvMachinesTest() override {
    server->Stop();
    if (thread.joinable()) thread.join();
  }

  std::unique_ptr<kv::Server> server;
  std::string end;  // why Run returned, "" while it runs
  std::thread thread;
};

// The client gets no message about the crash. Its retries detect the crash.
TEST_F(KvMachinesTest, ACrashOfTheServersMachineEndsARequest) {
  kv::Client client(kServerAddress, server->port());
  client.Put("a", "1");
  EXPECT_EQ(client.Get("a"), "1");
  host.Remove("server");
  EXPECT_THAT([&] { client.Get("a"); },
              testing::ThrowsMessage<kv::RdmaError>(HasSubstr("transport retry counter exceeded")));
  thread.join();
  EXPECT_THAT(end, HasSubstr("Input/output error")) << "a server without a machine does not go on";
}

}  // namespace
