// Tests of the service under faults of its network, its devices and its peers. The service is the
// one that ships and has no code for tests. Each machine is a host inside this test. The program's
// own timers run in the hosts' virtual time: a minute takes milliseconds and always has the same
// length.
#include <gmock/gmock.h>
#include <rdmaemu/testing.h>
#include <sys/eventfd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client.h"
#include "server.h"

namespace {

using rdmaemu::Fault;
using rdmaemu::testing::WithFault;
using shout::Client;
using shout::Server;
using State = shout::Client::State;
using Outcome = shout::Client::Outcome;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr char kClientAddress[] = "10.0.0.1", kServerAddress[] = "10.0.0.2";
constexpr uint16_t kPort = 7471;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif
constexpr auto kLongest = 10min;  // of the program's time, after which a waiting test fails

std::string Shout(std::string_view text) { return std::string(text) + "!"; }

rdmaemu::EmbeddingOptions ClientMachine() {
  rdmaemu::EmbeddingOptions options;
  options.name = "client";
  options.devices = {{"rxe0", "rxe", kClientAddress}};
  options.program_time = true;
  return options;
}

struct Answer {
  Outcome outcome;
  std::string text;
};
bool operator==(const Answer& a, const Answer& b) {
  return a.outcome == b.outcome && a.text == b.text;
}
void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "outcome " << static_cast<int>(answer.outcome) << " \"" << answer.text << "\"";
}
Answer Answered(const std::string& text) { return {Outcome::kAnswered, text}; }
const Answer kTimedOut = {Outcome::kTimedOut, ""}, kLost = {Outcome::kLost, ""};

// A machine for the server and one for the client. One thread runs the loop of both programs.
class ServiceTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  ServiceTest() : EmbeddedTest(ClientMachine()) {
    AddServerMachine();
    StartServer();
  }

  void AddServerMachine() { AddHost("server", {{"rxe0", "rxe", kServerAddress}}); }
  void StartServer() {
    server = On("server", [&] { return std::make_unique<Server>(context, kPort, Shout); });
  }
  void StartClient(const char* address = kServerAddress) {
    client = std::make_unique<Client>(context, address, kPort);
  }
  void StartConnectedClient() {
    StartClient();
    RunUntil(State::kConnected);
  }

  // Runs the program and records each time at which the client begins to connect.
  void RunUntil(const std::function<bool()>& is_done) {
    const auto end = host.now() + kLongest;
    while (!is_done()) {
      if (host.now() > end) FAIL() << "the program waits for ever; " << client->reason();
      const State before = client == nullptr ? State::kStopped : client->state();
      context.loop.RunOnce();
      if (client == nullptr || client->state() == before) continue;
      if (client->state() == State::kConnected) connections++;
      if (before == State::kPausing && client->state() != State::kGivenUp)
        attempts.push_back(Now());
    }
  }
  void RunUntil(State state) {
    RunUntil([&] { return client->state() == state; });
  }
  void RunFor(milliseconds time) {
    bool is_over = false;
    shout::Timer timer(context.loop, [&] { is_over = true; });
    timer.Set(time);
    RunUntil([&] { return is_over; });
  }
  milliseconds Now() const { return std::chrono::duration_cast<milliseconds>(host.now()); }

  Answer Ask(const std::string& text) {
    std::optional<Answer> answer;
    const bool is_asked = client->Ask(text, [&](Outcome outcome, std::string_view got) {
      answer = Answer{outcome, std::string(got)};
    });
    if (!is_asked) return {Outcome::kLost, "no connection"};
    RunUntil([&] { return answer.has_value(); });
    return answer.value_or(kLost);
  }

  shout::Context context;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  int connections = 0;                 // how often the client connected
  std::vector<milliseconds> attempts;  // when each attempt but the first began
};

TEST_F(ServiceTest, AnswersRequests) {
  StartConnectedClient();
  for (int i = 0; i < 100; i++) {
    EXPECT_EQ(Ask(std::to_string(i)), Answered(std::to_string(i) + "!"));
  }
  EXPECT_EQ(Now(), 0ms) << "nothing waited";
}

TEST_F(ServiceTest, HeartbeatsKeepAnIdleConnectionForAnHour) {
  StartConnectedClient();
  for (int minute = 0; minute < 60; minute++) RunFor(1min);
  EXPECT_EQ(server->connections(), 1u);
  EXPECT_EQ(Ask("still there"), Answered("still there!"));
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, StopsAfterTheOutstandingAnswers) {
  StartConnectedClient();
  int answers = 0;
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(client->Ask(
        "a", [&](Outcome outcome, std::string_view) { answers += outcome == Outcome::kAnswered; }));
  }
  client->Stop();
  RunUntil(State::kStopped);
  EXPECT_EQ(answers, 10);
  RunUntil([&] { return server->connections() == 0; });
  server->Stop();
  EXPECT_TRUE(server->stopped());
}

// ---- connecting

TEST_F(ServiceTest, ALostConnectionRequestIsRepeatedWithinTheAttempt) {
  WithFault("host = \"server\", at = \"cm.req\", first = 1, drop = true",
            [&] { StartConnectedClient(); });
  EXPECT_EQ(Ask("a"), Answered("a!"));
  EXPECT_THAT(attempts, ElementsAre());
}

TEST_F(ServiceTest, ALostReplyIsRepeatedAndMakesOneConnection) {
  WithFault("at = \"cm.rep\", first = 1, drop = true", [&] { StartConnectedClient(); });
  EXPECT_EQ(Ask("a"), Answered("a!"));
  EXPECT_EQ(server->connections(), 1u);
}

TEST_F(ServiceTest, RequestsAreAnsweredBeforeALateRtu) {
  WithFault("host = \"server\", at = \"cm.rtu\", first = 1, drop = true", [&] {
    StartConnectedClient();
    EXPECT_EQ(Ask("a"), Answered("a!"));
  });
}

TEST_F(ServiceTest, ARejectionIsReportedAndFollowedByAnAttemptAfterASecond) {
  WithFault("host = \"server\", at = \"cm.req\", first = 1, reject = 28, private_data = \"busy\"",
            [&] { StartConnectedClient(); });
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_REJECTED 28 busy");
  EXPECT_THAT(attempts, ElementsAre(1s));
}

TEST_F(ServiceTest, PausesDoubleUntilTheClientGivesUpAfterAMinute) {
  server.reset();
  StartClient();
  RunUntil(State::kGivenUp);
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_REJECTED 8 ") << "nobody listens";
  EXPECT_THAT(attempts, ElementsAre(1s, 3s, 7s, 15s, 23s, 31s, 39s, 47s, 55s));
  EXPECT_EQ(Now(), 60s);
}

TEST_F(ServiceTest, AnAttemptWithoutAnswerEndsAfterTenSeconds) {
  StartClient("10.0.0.3");  // no host has this address
  RunUntil(State::kGivenUp);
  EXPECT_EQ(client->reason(), "no answer to the connection request");
  EXPECT_THAT(attempts, ElementsAre(11s, 23s, 37s, 55s));
  EXPECT_EQ(Now(), 60s);
}

TEST_F(ServiceTest, AnUnreachableServerIsTriedAgain) {
  WithFault("at = \"cm.req\", first = 2, unreachable = -110", [&] { StartConnectedClient(); });
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_UNREACHABLE -110 ");
  EXPECT_THAT(attempts, ElementsAre(1s, 3s));
}

TEST_F(ServiceTest, AnAddressThatIsNotResolvedIsTriedAgain) {
  WithFault("at = \"event.addr_resolved\", first = 1, event = \"addr_error\", status = -110",
            [&] { StartConnectedClient(); });
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_ADDR_ERROR -110 ");
  EXPECT_THAT(attempts, ElementsAre(1s));
}

TEST_F(ServiceTest, ARouteThatIsNotResolvedIsTriedAgain) {
  WithFault("at = \"event.route_resolved\", first = 1, event = \"route_error\", status = -110",
            [&] { StartConnectedClient(); });
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_ROUTE_ERROR -110 ");
  EXPECT_THAT(attempts, ElementsAre(1s));
}

TEST_F(ServiceTest, ANetworkWithoutRouteIsTriedUntilTheClientGivesUp) {
  StartClient("192.168.0.1");
  RunUntil(State::kGivenUp);
  EXPECT_EQ(client->reason(), "rdma_resolve_addr: Network is unreachable");
  EXPECT_EQ(Now(), 60s);
}

TEST_F(ServiceTest, AQueuePairThatCannotReceiveIsAConnectError) {
  WithFault("at = \"call.modify_qp\", nth = 2, errno = \"EINVAL\"",
            [&] { StartConnectedClient(); });
  EXPECT_THAT(client->reason(), StartsWith("RDMA_CM_EVENT_CONNECT_ERROR"));
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

TEST_F(ServiceTest, AStrangerIsRejectedWithTheReason) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(kPort);
  to.sin_addr.s_addr = htonl(0x0a000002);
  using rdmaemu::testing::EventIs;
  using rdmaemu::testing::NextEvent;
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000), 0);
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_ADDR_RESOLVED));
  ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_ROUTE_RESOLVED));
  rdma_conn_param parameters = {};
  parameters.qp_num = 77;
  ASSERT_EQ(rdma_connect(id, &parameters), 0);
  context.loop.RunOnce();
  EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
  EXPECT_EQ(server->connections(), 0u);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

// ---- calls that fail, once, on either side

class FailingCallTest : public ServiceTest, public testing::WithParamInterface<const char*> {};

std::string CallName(const testing::TestParamInfo<const char*>& info) { return info.param; }

class ClientCallTest : public FailingCallTest {};
TEST_P(ClientCallTest, FailsTheAttemptAndTheNextOneConnects) {
  WithFault("at = \"call." + std::string(GetParam()) + "\", first = 1, errno = \"ENOMEM\"",
            [&] { StartConnectedClient(); });
  EXPECT_THAT(client->reason(), HasSubstr("Cannot allocate memory"));
  EXPECT_THAT(attempts, ElementsAre(1s));
  EXPECT_EQ(Ask("a"), Answered("a!"));
}
INSTANTIATE_TEST_SUITE_P(, ClientCallTest,
                         testing::Values("create_id", "resolve_addr", "resolve_route",
                                         "create_channel", "create_cq", "reg_mr", "create_qp",
                                         "post_recv", "req_notify_cq", "connect"),
                         CallName);

class ServerCallTest : public FailingCallTest {};
TEST_P(ServerCallTest, RejectsTheClientWithTheReasonAndServesTheNextAttempt) {
  WithFault("host = \"server\", at = \"call." + std::string(GetParam()) +
                "\", first = 1, errno = \"ENOMEM\"",
            [&] { StartConnectedClient(); });
  EXPECT_THAT(client->reason(), HasSubstr("RDMA_CM_EVENT_REJECTED 28"));
  EXPECT_THAT(client->reason(), HasSubstr("Cannot allocate memory"));
  EXPECT_THAT(attempts, ElementsAre(1s));
  EXPECT_EQ(Ask("a"), Answered("a!"));
}
INSTANTIATE_TEST_SUITE_P(, ServerCallTest,
                         testing::Values("create_channel", "create_cq", "reg_mr", "create_qp",
                                         "post_recv", "req_notify_cq", "accept"),
                         CallName);

TEST_F(ServiceTest, AnInterruptedCallIsMadeAgain) {
  WithFault("at = \"call.get_event\", first = 3, errno = \"EINTR\"",
            [&] { StartConnectedClient(); });
  EXPECT_EQ(Ask("a"), Answered("a!"));
  EXPECT_THAT(attempts, ElementsAre());
}

TEST_F(ServiceTest, AFullSendQueueDelaysAMessageUntilAnotherIsSent) {
  StartConnectedClient();
  WithFault("at = \"call.post_send\", nth = 2, errno = \"ENOMEM\"", [&] {
    int answers = 0;
    for (int i = 0; i < 3; i++) {
      ASSERT_TRUE(client->Ask("a", [&](Outcome outcome, std::string_view) {
        answers += outcome == Outcome::kAnswered;
      }));
    }
    RunUntil([&] { return answers == 3; });
  });
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, ASendQueueThatIsFullWithoutASendEndsTheConnection) {
  StartConnectedClient();
  WithFault("at = \"call.post_send\", first = 1, errno = \"ENOMEM\"",
            [&] { EXPECT_EQ(Ask("a"), kLost); });
  EXPECT_EQ(client->reason(), "ibv_post_send: Cannot allocate memory");
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

// ---- answers

TEST_F(ServiceTest, AnAnswerAfterTwelveSecondsIsLateAndTheNextIsNot) {
  StartConnectedClient();
  const auto before = Now();
  WithFault("at = \"wc.recv\", first = 1, delay_ms = 12000", [&] {
    EXPECT_EQ(Ask("slow"), kTimedOut);
    EXPECT_EQ(Now() - before, 10s);
    RunFor(5s);
  });
  EXPECT_EQ(Ask("quick"), Answered("quick!"));
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, ALostAnswerTimesOutAndKeepsTheConnection) {
  StartConnectedClient();
  WithFault("at = \"wc.recv\", first = 1, drop = true", [&] { EXPECT_EQ(Ask("a"), kTimedOut); });
  EXPECT_EQ(Ask("b"), Answered("b!"));
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, AServerThatAnswersNothingIsFoundByAHeartbeat) {
  StartConnectedClient();
  WithFault("host = \"server\", at = \"wc.recv\", drop = true", [&] { RunUntil(State::kPausing); });
  EXPECT_EQ(client->reason(), "no answer to a heartbeat");
  EXPECT_EQ(Now(), 15s) << "a heartbeat after 5 s, and 10 s for its answer";
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

TEST_F(ServiceTest, RequestsThatAllTimeOutEndTheConnection) {
  StartConnectedClient();
  WithFault("host = \"server\", at = \"wc.recv\", drop = true", [&] {
    size_t late = 0;
    for (size_t i = 0; i < shout::kDepth; i++) {
      ASSERT_TRUE(client->Ask(
          "a", [&](Outcome outcome, std::string_view) { late += outcome == Outcome::kTimedOut; }));
    }
    EXPECT_FALSE(client->Ask("b", [](Outcome, std::string_view) {}));
    RunUntil([&] { return late == shout::kDepth; });
  });
  EXPECT_EQ(client->reason(), "no answer to any request");
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("c"), Answered("c!"));
}

// ---- networks

TEST_F(ServiceTest, LostPacketsAreRepeatedForAllClients) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; i++) {
    clients.push_back(std::make_unique<Client>(context, kServerAddress, kPort));
  }
  WithFault("at = \"link\", loss = 0.1", [&] {
    int answers = 0;
    for (auto& each : clients) {
      RunUntil([&] { return each->state() == State::kConnected; });
    }
    for (int i = 0; i < 10; i++) {
      for (auto& each : clients) {
        ASSERT_TRUE(each->Ask("a", [&](Outcome outcome, std::string_view) {
          answers += outcome == Outcome::kAnswered;
        }));
      }
    }
    RunUntil([&] { return answers == 50; });
    EXPECT_EQ(server->connections(), 5u);
  });
}

class PacketFaultTest : public ServiceTest, public testing::WithParamInterface<const char*> {};
TEST_P(PacketFaultTest, IsNotSeenByTheProgram) {
  StartConnectedClient();
  WithFault("at = \"packet\", every = 5, " + std::string(GetParam()), [&] {
    for (int i = 0; i < 20; i++) EXPECT_EQ(Ask("a"), Answered("a!"));
  });
  EXPECT_EQ(connections, 1);
}
INSTANTIATE_TEST_SUITE_P(, PacketFaultTest,
                         testing::Values("corrupt = true", "duplicate = 2", "reorder = 2",
                                         "drop = true"),
                         [](const auto& info) {
                           const std::string does = info.param;
                           return does.substr(0, does.find(' '));
                         });

TEST_F(ServiceTest, APartitionShorterThanTheRetriesDelaysAnAnswer) {
  StartConnectedClient();
  const auto before = Now();
  WithFault("at = \"link\", until_ms = 3000, partition = true",
            [&] { EXPECT_EQ(Ask("a"), Answered("a!")); });
  EXPECT_GE(Now() - before, 3s);
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, APartitionOfHalfAMinuteEndsTheConnectionAndHeals) {
  StartConnectedClient();
  WithFault("at = \"link\", until_ms = 30000, partition = true", [&] {
    EXPECT_EQ(Ask("a"), kLost);
    EXPECT_EQ(client->reason(), "transport retry counter exceeded");
    RunUntil(State::kConnected);
  });
  EXPECT_GE(Now(), 30s);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

TEST_F(ServiceTest, APortThatGoesDownEndsTheConnectionAndComesBack) {
  StartConnectedClient();
  ASSERT_EQ(rdmaemu_port_set("rxe0", 0), 0) << rdmaemu_last_error();
  EXPECT_EQ(Ask("a"), kLost);
  RunFor(5s);
  ASSERT_EQ(rdmaemu_port_set("rxe0", 1), 0) << rdmaemu_last_error();
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

// ---- machines and devices

TEST_F(ServiceTest, AServerMachineThatLosesPowerIsFoundWhenItIsBack) {
  StartConnectedClient();
  EXPECT_EQ(Ask("a"), Answered("a!"));
  host.Remove("server");
  server.reset();
  EXPECT_EQ(Ask("b"), kLost);
  EXPECT_EQ(client->reason(), "transport retry counter exceeded");
  RunFor(20s);
  AddServerMachine();
  StartServer();
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("c"), Answered("c!"));
}

TEST_F(ServiceTest, AnIdleClientFindsTheLossOfTheServersMachineByAHeartbeat) {
  StartConnectedClient();
  host.Remove("server");
  server.reset();
  RunUntil(State::kPausing);
  EXPECT_LE(Now(), 15s);
  EXPECT_EQ(client->reason(), "transport retry counter exceeded");
  RunUntil(State::kGivenUp);
}

TEST_F(ServiceTest, AServerForgetsAClientsMachineThatLosesPower) {
  AddHost("other", {{"rxe0", "rxe", "10.0.0.3"}});
  client = On("other", [&] { return std::make_unique<Client>(context, kServerAddress, kPort); });
  RunUntil(State::kConnected);
  host.Remove("other");
  client.reset();
  EXPECT_EQ(server->connections(), 1u);
  RunUntil([&] { return server->connections() == 0; });
  EXPECT_EQ(Now(), 15s) << "nobody told the server";
}

TEST_F(ServiceTest, AProgramWhoseOwnMachineIsGoneEndsInsteadOfSpinning) {
  AddHost("other", {{"rxe0", "rxe", "10.0.0.3"}});
  client = On("other", [&] { return std::make_unique<Client>(context, kServerAddress, kPort); });
  RunUntil(State::kConnected);
  host.Remove("other");
  EXPECT_THROW(RunFor(1min), shout::RdmaError);
}

TEST_F(ServiceTest, AClientsDeviceThatIsRemovedIsUsedAgainWhenItReturns) {
  StartConnectedClient();
  ASSERT_EQ(rdmaemu_device_remove("rxe0"), 0) << rdmaemu_last_error();
  RunUntil(State::kPausing);
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_DEVICE_REMOVAL 0 ");
  RunFor(5s);
  EXPECT_NE(client->state(), State::kConnected);
  ASSERT_EQ(rdmaemu_device_add("rxe0", nullptr), 0) << rdmaemu_last_error();
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

TEST_F(ServiceTest, AServersDeviceThatIsRemovedServesAgainWhenItReturns) {
  StartConnectedClient();
  On("server", [] { ASSERT_EQ(rdmaemu_device_remove("rxe0"), 0) << rdmaemu_last_error(); });
  RunUntil(State::kPausing);
  EXPECT_EQ(client->reason(), "RDMA_CM_EVENT_DISCONNECTED 0 ");
  RunUntil([&] { return server->connections() == 0; });
  On("server", [] { ASSERT_EQ(rdmaemu_device_add("rxe0", nullptr), 0) << rdmaemu_last_error(); });
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("a"), Answered("a!"));
}

// ---- errors of queue pairs, completion queues and devices

class AsyncEventTest : public ServiceTest, public testing::WithParamInterface<const char*> {};
TEST_P(AsyncEventTest, EndsTheConnectionAndTheNextOneServes) {
  StartConnectedClient();
  WithFault("at = \"wc.recv\", nth = 2, async = \"" + std::string(GetParam()) + "\"", [&] {
    EXPECT_EQ(Ask("a"), Answered("a!"));
    Ask("b");  // the event may be delivered before the answer
    RunUntil(State::kPausing);
  });
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("c"), Answered("c!"));
  EXPECT_EQ(connections, 2);
}
INSTANTIATE_TEST_SUITE_P(, AsyncEventTest,
                         testing::Values("qp_fatal", "qp_access_err", "cq_err", "device_fatal"),
                         CallName);

TEST_F(ServiceTest, EventsOfAPortLeaveTheConnection) {
  StartConnectedClient();
  WithFault("at = \"wc.recv\", first = 1, async = \"lid_change\"",
            [&] { EXPECT_EQ(Ask("a"), Answered("a!")); });
  EXPECT_EQ(Ask("b"), Answered("b!"));
  EXPECT_EQ(connections, 1);
}

TEST_F(ServiceTest, ALostCompletionAndItsCqErrorEndTheConnection) {
  StartConnectedClient();
  const Fault lost("name = \"lost\", at = \"wc.recv\", nth = 3, drop = true");
  const Fault told("at = \"time\", after = \"lost\", at_ms = 0, async = \"cq_err\", times = 1");
  EXPECT_EQ(Ask("1"), Answered("1!"));
  EXPECT_EQ(Ask("2"), Answered("2!"));
  EXPECT_EQ(Ask("3"), kLost);
  EXPECT_EQ(told.fired(), 1u);
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("4"), Answered("4!"));
}

TEST_F(ServiceTest, AFailedSendFlushesTheOthersAndLosesAllRequests) {
  StartConnectedClient();
  WithFault("at = \"wc.send\", nth = 3, status = \"retry_exc_err\"", [&] {
    int answered = 0, lost = 0;
    for (int i = 0; i < 8; i++) {
      ASSERT_TRUE(client->Ask("a", [&](Outcome outcome, std::string_view) {
        (outcome == Outcome::kAnswered ? answered : lost)++;
      }));
    }
    RunUntil([&] { return answered + lost == 8; });
    EXPECT_GT(lost, 0);
  });
  EXPECT_EQ(client->reason(), "transport retry counter exceeded");
  RunUntil(State::kConnected);
  EXPECT_EQ(Ask("b"), Answered("b!"));
}

TEST_F(ServiceTest, AReceiverThatIsNeverReadyEndsTheConnectionOnBothSides) {
  StartConnectedClient();
  WithFault("host = \"server\", at = \"wc.send\", first = 1, status = \"rnr_retry_exc_err\"", [&] {
    Ask("a");  // the answer races with the end of the connection
    RunUntil(State::kPausing);
  });
  EXPECT_THAT(client->reason(), HasSubstr("RDMA_CM_EVENT_DISCONNECTED"));
  RunUntil(State::kConnected);
  EXPECT_EQ(server->connections(), 1u);
  EXPECT_EQ(Ask("b"), Answered("b!"));
}

// ---- ends of connections

TEST_F(ServiceTest, AServerThatStopsIsGoneForItsClients) {
  StartConnectedClient();
  server->Stop();
  RunUntil([&] { return server->stopped(); });
  EXPECT_EQ(Now(), 0ms);
  RunUntil(State::kGivenUp);
  EXPECT_EQ(Now(), 60s);
}

TEST_F(ServiceTest, AServersLostDreqIsFoundByAHeartbeat) {
  StartConnectedClient();
  WithFault("at = \"cm.dreq\", drop = true", [&] {
    server->Stop();
    RunUntil([&] { return server->stopped(); });
    EXPECT_EQ(Now(), 5s);
    RunUntil(State::kPausing);
  });
  EXPECT_LE(Now(), 15s);
}

TEST_F(ServiceTest, AClientsLostDreqIsFoundByTheIdleTimeout) {
  StartConnectedClient();
  WithFault("host = \"server\", at = \"cm.dreq\", drop = true", [&] {
    client->Stop();
    RunUntil(State::kStopped);
    EXPECT_EQ(Now(), 5s);
    EXPECT_EQ(server->connections(), 1u);
    RunUntil([&] { return server->connections() == 0; });
  });
  EXPECT_EQ(Now(), 15s);
}

// ---- loops in threads

TEST_F(ServiceTest, RunsInAThreadThatADescriptorStops) {
  StartClient();
  const int end = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Answer> answer;
  std::thread thread([&] {
    const shout::Watch watch(context.loop, end, [&] {
      eventfd_t count;
      eventfd_read(end, &count);
      client->Stop();
    });
    RunUntil(State::kConnected);
    const Answer got = Ask("a");
    {
      const std::lock_guard lock(mutex);
      answer = got;
    }
    changed.notify_one();
    RunUntil(State::kStopped);
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return answer.has_value(); });
    EXPECT_EQ(*answer, Answered("a!"));
  }
  eventfd_write(end, 1);
  thread.join();
  close(end);
}

TEST_F(ServiceTest, AServerInAThreadOfItsOwnServesSeveralClients) {
  server.reset();
  const int end = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::thread thread([&] {
    const rdmaemu::OnHost there("server");
    shout::Context own;
    Server threaded(own, kPort, Shout);
    const shout::Watch watch(own.loop, end, [&] {
      eventfd_t count;
      eventfd_read(end, &count);
      threaded.Stop();
    });
    while (!threaded.stopped()) own.loop.RunOnce();
  });
  for (int i = 0; i < 3; i++) {
    StartConnectedClient();  // may need a second attempt, because the thread must listen first
    EXPECT_EQ(Ask("a"), Answered("a!"));
    client->Stop();
    RunUntil(State::kStopped);
  }
  eventfd_write(end, 1);
  thread.join();
  close(end);
}

// ---- the same run twice

TEST(ServiceTimelineTest, AllRunsOfAReconnectHaveTheSameTimeline) {
  constexpr int kRuns = kIsSanitized ? 20 : 1000;
  const auto run = [] {
    rdmaemu::Embedding hosts(ClientMachine());
    rdmaemu::HostOptions machine;
    machine.name = "server";
    machine.devices = {{"rxe0", "rxe", kServerAddress}};
    hosts.Add(machine);
    shout::Context context;
    auto server = [&] {
      const rdmaemu::OnHost there("server");
      return std::make_unique<Server>(context, kPort, Shout);
    }();
    Client client(context, kServerAddress, kPort);
    const Fault loss("at = \"link\", loss = 0.05");
    while (client.state() != State::kConnected) context.loop.RunOnce();
    for (int i = 0; i < 10; i++) client.Ask("a", [](Outcome, std::string_view) {});
    server->Stop();
    while (client.state() != State::kGivenUp) context.loop.RunOnce();
    return rdmaemu::Timeline();
  };
  const std::string first = run();
  EXPECT_THAT(first, HasSubstr("REJECTED"));
  for (int i = 1; i < kRuns; i++) ASSERT_EQ(first, run()) << "run " << i;
}

}  // namespace
