// Fault rules at a host's doors, as programs on the host see them. Hosts in one process, virtual
// time.
#include "emulator/host/faults/host_faults.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using cm::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

class FaultsTest : public FaultWorld {
 protected:
  std::string Fault(Client& client, CallOp op, const std::string& text = {}) {
    return AskFaults(client, op, text);
  }
};

TEST_F(FaultsTest, TheThirdConnectIsRejectedWithTheReasonAndPrivateDataOfTheRule) {
  OnServer("at = \"cm.req\", service_port = 7471, nth = 3, reject = 28, private_data = \"busy\"");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  for (int i = 1; i <= 2; i++) {
    client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
    world_.Settle();
  }
  const uint64_t heard = world_.counters.value(server_.counter);
  EXPECT_GT(heard, 0u);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const rdma_ucm_event_resp event = ClientEvent(seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kRejected);
  EXPECT_EQ(event.status, 28u);
  EXPECT_EQ(event.param.conn.private_data_len, 148);
  EXPECT_EQ(std::memcmp(event.param.conn.private_data, "busy\0", 5), 0);
  EXPECT_EQ(world_.counters.value(server_.counter), heard) << "who listens hears nothing of it";
}

TEST_F(FaultsTest, ARejectedSidrRequestIsUnreachableWithTheStatusOfTheRule) {
  OnServer("at = \"cm.sidr_req\", reject = 2, private_data = \"no\"");
  server_.Listen(RDMA_PS_UDP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_UDP, "127.0.0.1", kPort);
  const rdma_ucm_event_resp event = ClientEvent(seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kUnreachable);
  EXPECT_EQ(event.status, 2u);
}

TEST_F(FaultsTest, ARequestIsRejectedOnItsWayOutToo) {
  OnClient("at = \"cm.req\", direction = \"send\", reject = 10");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const rdma_ucm_event_resp event = ClientEvent(seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kRejected);
  EXPECT_EQ(event.status, 10u);
}

TEST_F(FaultsTest, AllRequestsLostIsUnreachableAfterTheKernelsTimeOut) {
  OnServer("at = \"cm.req\", drop = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const Time start = world_.now;
  const rdma_ucm_event_resp event = ClientEvent();
  EXPECT_EQ(TypeOf(event), EventType::kUnreachable);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
  EXPECT_GT(world_.now - start, seconds(90));
}

TEST_F(FaultsTest, ARequestThatIsLostOnceIsRepeated) {
  OnServer("at = \"cm.req\", first = 1, drop = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const Time start = world_.now;
  EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, seconds(20)));
  EXPECT_GT(world_.now - start, seconds(4));
}

TEST_F(FaultsTest, WhatABarrierHoldsComesWhenItLetsGo) {
  OnServer("name = \"gate\", at = \"cm.req\", hold = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_FALSE(Waits(server_));
  EXPECT_TRUE(server_host_.AwaitsApplication(world_.now)) << "time does not jump over who holds";
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultRelease, "gate"), "{\"name\":\"gate\"}");
  EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, milliseconds(0)));
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_EQ(world_.counters.value(server_.counter), 1u) << "the rule holds what comes next";
  Fault(server_client_, CallOp::kFaultRemove, "gate");
  // The same queue pair once more: the held request has arrived, so this one counts as a stale
  // connection.
  EXPECT_EQ(TypeOf(ClientEvent(milliseconds(0))), EventType::kRejected)
      << "a rule that is removed lets go";
}

TEST_F(FaultsTest, ATraceHasTheReleasesOfABarrierThatHoldsSomething) {
  world_.trace.keep_records = true;
  const auto releases = [&] {
    std::vector<std::string> found;
    for (const trace::Record& record : world_.trace.records) {
      if (record.kind != "fault.release") continue;
      EXPECT_EQ(record.what, "release");
      EXPECT_EQ(record.fields.at(0).key, "items");
      found.push_back(record.object + " " +
                      std::to_string(std::get<uint64_t>(record.fields.at(0).value)));
    }
    return found;
  };
  const auto hold_requests = [&](int count) {
    for (int i = 0; i < count; i++) client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
    world_.Settle();
  };
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  OnServer("name = \"gate\", at = \"cm.req\", hold = true");
  Fault(server_client_, CallOp::kFaultRelease, "gate");
  EXPECT_EQ(releases(), std::vector<std::string>{}) << "the barrier holds nothing";
  hold_requests(2);
  Fault(server_client_, CallOp::kFaultRelease, "other");
  EXPECT_EQ(releases(), std::vector<std::string>{}) << "another rule is released";
  Fault(server_client_, CallOp::kFaultRelease, "gate");
  EXPECT_EQ(releases(), std::vector<std::string>{"gate 2"});
  world_.Settle();
  hold_requests(1);
  Fault(server_client_, CallOp::kFaultRemove, "gate");
  EXPECT_EQ(releases(), (std::vector<std::string>{"gate 2", "gate 1"}));
  world_.Settle();
  OnServer("name = \"next\", at = \"cm.req\", hold = true");
  hold_requests(1);
  Fault(server_client_, CallOp::kFaultClear, "");
  EXPECT_EQ(releases(), (std::vector<std::string>{"gate 2", "gate 1", "next 1"}));
}

TEST_F(FaultsTest, OnlyBarriersLetGo) {
  OnServer("name = \"lossy\", at = \"cm.req\", drop = true");
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultRelease, "lossy"),
            "{\"error\":\"the rule \\\"lossy\\\" holds nothing; its action is: drop = true\"}");
  EXPECT_NE(Fault(server_client_, CallOp::kFaultRelease, "nobody").find("no rule called"),
            std::string::npos);
}

TEST_F(FaultsTest, ADelayedMessageComesAfterItsTime) {
  OnServer("at = \"cm.req\", from_ms = 0, delay_ms = 50");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const Time start = world_.now;
  EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, seconds(1)));
  EXPECT_EQ(world_.now - start, milliseconds(50));
}

TEST_F(FaultsTest, ARequestThatCameTwiceIsOneRequest) {
  OnServer("at = \"cm.req\", duplicate = 3");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_EQ(world_.counters.value(server_.counter), 1u);
}

TEST_F(FaultsTest, ARuleOfAnotherProgramDoesNotConcernThisOne) {
  OnServer("at = \"call\", program = \"another\", errno = \"EIO\"");
  Verb verb(server_client_);  // throws when a call fails
}

TEST_F(FaultsTest, ARejInPlaceOfTheRepEndsBothSides) {
  OnClient("at = \"cm.rep\", reject = 24, private_data = \"moved\"");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  server_.Accept(EventOf(server_).id);
  const rdma_ucm_event_resp event = ClientEvent(seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kRejected);
  EXPECT_EQ(event.status, 24u);
  EXPECT_EQ(std::memcmp(event.param.conn.private_data, "moved", 5), 0);
  const rdma_ucm_event_resp other = EventOf(server_, seconds(1));
  EXPECT_EQ(TypeOf(other), EventType::kRejected);
  EXPECT_EQ(other.status, 24u);
}

TEST_F(FaultsTest, ARejAfterTheRepIsWhatTheAcceptingSideGets) {
  OnServer("at = \"cm.rtu\", reject = 28");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  const uint32_t id = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  server_.Accept(EventOf(server_).id);
  EXPECT_EQ(TypeOf(ClientEvent(seconds(1))), EventType::kConnectResponse);
  client_.Establish(id);
  const rdma_ucm_event_resp event = EventOf(server_, seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kRejected);
  EXPECT_EQ(event.status, 28u);
}

TEST_F(FaultsTest, UnreachableAtOnceWithTheStatusOfTheRule) {
  for (const uint16_t port_space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    OnClient(std::string("name = \"r\", at = \"cm.") +
             (port_space == RDMA_PS_TCP ? "req" : "sidr_req") + "\", unreachable = -113");
    const Time start = world_.now;
    client_.Connect(port_space, "127.0.0.1", kPort);
    const rdma_ucm_event_resp event = ClientEvent(seconds(1));
    EXPECT_EQ(TypeOf(event), EventType::kUnreachable);
    EXPECT_EQ(static_cast<int>(event.status), -EHOSTUNREACH);
    EXPECT_EQ(world_.now, start);
    Fault(client_client_, CallOp::kFaultRemove, "r");
  }
}

TEST_F(FaultsTest, ARepThatCannotLeaveIsUnreachableForTheAcceptingSide) {
  OnServer("at = \"cm.rep\", unreachable = -110");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  server_.Accept(EventOf(server_).id);
  const rdma_ucm_event_resp event = EventOf(server_, seconds(1));
  EXPECT_EQ(TypeOf(event), EventType::kUnreachable);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

TEST_F(FaultsTest, ARuleMeansTheMessagesOfItsNetworkAndDevice) {
  OnServer("name = \"net\", at = \"cm.req\", remote = \"10.0.0.0/8\", drop = true");
  OnServer("name = \"device\", at = \"cm.req\", device = \"rxe1\", drop = true");
  OnServer(
      "name = \"both\", at = \"cm.req\", remote = \"127.0.0.0/30\", device = \"rxe0\", "
      "reject = 9");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_EQ(ClientEvent(seconds(1)).status, 9u);
}

TEST_F(FaultsTest, ARuleForAnotherHostIsNotTaken) {
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultAdd, "at = \"cm\", host = \"x\", drop = true"),
            "{\"error\":\"the rule is for host \\\"x\\\", and this is host \\\"server\\\"\"}");
  OnServer("at = \"cm\", host = \"server\", drop = true");
}

TEST_F(FaultsTest, ARuleIsAfterOneThatTheHostHas) {
  const auto add = [&](const std::string& rule) {
    return Fault(server_client_, CallOp::kFaultAdd, rule);
  };
  EXPECT_EQ(add("at = \"cm\", after = \"gate\", drop = true"),
            "{\"error\":\"host \\\"server\\\" has no rule \\\"gate\\\"; it has no other rule\"}");
  OnServer("name = \"gate\", at = \"cm.req\", host = \"server\"");
  EXPECT_EQ(add("at = \"cm\", after = \"gat\", drop = true"),
            "{\"error\":\"host \\\"server\\\" has no rule \\\"gat\\\"; did you mean "
            "\\\"gate\\\"?\"}");
  EXPECT_EQ(add("name = \"z\", at = \"cm\", after = \"z\", drop = true"),
            "{\"error\":\"a rule after itself would never fire\"}");
  OnServer("name = \"cut\", at = \"cm\", after = \"gate\", drop = true");
  Fault(server_client_, CallOp::kFaultRemove, "gate");
  EXPECT_NE(
      add("name = \"gate\", at = \"cm\", after = \"cut\"").find("none of them would ever fire"),
      std::string::npos)
      << "what was removed does not come back behind those after it";
}

// Tests each of the sixteen events with one rule, which replaces another event.
TEST_F(FaultsTest, AnyEventByOneRule) {
  for (uint32_t type = 0; type <= static_cast<uint32_t>(EventType::kTimewaitExit); type++) {
    Fault(client_client_, CallOp::kFaultClear);
    std::string name = std::string(CmEventName(type)).substr(strlen("RDMA_CM_EVENT_"));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return tolower(c); });
    OnClient("at = \"event.rejected\", event = \"" + name + "\", status = -5");
    client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // no listener
    const rdma_ucm_event_resp event = ClientEvent(seconds(1));
    EXPECT_EQ(event.event, type) << name;
    EXPECT_EQ(static_cast<int>(event.status), -5) << name;
  }
}

TEST_F(FaultsTest, AnEventMayBecomeARejectionWithPrivateData) {
  OnClient(
      "at = \"event.unreachable\", event = \"rejected\", status = 28, private_data = \"busy\"");
  OnClient("at = \"cm.req\", direction = \"send\", unreachable = -110");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const auto event = ClientEvent(milliseconds(0));
  EXPECT_EQ(TypeOf(event), EventType::kRejected);
  EXPECT_EQ(event.status, 28u);
  EXPECT_EQ(event.param.conn.private_data_len, 4);
  EXPECT_EQ(std::memcmp(event.param.conn.private_data, "busy", 4), 0);
}

TEST_F(FaultsTest, ALostEventIsNotReadableAndTheNextOneIs) {
  OnClient("at = \"event.rejected\", nth = 1, drop = true");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // no listener
  world_.Settle();
  EXPECT_EQ(world_.counters.value(client_.counter), 0u);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_EQ(TypeOf(ClientEvent(milliseconds(0))), EventType::kRejected);
}

TEST_F(FaultsTest, ALostConnectRequestLeavesTheListenerAsItWas) {
  OnServer("at = \"event.connect_request\", nth = 1, drop = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_EQ(TypeOf(EventOf(server_, seconds(10))), EventType::kConnectRequest) << "repeated";
}

TEST_F(FaultsTest, TheListTellsHowOftenEachRuleMatchedAndFired) {
  OnServer("name = \"r\", at = \"call.alloc_pd\", nth = 2, errno = \"ENOMEM\"");
  Verb verb(server_client_);
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultList),
            "[{\"name\":\"r\",\"at\":\"call.alloc_pd\",\"does\":\"errno = \\\"ENOMEM\\\"\","
            "\"matched\":1,\"fired\":0}]");
}

TEST_F(FaultsTest, TheListTellsWhatHappenedInsteadAtTheDoorOfARuleThatMatchedNothing) {
  OnServer("name = \"r\", at = \"call.reg_mr\", nth = 2, errno = \"ENOMEM\"");
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultList).find("seen"), std::string::npos)
      << "nothing has happened yet";
  Verb verb(server_client_);
  const std::string list = Fault(server_client_, CallOp::kFaultList);
  EXPECT_NE(list.find("\"seen\":[{\"at\":\"call.reg_mr\",\"times\":0},{\"at\":\"call.alloc_pd\","
                      "\"times\":1}"),
            std::string::npos)
      << list;
  std::byte bytes[64];
  verb.Register(bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultList).find("seen"), std::string::npos)
      << "the rule has matched";
}

TEST_F(FaultsTest, TheListOfTheMostAndLongestRulesFitsOneReply) {
  for (size_t i = 0; i < fault::Rules::kMaxRules; i++) {
    std::string name = std::to_string(i);
    name.append(128 - name.size(), '\'');  // one byte each in JSON and TOML
    OnServer("name = \"" + name + "\", at = \"call.take_channel_overflow\", errno = " +
             "\"EPROTONOSUPPORT\", takes_effect = true");
  }
  EXPECT_NE(
      Fault(server_client_, CallOp::kFaultAdd, "at = \"cm\", drop = true").find("the maximum"),
      std::string::npos);
  EXPECT_GT(Fault(server_client_, CallOp::kFaultList).size(), fault::Rules::kMaxRules * 128);
}

TEST_F(FaultsTest, ABadRuleIsAnsweredWithWhatIsWrong) {
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultAdd, "at = \"cm.reqq\", drop = true"),
            "{\"error\":\"rule:1:6: there is no \\\"cm.reqq\\\"; did you mean \\\"cm.req\\\"?\"}");
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultRemove, "r"),
            "{\"error\":\"there is no rule called \\\"r\\\"; rdmaemu fault list shows them\"}");
}

TEST_F(FaultsTest, ARuleWithoutANameGetsOneThatNobodyHas) {
  OnServer("name = \"rule 1\", at = \"cm.req\", drop = true");
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultAdd, "at = \"cm.rep\", drop = true"),
            "{\"name\":\"rule 2\"}");
}

TEST_F(FaultsTest, BytesThatAreNoTextAreAnsweredAllTheSame) {
  EXPECT_NE(Fault(server_client_, CallOp::kFaultRemove, "\xff\xfe").find("error"),
            std::string::npos);
  EXPECT_NE(Fault(server_client_, CallOp::kFaultAdd, "\xff").find("error"), std::string::npos);
  EXPECT_NE(Fault(server_client_, CallOp::kFaultAdd, std::string(64, '\0')).find("error"),
            std::string::npos);
}

TEST_F(FaultsTest, ARemovedRuleNoLongerFires) {
  OnServer("name = \"r\", at = \"call.alloc_pd\", errno = \"ENOMEM\"");
  Fault(server_client_, CallOp::kFaultRemove, "r");
  Verb verb(server_client_);  // throws when a call fails
}

TEST_F(FaultsTest, WhatAHostIsAskedOfItselfNeverFails) {
  OnServer("at = \"call\", errno = \"EIO\"");
  Client late(world_, server_host_);  // sends its Hello
  EXPECT_NE(Fault(late, CallOp::kFaultList), "[]");
}

}  // namespace
}  // namespace rdmaemu::testing
