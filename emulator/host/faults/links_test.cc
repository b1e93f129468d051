// Links that are cut, slow, narrow or lossy, for messages of connection management and for packets
// of queue pairs.
#include "emulator/host/faults/links.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using cm::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LinkFaultsTest : public FaultQps {
 protected:
  void Listen() { server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8); }
  // Returns how long the request takes until the server gets it.
  Duration TimeOfRequest() {
    client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
    const Time start = world_.now;
    EXPECT_TRUE(world_.RunUntil([&] { return Waits(server_); }, seconds(100)));
    return world_.now - start;
  }
  // Returns the sender's completions in order, waiting for `count` of them.
  std::vector<ib_uverbs_wc> Await(size_t count, Duration limit = seconds(100)) {
    std::vector<ib_uverbs_wc> all;
    world_.RunUntil(
        [&] {
          for (const ib_uverbs_wc& wc : PollAll(verb_a_)) all.push_back(wc);
          return all.size() >= count;
        },
        limit);
    return all;
  }
  uint64_t Retransmissions() {
    const std::string status = server_host_.StatusJson(), key = "\"retransmissions\":";
    return std::stoull(status.substr(status.find(key) + key.size()));
  }
};

TEST_F(LinkFaultsTest, APartitionCutsConnectionsAndData) {
  Listen();
  OnServer("at = \"link\", partition = true");
  PostWrite(1, 512);
  const auto done = Await(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, IBV_WC_RETRY_EXC_ERR);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  EXPECT_EQ(TypeOf(ClientEvent()), EventType::kUnreachable);
  EXPECT_FALSE(Waits(server_));
}

TEST_F(LinkFaultsTest, ARuleThatOnlyLosesFiresForWhatItLoses) {
  OnServer("name = \"some\", at = \"link\", direction = \"send\", loss = 0.2");
  OnServer("name = \"rest\", at = \"link\", direction = \"send\", latency_ms = 1");
  for (int i = 0; i < 20; i++) {
    PostWrite(1, 512);
    EXPECT_EQ(Await(1).size(), 1u);
  }
  const std::string list = AskFaults(server_client_, CallOp::kFaultList);
  const auto number = [&](const std::string& key, size_t from) {
    return std::stoull(list.substr(list.find("\"" + key + "\":", from) + key.size() + 3));
  };
  const size_t some = list.find("\"some\""), rest = list.find("\"rest\"");
  const uint64_t lost = number("fired", some), passed = number("fired", rest);
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(number("matched", some), lost + passed) << "the rest is for the rules behind it";
}

TEST_F(LinkFaultsTest, APartitionHeals) {
  OnServer("at = \"link\", partition = true, until_ms = 100");
  PostWrite(1, 512);
  const Time start = world_.now;
  const auto done = Await(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
  EXPECT_GE(world_.now - start, milliseconds(100));
}

TEST_F(LinkFaultsTest, APartitionOfOneDirectionLetsTheOtherPass) {
  Listen();
  OnClient("at = \"link\", direction = \"receive\", partition = true");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const rdma_ucm_event_resp request = EventOf(server_, seconds(1));
  EXPECT_EQ(TypeOf(request), EventType::kConnectRequest);
  server_.Accept(request.id);
  world_.Settle();
  EXPECT_FALSE(Waits(client_)) << "the REP does not come";
}

TEST_F(LinkFaultsTest, ALinkIsThatOfItsAddresses) {
  Listen();
  OnServer("name = \"other\", at = \"link\", remote = \"10.0.0.0/8\", partition = true");
  OnServer(
      "name = \"mine\", at = \"link\", local = \"127.0.0.1\", remote = \"127.0.0.2\", "
      "latency_ms = 7");
  EXPECT_EQ(TimeOfRequest(), milliseconds(7));
}

TEST_F(LinkFaultsTest, LatencyIsWhatAMessageTakes) {
  Listen();
  OnServer("at = \"link\", direction = \"receive\", latency_ms = 20");
  EXPECT_EQ(TimeOfRequest(), milliseconds(20));
}

TEST_F(LinkFaultsTest, JitterAddsToTheLatency) {
  Listen();
  OnServer("at = \"link\", direction = \"receive\", latency_ms = 20, jitter_ms = 10");
  const Duration time = TimeOfRequest();
  EXPECT_GT(time, milliseconds(20));
  EXPECT_LT(time, milliseconds(30));
}

TEST_F(LinkFaultsTest, JitterKeepsTheOrderOfALink) {
  OnServer("at = \"link\", latency_ms = 2, jitter_ms = 5");
  for (uint64_t i = 1; i <= 8; i++) PostWrite(i, 4096);
  EXPECT_EQ(Await(8).size(), 8u);
  EXPECT_EQ(Retransmissions(), 0u);
}

TEST_F(LinkFaultsTest, ARateIsWhatALinkCarries) {
  OnServer("at = \"link\", direction = \"send\", rate_mbps = 1");
  const Time start = world_.now;
  for (uint64_t i = 1; i <= 4; i++) PostWrite(i, 1024);
  EXPECT_EQ(Await(4).size(), 4u);
  // A byte has 8 bits, and a bit takes one microsecond. Headers add some bytes.
  EXPECT_GE(world_.now - start, std::chrono::microseconds(4 * 1024 * 8));
  EXPECT_LT(world_.now - start, std::chrono::microseconds(4 * 1100 * 8));
}

TEST_F(LinkFaultsTest, WhatAFullQueueDoesNotTakeIsLost) {
  OnServer("at = \"link\", direction = \"send\", rate_mbps = 10, queue_packets = 4");
  PostWrite(1, 32 * 1024);
  const auto done = Await(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_GT(Retransmissions(), 0u);
}

TEST_F(LinkFaultsTest, ALossyLinkLosesItsShareAndTheMessagesArrive) {
  OnServer("at = \"link\", loss = 0.1");
  for (uint64_t i = 1; i <= 8; i++) PostWrite(i, 4096);
  const auto done = Await(8);
  ASSERT_EQ(done.size(), 8u);
  for (const ib_uverbs_wc& wc : done) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_GT(Retransmissions(), 0u);
}

TEST_F(LinkFaultsTest, TwoAddressesOfOneHostHaveALinkToo) {
  Verb other(server_client_);
  Verb::Qp near = verb_a_.CreateQp(IBV_QPT_RC), far = other.CreateQp(IBV_QPT_RC);
  verb_a_.ConnectRc(near, "127.0.0.1", far.made.qpn);
  other.ConnectRc(far, "127.0.0.1", near.made.qpn);
  a_ = near;
  mr_b_ = other.Register(target_.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  OnServer("at = \"link\", latency_ms = 5");
  const Time start = world_.now;
  PostWrite(1, 512);
  ASSERT_EQ(Await(1).size(), 1u);
  EXPECT_EQ(world_.now - start, milliseconds(10)) << "there and back";
}

}  // namespace
}  // namespace rdmaemu::testing
