// Whole hosts in one process, driven through the runtime's entry points.
#include "emulator/host/host.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "emulator/base/random.h"
#include "emulator/host/testing/world.h"

namespace rdmaemu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Client;
using testing::kAllAccess;
using testing::Verb;
using testing::World;

std::vector<uint8_t> Pattern(size_t bytes, uint8_t first) {
  std::vector<uint8_t> pattern(bytes);
  std::iota(pattern.begin(), pattern.end(), first);
  return pattern;
}

// Two processes with a connected RC queue pair each, on one host or on two.
struct Pair {
  explicit Pair(bool one_host)
      : a_host(world.AddHost("a", "127.0.1.1")),
        b_host(one_host ? a_host : world.AddHost("b", "127.0.1.2")),
        a(world, a_host),
        b(world, b_host),
        av(a),
        bv(b),
        aq(av.CreateQp(IBV_QPT_RC)),
        bq(bv.CreateQp(IBV_QPT_RC)) {
    av.ConnectRc(aq, one_host ? "127.0.1.1" : "127.0.1.2", bq.made.qpn);
    bv.ConnectRc(bq, "127.0.1.1", aq.made.qpn);
  }
  World world;
  Host &a_host, &b_host;
  Client a, b;
  Verb av, bv;
  Verb::Qp aq, bq;
};

class OnOneHostAndOnTwo : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Hosts, OnOneHostAndOnTwo, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST_P(OnOneHostAndOnTwo, ASendOfManyPacketsArrivesWhole) {
  Pair pair(GetParam());
  std::vector<uint8_t> from = Pattern(10001, 3), to(10001);
  const MrOut from_mr = pair.av.Register(from.data(), from.size(), kAllAccess);
  const MrOut to_mr = pair.bv.Register(to.data(), to.size(), kAllAccess);
  pair.bv.PostRecv(pair.bq, 5, to.data(), 10001, to_mr.lkey);
  pair.av.PostSend(pair.aq, 6, IBV_WR_SEND, from.data(), 10001, from_mr.lkey);
  pair.world.Settle();

  ib_uverbs_wc wc;
  ASSERT_TRUE(pair.bv.Poll(wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.byte_len, 10001u);
  EXPECT_EQ(from, to);
  ASSERT_TRUE(pair.av.Poll(wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 6u);
}

TEST_P(OnOneHostAndOnTwo, WriteAndReadMoveMemoryWithoutThePeersProcess) {
  Pair pair(GetParam());
  std::vector<uint8_t> near = Pattern(5000, 1), far(5000), back(5000);
  const MrOut near_mr = pair.av.Register(near.data(), near.size(), kAllAccess);
  const MrOut back_mr = pair.av.Register(back.data(), back.size(), kAllAccess);
  const MrOut far_mr = pair.bv.Register(far.data(), far.size(), kAllAccess);
  const auto remote = [&](testing::PlainSend& wqe) {
    wqe.wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(far.data());
    wqe.wr.wr.rdma.rkey = far_mr.rkey;
  };
  pair.av.PostSend(pair.aq, 1, IBV_WR_RDMA_WRITE, near.data(), 5000, near_mr.lkey, remote);
  pair.av.PostSend(pair.aq, 2, IBV_WR_RDMA_READ, back.data(), 5000, back_mr.lkey, remote);
  pair.world.Settle();
  EXPECT_EQ(near, far);
  EXPECT_EQ(near, back);
  ib_uverbs_wc wc;
  ASSERT_TRUE(pair.av.Poll(wc) && wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
  ASSERT_TRUE(pair.av.Poll(wc) && wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS);
}

TEST_P(OnOneHostAndOnTwo, AWriteWithAKeyThatWasNeverGivenIsRefused) {
  Pair pair(GetParam());
  std::vector<uint8_t> near = Pattern(64, 1), far(64);
  const MrOut near_mr = pair.av.Register(near.data(), near.size(), kAllAccess);
  const MrOut far_mr = pair.bv.Register(far.data(), far.size(), kAllAccess);
  pair.av.PostSend(pair.aq, 1, IBV_WR_RDMA_WRITE, near.data(), 64, near_mr.lkey,
                   [&](testing::PlainSend& wqe) {
                     wqe.wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(far.data());
                     wqe.wr.wr.rdma.rkey = far_mr.rkey ^ 0x5500;
                   });
  pair.world.Settle();
  ib_uverbs_wc wc;
  ASSERT_TRUE(pair.av.Poll(wc));
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(far, std::vector<uint8_t>(64));
}

TEST(Host, ALostPacketIsRepeated) {
  Pair pair(false);
  std::vector<uint8_t> from = Pattern(9000, 9), to(9000);
  const MrOut from_mr = pair.av.Register(from.data(), from.size(), kAllAccess);
  const MrOut to_mr = pair.bv.Register(to.data(), to.size(), kAllAccess);
  int seen = 0;
  pair.world.SetFilter([&](const World::Datagram&) { return ++seen % 4 != 0; });
  pair.bv.PostRecv(pair.bq, 5, to.data(), 9000, to_mr.lkey);
  pair.av.PostSend(pair.aq, 6, IBV_WR_SEND, from.data(), 9000, from_mr.lkey);
  ib_uverbs_wc wc;
  ASSERT_TRUE(pair.world.RunUntil([&] { return pair.av.Poll(wc); }, seconds(20)));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(from, to);
}

TEST(Host, AKilledProcessLeavesNothingBehind) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  {
    Client client(world, host);
    Verb verb(client);
    std::vector<uint8_t> bytes(4096);
    verb.Register(bytes.data(), bytes.size(), kAllAccess);
    verb.CreateQp(IBV_QPT_RC);
    verb.CreateQp(IBV_QPT_UD);
    client.Call(CallOp::kCmCreateChannel, Nothing{});
    client.Kill();
  }
  const auto status = nlohmann::json::parse(host.StatusJson());
  EXPECT_EQ(status["qps"], 0);
  EXPECT_EQ(status["ids"], 0);
  EXPECT_TRUE(status["groups"].empty());
  EXPECT_EQ(world.segments.live_segments(), 0u);
  EXPECT_EQ(world.counters.live(), 0u);
}

TEST(Host, AForkedChildUsesItsParentsHandlesAndKeepsThemAlive) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client parent(world, host);
  Verb verb(parent);
  const std::unique_ptr<Client> child = parent.Fork();
  EXPECT_EQ(child->hello.group, parent.hello.group);
  parent.Kill();
  HandleOut pd{};
  EXPECT_EQ(child->Call(CallOp::kAllocPd, AllocPdIn{verb.context, 0}, pd), 0);
  child->Kill();
  EXPECT_EQ(world.counters.live(), 0u);
}

TEST(Host, AnotherGroupsHandlesAreNotThere) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client owner(world, host), other(world, host);
  Verb verb(owner);
  EXPECT_EQ(other.Call(CallOp::kDeallocPd, HandleIn{verb.pd, 0}), ENOENT);
  EXPECT_EQ(other.Call(CallOp::kMapSegment, MapSegmentIn{verb.cq.queue.segment, 0}), EINVAL);
}

TEST(Host, AGuessedTokenIsRefused) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client owner(world, host);
  const ProcessId stranger = host.Attach(world.now, {2, "stranger"});
  std::vector<std::byte> message(sizeof(CallHeader) + sizeof(HelloIn));
  HelloIn in{};
  in.version = kCallVersion;
  in.group_token[3] = 1;
  const CallHeader header{static_cast<uint32_t>(CallOp::kHello), sizeof in};
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, &in, sizeof in);
  EXPECT_EQ(host.Call(world.now, stranger, message).error, EACCES);
}

TEST(Host, MalformedMessagesAnswerEinvalAndLoseNothing) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client client(world, host);
  Verb verb(client);
  Random random(7);
  for (int round = 0; round < 5000; round++) {
    std::vector<std::byte> message(random.Below(200));
    for (std::byte& byte : message) byte = static_cast<std::byte>(random.Below(256));
    // Half of them have a valid header, so that the calls themselves get the bytes.
    if (message.size() >= sizeof(CallHeader) && round % 2 == 0) {
      const CallHeader header{
          random.Below(2) != 0 ? 5 + random.Below(36) : 0x100 + random.Below(24),
          static_cast<uint32_t>(message.size() - sizeof(CallHeader))};
      std::memcpy(message.data(), &header, sizeof header);
    }
    host.Call(world.now, client.process, message);
    world.Settle();
  }
  HandleOut pd{};
  EXPECT_EQ(client.Call(CallOp::kAllocPd, AllocPdIn{verb.context, 0}, pd), 0);
}

TEST(Host, CorruptAndForeignDatagramsAreCountedAndDropped) {
  Pair pair(false);
  std::vector<std::byte> noise(100);
  const wire::UdpFlow flow{*NetAddress::Parse("127.0.1.2"), *NetAddress::Parse("127.0.1.1"), 4791,
                           4791};
  pair.a_host.Receive(pair.world.now, flow, noise);
  pair.a_host.Receive(pair.world.now, flow, std::span(noise).first(3));
  const auto dropped = nlohmann::json::parse(pair.a_host.StatusJson())["counters"]["dropped"];
  EXPECT_EQ(dropped["bad_icrc"], 2);
}

TEST(Host, AHelloOfAnotherVersionIsRefusedBeforeItsLayoutIsRead) {
  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  const ProcessId process = host.Attach(world.now, {2, "old"});
  const struct {
    CallHeader header;
    uint32_t version;
  } message{{static_cast<uint32_t>(CallOp::kHello), 4}, kCallVersion + 1};
  EXPECT_EQ(host.Call(world.now, process, std::as_bytes(std::span(&message, 1))).error, EPROTO);
}

}  // namespace
}  // namespace rdmaemu
