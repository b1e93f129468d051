// Fault rules at a host's doors, by what programs on it get: hosts in one process, virtual time.
#include "emulator/host/faults.h"

#include <gtest/gtest.h>

#include "emulator/cm/events.h"
#include "emulator/host/testing/cm_program.h"

namespace rdmaemu::testing {
namespace {

using cm::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint16_t kPort = 7471;

// A listener on one host and a client on another.
class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest()
      : server_host_(world_.AddHost("server", "127.0.0.1")),
        client_host_(world_.AddHost("client", "127.0.0.2")),
        server_client_(world_, server_host_, "server"),
        client_client_(world_, client_host_, "client"),
        server_(server_client_),
        client_(client_client_) {}

  // The text of an answer to one of kFault*.
  std::string Fault(Client& client, CallOp op, const std::string& text = {}) {
    const Reply reply = client.CallBytes(static_cast<uint32_t>(op), text.data(), text.size());
    EXPECT_EQ(reply.error, 0);
    return {reinterpret_cast<const char*>(reply.body.data()), reply.body.size()};
  }
  void OnServer(const std::string& rule) { Fault(server_client_, CallOp::kFaultAdd, rule); }
  void OnClient(const std::string& rule) { Fault(client_client_, CallOp::kFaultAdd, rule); }

  bool Waits(CmProgram& program) { return world_.counters.value(program.counter) > 0; }
  // The next event of the client, which must come within the limit.
  rdma_ucm_event_resp ClientEvent(Duration limit = seconds(200)) {
    EXPECT_TRUE(world_.RunUntil([&] { return Waits(client_); }, limit)) << "no event";
    return Waits(client_) ? client_.Event() : rdma_ucm_event_resp{};
  }
  static EventType TypeOf(const rdma_ucm_event_resp& event) { return EventType{event.event}; }

  World world_;
  Host &server_host_, &client_host_;
  Client server_client_, client_client_;
  CmProgram server_, client_;
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

TEST_F(FaultsTest, ADelayedMessageComesAfterItsTime) {
  OnServer("at = \"cm.req\", delay_ms = 50");
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

TEST_F(FaultsTest, ACallFailsWithTheErrnoOfTheRuleAndHasNoEffect) {
  OnServer("at = \"call.alloc_pd\", nth = 2, errno = \"ENOMEM\"");
  Verb verb(server_client_);
  HandleOut pd{};
  EXPECT_EQ(server_client_.Call(CallOp::kAllocPd, AllocPdIn{}, pd), ENOMEM);
}

TEST_F(FaultsTest, ACallThatTakesEffectStillAnswersTheErrno) {
  OnServer("at = \"call.listen\", errno = \"EINTR\", takes_effect = true");
  const uint32_t id = server_.CreateId(RDMA_PS_TCP);
  server_.Do(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, Ipv4Socket("127.0.0.1", kPort), id});
  const CmCall<rdma_ucm_listen> listen{server_.channel, 0, {id, 8}};
  EXPECT_EQ(server_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_LISTEN), &listen, sizeof listen)
                .error,
            EINTR);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, seconds(1))) << "it does listen";
}

TEST_F(FaultsTest, ARuleOfAnotherProgramDoesNotConcernThisOne) {
  OnServer("at = \"call\", program = \"another\", errno = \"EIO\"");
  Verb verb(server_client_);  // throws when a call fails
}

// Each of the sixteen events by one rule: another event says what the rule wants.
TEST_F(FaultsTest, AnyEventByOneRule) {
  for (uint32_t type = 0; type <= static_cast<uint32_t>(EventType::kTimewaitExit); type++) {
    Fault(client_client_, CallOp::kFaultClear);
    std::string name = std::string(CmEventName(type)).substr(strlen("RDMA_CM_EVENT_"));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return tolower(c); });
    OnClient("at = \"event.rejected\", event = \"" + name + "\", status = -5");
    client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // nobody listens
    const rdma_ucm_event_resp event = ClientEvent(seconds(1));
    EXPECT_EQ(event.event, type) << name;
    EXPECT_EQ(static_cast<int>(event.status), -5) << name;
  }
}

TEST_F(FaultsTest, TheListTellsHowOftenEachRuleMatchedAndFired) {
  OnServer("name = \"r\", at = \"call.alloc_pd\", nth = 2, errno = \"ENOMEM\"");
  Verb verb(server_client_);
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultList),
            "[{\"name\":\"r\",\"at\":\"call.alloc_pd\",\"does\":\"errno = \\\"ENOMEM\\\"\","
            "\"matched\":1,\"fired\":0}]");
}

TEST_F(FaultsTest, TheListOfTheMostAndLongestRulesFitsOneReply) {
  for (size_t i = 0; i < fault::Rules::kMaxRules; i++) {
    std::string name = std::to_string(i);
    name.append(128 - name.size(), '\'');  // in JSON and TOML one byte each
    OnServer("name = \"" + name + "\", at = \"call.take_channel_overflow\", errno = " +
             "\"EPROTONOSUPPORT\", takes_effect = true");
  }
  EXPECT_NE(Fault(server_client_, CallOp::kFaultAdd, "at = \"cm\", drop = true").find("no more"),
            std::string::npos);
  EXPECT_GT(Fault(server_client_, CallOp::kFaultList).size(), fault::Rules::kMaxRules * 128);
}

TEST_F(FaultsTest, ABadRuleIsAnsweredWithWhatIsWrong) {
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultAdd, "at = \"cm.reqq\", drop = true"),
            "{\"error\":\"rule:1:6: there is no \\\"cm.reqq\\\"; did you mean \\\"req\\\"?\"}");
  EXPECT_EQ(Fault(server_client_, CallOp::kFaultRemove, "r"),
            "{\"error\":\"there is no rule called \\\"r\\\"; rdmaemu fault list shows them\"}");
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
  Client late(world_, server_host_);  // its Hello
  EXPECT_NE(Fault(late, CallOp::kFaultList), "[]");
}

}  // namespace
}  // namespace rdmaemu::testing
