// Jumps of time. Some deadlines of a host may be reached early. Others run against an application,
// and time must not jump to them. These worlds have a virtual clock, which the test advances.
#include <gtest/gtest.h>

#include "emulator/cm/events.h"
#include "emulator/host/testing/cm_program.h"

namespace rdmaemu {
namespace {

using std::chrono::seconds;
using testing::Client;
using testing::CmProgram;
using testing::Verb;
using testing::World;

constexpr uint16_t kPort = 7471;

// A program that listens on host b, and one that connects on host a.
class Jumps : public ::testing::Test {
 protected:
  World world;
  Host& a = world.AddHost("a", "10.0.0.1");
  Host& b = world.AddHost("b", "10.0.0.2");
  Client client{world, a}, server{world, b};
  CmProgram active{client}, passive{server};

  uint32_t Listen(uint16_t port_space = RDMA_PS_TCP) {
    return passive.Listen(port_space, "10.0.0.2", kPort, 5);
  }
  uint32_t Connect(uint16_t port_space = RDMA_PS_TCP) {
    const uint32_t id = active.Connect(port_space, "10.0.0.2", kPort);
    world.Settle();
    return id;
  }
  bool AnyAwaits() const {
    return a.AwaitsApplication(world.now) || b.AwaitsApplication(world.now);
  }
  void Await(Duration time) {
    world.RunUntil([] { return false; }, time);
  }
};

TEST_F(Jumps, AHostWithoutDeadlinesHasNowhereToJump) {
  EXPECT_FALSE(a.NextJump(world.now));
  EXPECT_FALSE(a.AwaitsApplication(world.now));
}

TEST_F(Jumps, ALostRequestAwaitsNobody) {
  world.SetFilter([](const World::Datagram&) { return false; });
  Connect();
  EXPECT_FALSE(AnyAwaits());
  ASSERT_TRUE(a.NextDeadline());
  EXPECT_EQ(a.NextJump(world.now), a.NextDeadline());
}

// The active side alone cannot detect this. Its deadline runs against the passive side's
// application.
TEST_F(Jumps, ARequestAwaitsItsServerUntilItIsAccepted) {
  Listen();
  Connect();
  EXPECT_TRUE(b.AwaitsApplication(world.now));
  EXPECT_FALSE(b.NextJump(world.now));
  passive.Accept(passive.Event().id);
  EXPECT_FALSE(b.AwaitsApplication(world.now));
}

TEST_F(Jumps, ARequestAwaitsItsServerForAsLongAsItTakes) {
  Listen();
  Connect();
  Await(seconds(3600));
  EXPECT_TRUE(b.AwaitsApplication(world.now));
}

TEST_F(Jumps, ARejectedRequestAwaitsNobody) {
  Listen();
  Connect();
  const uint32_t id = passive.Event().id;
  passive.Do(RDMA_USER_CM_CMD_REJECT, rdma_ucm_reject{id, 0, 28, {}, {}});
  EXPECT_FALSE(AnyAwaits());
}

TEST_F(Jumps, ARequestWhoseServerHasGoneAwaitsNobody) {
  Listen();
  Connect();
  server.Kill();
  EXPECT_FALSE(AnyAwaits());
}

TEST_F(Jumps, ADatagramRequestAwaitsItsServer) {
  Listen(RDMA_PS_UDP);
  Connect(RDMA_PS_UDP);
  EXPECT_TRUE(b.AwaitsApplication(world.now));
  passive.Accept(passive.Event().id);
  EXPECT_FALSE(AnyAwaits());
}

// The passive side repeats its REP, and would then fail the connection.
TEST_F(Jumps, AReplyAwaitsItsClientUntilTheRtu) {
  Listen();
  const uint32_t id = Connect();
  passive.Accept(passive.Event().id);
  world.Settle();
  EXPECT_TRUE(a.AwaitsApplication(world.now));
  active.Establish(id);
  world.Settle();
  EXPECT_FALSE(AnyAwaits());
}

class Connected : public Jumps {
 protected:
  Connected() {
    Listen();
    id = Connect();
    peer = passive.Event().id;
    passive.Accept(peer);
    world.Settle();
    active.Establish(id);
    world.Settle();
  }
  uint32_t id, peer;
};

TEST_F(Connected, AnEstablishedConnectionAwaitsNobody) {
  EXPECT_FALSE(AnyAwaits());
  EXPECT_FALSE(a.NextJump(world.now));
}

TEST_F(Connected, ADisconnectAwaitsThePeer) {
  active.Disconnect(id);
  world.Settle();
  EXPECT_TRUE(b.AwaitsApplication(world.now));
  passive.Disconnect(peer);
  world.Settle();
  EXPECT_FALSE(AnyAwaits());
  // Timewait runs against no application.
  EXPECT_TRUE(a.NextJump(world.now));
  EXPECT_TRUE(b.NextJump(world.now));
}

// Programs that never answer a DREQ are common. Its sender stops repeating it, and then no host
// waits.
TEST_F(Connected, ADisconnectThatNobodyAnswersAwaitsThePeerAsLongAsItIsRepeated) {
  active.Disconnect(id);
  world.Settle();
  Await(seconds(60));
  EXPECT_TRUE(b.AwaitsApplication(world.now));
  Await(seconds(60));
  EXPECT_FALSE(b.AwaitsApplication(world.now));
}

class NotReady : public Jumps {
 protected:
  Verb near{client}, far{server};
  Verb::Qp sender = near.CreateQp(IBV_QPT_RC), receiver = far.CreateQp(IBV_QPT_RC);
  std::vector<std::byte> bytes = std::vector<std::byte>(64);

  NotReady() {
    near.ConnectRc(sender, "10.0.0.2", receiver.made.qpn);
    far.ConnectRc(receiver, "10.0.0.1", sender.made.qpn);
  }
  void Send() {
    const MrOut region = near.Register(bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
    near.PostSend(sender, 1, IBV_WR_SEND, bytes.data(), 64, region.lkey);
    world.Settle();
  }
};

TEST_F(NotReady, ASendAwaitsTheApplicationThatHasNoReceivePosted) {
  Send();
  EXPECT_TRUE(a.AwaitsApplication(world.now));
  const MrOut region = far.Register(bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  far.PostRecv(receiver, 2, bytes.data(), 64, region.lkey);
  ib_uverbs_wc wc;
  EXPECT_TRUE(world.RunUntil([&] { return near.Poll(wc); }, seconds(1)));
  EXPECT_FALSE(AnyAwaits());
}

TEST_F(NotReady, AnAckThatIsLostAwaitsNobody) {
  world.SetFilter([](const World::Datagram&) { return false; });
  Send();
  EXPECT_FALSE(AnyAwaits());
  EXPECT_TRUE(a.NextJump(world.now));
}

}  // namespace
}  // namespace rdmaemu
