// Effects of fault rules on devices, ports, addresses and the host, at a moment or at a time.
#include "emulator/host/faults/deeds.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FaultDeedsTest : public FaultQps {
 protected:
  uint32_t DevicesOf(Client& client) {
    ListDevicesOut out{};
    EXPECT_EQ(client.Call(CallOp::kListDevices, Nothing{}, out), 0);
    return out.count;
  }
  bool HearsFatal(Verb& verb) {
    GetAsyncEventOut out{};
    return verb.client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, out) == 0 &&
           out.type == IBV_EVENT_DEVICE_FATAL;
  }
  ibv_port_state PortOf(Verb& verb) {
    QueryPortOut out{};
    EXPECT_EQ(verb.client.Call(CallOp::kQueryPort, QueryPortIn{verb.context, 1}, out), 0);
    return out.attr.state;
  }
};

TEST_F(FaultDeedsTest, TheDeviceGoesBetweenTheSecondMessageAndTheThird) {
  OnClient("at = \"wc.recv\", nth = 2, remove_device = true");
  for (uint64_t i = 1; i <= 3; i++) PostRecv(10 + i);
  for (uint64_t i = 1; i <= 3; i++) PostSend(i);
  world_.Settle();
  EXPECT_EQ(PollAll(verb_b_).size(), 2u);
  EXPECT_EQ(DevicesOf(client_client_), 0u);
}

TEST_F(FaultDeedsTest, ARemovalAsRxeDoesItLeavesWorkAndAsHardwareDoesItFlushes) {
  for (const bool hardware : {false, true}) {
    AskFaults(server_client_, CallOp::kFaultClear);
    OnServer(std::string("at = \"time\", at_ms = 1, remove_device = true, how = \"") +
             (hardware ? "hardware" : "rxe") + "\", return_after_ms = 10");
    Verb verb(server_client_, 64, hardware ? 1 : 0);
    const Verb::Qp qp = verb.CreateQp(IBV_QPT_RC);
    verb.ConnectRc(qp, "127.0.0.2", 17);
    Await(milliseconds(5));
    EXPECT_EQ(DevicesOf(server_client_), 0u);
    EXPECT_EQ(HearsFatal(verb), hardware);
    EXPECT_EQ(StateOf(verb, qp), hardware ? IBV_QPS_ERR : IBV_QPS_RTS);
    Await(milliseconds(20));
    EXPECT_EQ(DevicesOf(server_client_), 1u) << "it has come back";
  }
}

TEST_F(FaultDeedsTest, APortFlapsAsOftenAsTheRuleSays) {
  OnServer(
      "at = \"time\", at_ms = 10, repeat_ms = 100, times = 2, port = \"down\", "
      "return_after_ms = 50, device = \"rxe0\"");
  for (const auto& [wait, state] :
       {std::pair(5, IBV_PORT_ACTIVE), std::pair(10, IBV_PORT_DOWN), std::pair(50, IBV_PORT_ACTIVE),
        std::pair(50, IBV_PORT_DOWN), std::pair(50, IBV_PORT_ACTIVE),
        std::pair(100, IBV_PORT_ACTIVE)}) {
    Await(milliseconds(wait));
    EXPECT_EQ(PortOf(verb_a_), state) << "after " << wait << " ms more";
  }
}

TEST_F(FaultDeedsTest, AnAddressGoesAndComesBack) {
  OnClient(
      "at = \"cm.req\", remove_address = \"127.0.0.2\", return_after_ms = 1000, "
      "direction = \"send\"");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  server_.Accept(EventOf(server_).id);
  const Time start = world_.now;
  EXPECT_EQ(TypeOf(ClientEvent(seconds(30))), cm::EventType::kConnectResponse) << "a repeated REP";
  EXPECT_GT(world_.now - start, seconds(1));
}

TEST_F(FaultDeedsTest, ATimeAfterAnotherRuleCountsFromItsFirstFiring) {
  OnServer("name = \"first\", at = \"call.list_devices\", errno = \"EIO\", times = 1");
  OnServer("at = \"time\", at_ms = 20, after = \"first\", port = \"down\"");
  Await(milliseconds(100));
  EXPECT_EQ(PortOf(verb_a_), IBV_PORT_ACTIVE);
  ListDevicesOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kListDevices, Nothing{}, out), EIO);
  Await(milliseconds(30));
  EXPECT_EQ(PortOf(verb_a_), IBV_PORT_DOWN);
}

TEST_F(FaultDeedsTest, APausedHostAnswersWhenThePauseIsOver) {
  OnServer("at = \"wc.send\", nth = 1, pause_ms = 50");
  for (uint64_t i = 1; i <= 2; i++) PostRecv(10 + i);
  PostSend(1);
  world_.Settle();
  PostSend(2);
  world_.Settle();
  EXPECT_EQ(PollAll(verb_b_).size(), 1u);
  const Nothing nothing;
  const auto list = static_cast<uint32_t>(CallOp::kListDevices);
  EXPECT_TRUE(server_client_.CallBytes(list, &nothing, sizeof nothing).is_late);
  const Time start = world_.now;
  std::optional<LateReply> late;
  EXPECT_TRUE(world_.RunUntil([&] { return (late = server_host_.TakeLateReply()).has_value(); },
                              seconds(1)));
  EXPECT_EQ(world_.now - start, milliseconds(50));
  world_.Settle();
  EXPECT_EQ(PollAll(verb_b_).size(), 1u);
  EXPECT_EQ(PollAll(verb_a_).size(), 2u);
}

TEST_F(FaultDeedsTest, WhatComesToAPausedHostWaitsForIt) {
  OnClient("at = \"time\", at_ms = 0, pause_ms = 50");
  Await(milliseconds(1));
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  EXPECT_TRUE(PollAll(verb_a_).empty());
  const auto before = server_host_.StatusJson();
  EXPECT_NE(before.find("\"retransmissions\":0"), std::string::npos);
  Await(milliseconds(60));
  EXPECT_EQ(PollAll(verb_a_).size(), 1u);
}

TEST_F(FaultDeedsTest, ACrashedHostIsSilent) {
  OnServer("at = \"cm.req\", crash = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_TRUE(server_host_.crashed());
  EXPECT_FALSE(server_host_.NextDeadline());
  ListDevicesOut out{};
  EXPECT_EQ(server_client_.Call(CallOp::kListDevices, Nothing{}, out), EIO);
  EXPECT_EQ(TypeOf(ClientEvent()), cm::EventType::kUnreachable);
}

TEST_F(FaultDeedsTest, WhatCannotBeDoneIsInTheTrace) {
  world_.trace.keep_records = true;
  OnServer("at = \"time\", at_ms = 1, remove_device = true, device = \"rxe7\"");
  OnServer("name = \"a\", at = \"time\", at_ms = 1, remove_address = \"10.1.1.1\"");
  OnServer(
      "name = \"m\", at = \"time\", at_ms = 1, move_address = \"127.0.0.1\", "
      "to_device = \"rxe7\"");
  Await(milliseconds(5));
  std::vector<std::string> failed;
  for (const trace::Record& record : world_.trace.records) {
    if (record.kind == "fault.failed") failed.push_back(record.what);
  }
  EXPECT_EQ(failed, (std::vector<std::string>{
                        "remove_device = true, device = \"rxe7\"", "remove_address = \"10.1.1.1\"",
                        "move_address = \"127.0.0.1\", to_device = \"rxe7\""}));
}

// ---- DEVICE_REMOVAL in each state of an id, with one process and with two

enum Step {
  kBind,
  kListen,
  kResolveAddress,
  kResolveRoute,
  kConnect,
  kAccept,
  kEstablish,
  kDisconnect,
  kTimewait,
};

struct Removal {
  const char* state;
  const char* at;  // the rule's `at`
  Step last;       // the connection's step at which the rule fires
  bool at_server;
  bool of_child = false;  // the connection's id, not the listener
};

constexpr Removal kRemovals[] = {
    {"bound", "\"call.bind_ip\", program = \"server\"", kBind, true},
    {"listening", "\"call.listen\"", kListen, true},
    {"resolving", "\"call.resolve_route\"", kResolveRoute, false},
    {"connecting", "\"cm.req\", direction = \"send\"", kConnect, false},
    {"request_pending", "\"cm.req\"", kConnect, true},
    {"established", "\"cm.rtu\"", kEstablish, true, true},
    {"disconnecting", "\"cm.dreq\", direction = \"send\"", kDisconnect, false},
    {"timewait", "\"cm.drep\"", kTimewait, false},
};

class RemovalIn : public ::testing::TestWithParam<std::tuple<Removal, bool>> {
 protected:
  // Runs a server and a client, on one host in one process, or on two hosts.
  void Run(const Removal& removal, bool one_process) {
    World world;
    Host& server_host = world.AddHost("server", "127.0.0.1");
    Host& client_host = one_process ? server_host : world.AddHost("client", "127.0.0.2");
    Client server_client(world, server_host, "server");
    std::optional<Client> other;
    if (!one_process) other.emplace(world, client_host, "client");
    Client& client_client = one_process ? server_client : *other;
    CmProgram server(server_client), client(client_client);
    AddRule(removal.at_server ? server_client : client_client,
            std::string("at = ") + removal.at + ", remove_device = true, nth = 1");

    uint32_t child = 0, active = 0;
    const uint32_t listener = server.CreateId(RDMA_PS_TCP);
    const auto until = [&](Step step) { return removal.last >= step; };
    server.Do(RDMA_USER_CM_CMD_BIND_IP,
              rdma_ucm_bind_ip{0, Ipv4Socket("127.0.0.1", 7471), listener});
    if (until(kListen)) server.Do(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{listener, 8});
    if (until(kResolveAddress)) {
      active = client.CreateId(RDMA_PS_TCP);
      client.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
                rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", 7471), active, 2000});
      client.Event();
    }
    if (until(kResolveRoute)) {
      client.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{active, 2000});
    }
    if (until(kConnect)) {
      client.Event();
      client.Do(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{CmProgram::Parameters(), active, 0, {}});
      world.Settle();
      if (world.counters.value(server.counter) > 0) child = server.Next().id;
    }
    if (until(kAccept)) {
      rdma_ucm_conn_param parameters = CmProgram::Parameters();
      parameters.qp_num++;  // on one host the other side uses this number
      server.Do(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{6, parameters, child, 0, {}});
      world.Settle();
    }
    if (until(kEstablish)) {
      client.Event();
      client.Establish(active);
      world.Settle();
    }
    if (until(kDisconnect)) {
      server.Event();
      client.Disconnect(active);
      world.Settle();
    }
    if (until(kTimewait)) {
      server.Disconnect(child);
      world.Settle();
    }
    CmProgram& program = removal.at_server ? server : client;
    // For a request that is not accepted yet, the listener gets the event (ucma_event_handler).
    const uint32_t id = !removal.at_server ? active : removal.of_child ? child : listener;
    bool removed = false;
    while (world.counters.value(program.counter) > 0) {
      const rdma_ucm_event_resp event = program.Next();
      removed |= event.event == kDeviceRemoval && event.id == id;
    }
    EXPECT_TRUE(removed);
    // Later calls fail as for an id whose device was removed.
    const uint32_t called = removal.at_server && child != 0 ? child : id;
    const CmCall<rdma_ucm_listen> call{program.channel, 0, {called, 8}};
    Client& caller = removal.at_server ? server_client : client_client;
    EXPECT_NE(caller.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_LISTEN), &call, sizeof call).error,
              0);
  }
  static constexpr uint32_t kDeviceRemoval = static_cast<uint32_t>(cm::EventType::kDeviceRemoval);
};

TEST_P(RemovalIn, GivesDeviceRemovalToTheId) {
  const auto& [removal, one_process] = GetParam();
  Run(removal, one_process);
}

INSTANTIATE_TEST_SUITE_P(EachState, RemovalIn,
                         ::testing::Combine(::testing::ValuesIn(kRemovals), ::testing::Bool()),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).state) +
                                  (std::get<1>(tested.param) ? "_one_process" : "_two");
                         });

// ---- end_program: a server and a client as two programs on one host

class FaultEndsTest : public ::testing::Test {
 protected:
  static constexpr uint16_t kPort = 7471;

  // Ends the programs that rules end, as the driver of a host does.
  std::vector<std::string> EndPrograms() {
    std::vector<std::string> ended;
    while (const std::optional<ProcessId> process = host_.TakeEnding()) {
      Client& client = *process == server_client_.process ? server_client_ : client_client_;
      ended.push_back(&client == &server_client_ ? "server" : "client");
      client.Kill();
    }
    return ended;
  }
  // Adds the rule, runs a connection until a program ends, and returns which ended.
  std::vector<std::string> EndedBy(const std::string& rule) {
    AddRule(tool_, rule);
    std::vector<std::string> ended;
    const auto after = [&](const auto& step) {
      if (!ended.empty()) return;
      step();
      world_.Settle();
      ended = EndPrograms();
    };
    uint32_t active = 0, passive = 0;
    after([&] { server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8); });
    after([&] { active = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort); });
    after([&] { passive = server_.Event().id; });
    after([&] {
      rdma_ucm_conn_param parameters = CmProgram::Parameters();
      parameters.qp_num++;  // on one host the other side uses this number
      server_.Do(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{6, parameters, passive, 0, {}});
    });
    after([&] { client_.Event(); });
    after([&] { client_.Establish(active); });
    after([&] { server_.Event(); });
    after([&] { client_.Disconnect(active); });
    return ended;
  }
  std::vector<std::string> Failures() {
    std::vector<std::string> failed;
    for (const trace::Record& record : world_.trace.records) {
      if (record.kind == "fault.failed") failed.push_back(record.object + ": " + record.what);
    }
    return failed;
  }

  World world_;
  Host& host_ = world_.AddHost("host", "127.0.0.1");
  Client tool_{world_, host_, "tool"};
  Client server_client_{world_, host_, "server"}, client_client_{world_, host_, "client"};
  CmProgram server_{server_client_}, client_{client_client_};
};

struct Ending {
  const char* name;
  const char* at;
  const char* self;
  const char* peer;
};
class EndingAt : public FaultEndsTest,
                 public ::testing::WithParamInterface<std::tuple<Ending, bool>> {};

TEST_P(EndingAt, EndsTheProgramAtTheRightEnd) {
  const auto& [ending, is_peer] = GetParam();
  const std::string which = is_peer ? "peer" : "self";
  EXPECT_EQ(
      EndedBy(std::string("nth = 1, at = ") + ending.at + ", end_program = \"" + which + "\""),
      std::vector<std::string>{is_peer ? ending.peer : ending.self});
}

INSTANTIATE_TEST_SUITE_P(
    Moments, EndingAt,
    ::testing::Combine(
        ::testing::Values(
            Ending{"connect", "\"call.connect\"", "client", "server"},
            Ending{"accept", "\"call.accept\"", "server", "client"},
            Ending{"disconnect", "\"call.disconnect\"", "client", "server"},
            Ending{"sent_req", "\"cm.req\", direction = \"send\"", "client", "server"},
            Ending{"received_req", "\"cm.req\"", "server", "client"},
            Ending{"sent_rep", "\"cm.rep\", direction = \"send\"", "server", "client"},
            Ending{"received_rep", "\"cm.rep\"", "client", "server"},
            Ending{"received_rtu", "\"cm.rtu\"", "server", "client"},
            Ending{"received_dreq", "\"cm.dreq\"", "server", "client"},
            Ending{"request", "\"event.connect_request\"", "server", "client"},
            Ending{"response", "\"event.connect_response\"", "client", "server"},
            Ending{"established", "\"event.established\"", "server", "client"}),
        ::testing::Bool()),
    [](const auto& tested) {
      return std::string(std::get<0>(tested.param).name) +
             (std::get<1>(tested.param) ? "_peer" : "_self");
    });

TEST_F(FaultEndsTest, AQueuePairsMomentsEndItsOwnersAndThoseOfItsPeer) {
  Verb verb_a(server_client_), verb_b(client_client_);
  std::vector<std::byte> bytes(1024);
  Verb::Qp a = verb_a.CreateQp(IBV_QPT_RC), b = verb_b.CreateQp(IBV_QPT_RC);
  verb_a.ConnectRc(a, "127.0.0.1", b.made.qpn);
  verb_b.ConnectRc(b, "127.0.0.1", a.made.qpn);
  const MrOut mr_a = verb_a.Register(bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  const MrOut mr_b = verb_b.Register(bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  for (const auto& [at, self, peer] :
       {std::tuple("wc.recv", "client", "server"), std::tuple("wc.send", "server", "client"),
        std::tuple("packet.rc_send_only", "client", "server"),
        std::tuple("memory.read", "server", "client")}) {
    for (const bool is_peer : {false, true}) {
      AskFaults(tool_, CallOp::kFaultClear);
      AddRule(tool_, std::string("at = \"") + at + "\", nth = 1, end_program = \"" +
                         (is_peer ? "peer" : "self") + "\"");
      verb_b.PostRecv(b, 1, bytes.data(), 64, mr_b.lkey);
      verb_a.PostSend(a, 2, IBV_WR_SEND, bytes.data(), 64, mr_a.lkey);
      world_.Settle();
      const std::optional<ProcessId> ended = host_.TakeEnding();
      ASSERT_TRUE(ended) << at << is_peer;
      EXPECT_EQ(*ended == server_client_.process ? "server" : "client",
                std::string(is_peer ? peer : self))
          << at;
      EXPECT_FALSE(host_.TakeEnding());
      for (ib_uverbs_wc wc; verb_a.Poll(wc) || verb_b.Poll(wc);) {
      }
    }
  }
}

TEST_F(FaultEndsTest, ACallWithoutAConnectionEndsThePeersOfItsProgram) {
  EXPECT_TRUE(EndedBy("at = \"cm.dreq\", nth = 9, end_program = \"peer\"").empty());
  AddRule(tool_, "at = \"call.list_devices\", program = \"server\", end_program = \"peer\"");
  ListDevicesOut out{};
  EXPECT_EQ(client_client_.Call(CallOp::kListDevices, Nothing{}, out), 0);
  EXPECT_TRUE(EndPrograms().empty());
  EXPECT_EQ(server_client_.Call(CallOp::kListDevices, Nothing{}, out), 0);
  EXPECT_EQ(EndPrograms(), std::vector<std::string>{"client"});
}

// The client's id has a destination, but no connection yet.
TEST_F(FaultEndsTest, AListenerWithoutAConnectionIsNoPeer) {
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  const uint32_t id = client_.CreateId(RDMA_PS_TCP);
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
             rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), id, 2000});
  client_.Event();
  AddRule(tool_, "at = \"call.list_devices\", program = \"client\", end_program = \"peer\"");
  ListDevicesOut out{};
  EXPECT_EQ(client_client_.Call(CallOp::kListDevices, Nothing{}, out), 0);
  EXPECT_TRUE(EndPrograms().empty());
}

TEST_F(FaultEndsTest, ThePeerOfAKilledProgramGetsDisconnected) {
  EXPECT_EQ(EndedBy("at = \"event.established\", nth = 1, end_program = \"self\""),
            std::vector<std::string>{"server"});
  EXPECT_TRUE(
      world_.RunUntil([&] { return world_.counters.value(client_.counter) > 0; }, seconds(1)));
  EXPECT_EQ(cm::EventType{client_.Event().event}, cm::EventType::kDisconnected);
}

TEST_F(FaultEndsTest, TheTraceSaysThatTheHostHasNoSuchProgram) {
  world_.trace.keep_records = true;
  Host& other = world_.AddHost("other", "127.0.0.2");
  Client far(world_, other, "far");
  CmProgram listener(far);
  listener.Listen(RDMA_PS_TCP, "127.0.0.2", kPort, 8);
  AddRule(tool_, "name = \"gone\", at = \"call.connect\", end_program = \"peer\"");
  client_.Connect(RDMA_PS_TCP, "127.0.0.2", kPort);
  world_.Settle();
  EXPECT_FALSE(host_.TakeEnding());
  EXPECT_FALSE(other.TakeEnding());
  EXPECT_EQ(Failures(), std::vector<std::string>{"gone: end_program = \"peer\""});
}

TEST(FaultEnds, AHostThatCannotEndProgramsRefusesTheRule) {
  World world;
  HostConfig config;
  config.name = "embedded";
  config.ends_programs = false;
  Host& host = world.AddHost(config);
  Client tool(world, host, "tool");
  const std::string answer = AskFaults(
      tool, CallOp::kFaultAdd, "name = \"r\", at = \"call.connect\", end_program = \"peer\"");
  EXPECT_NE(answer.find("rule \\\"r\\\": an embedded host has no end_program"), answer.npos)
      << answer;
  EXPECT_NE(answer.find("\"errno\":" + std::to_string(EOPNOTSUPP)), answer.npos) << answer;
  AddRule(tool, "at = \"call.connect\", errno = \"ENOMEM\"");
}

}  // namespace
}  // namespace rdmaemu::testing
