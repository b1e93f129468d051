// PSNs wrap from 0xffffff to 0 (IBTA 9.7.2) in whole windows. Many requests and long messages are
// in transit at the wrap, with losses and duplicates there, between hosts and inside one.
#include "emulator/transport/harness.h"
#include "emulator/transport/psn.h"

namespace rdmaemu::transport::testing {
namespace {

class PsnArithmetic : public ::testing::Test {};

TEST_F(PsnArithmetic, ComparesByTheShorterWayRound) {
  EXPECT_EQ(PsnAdd(0xffffff, 1), 0u);
  EXPECT_EQ(PsnAdd(0, 0xffffff), 0xffffffu);
  EXPECT_EQ(PsnDiff(0, 0xffffff), 1);
  EXPECT_EQ(PsnDiff(0xffffff, 0), -1);
  EXPECT_EQ(PsnDiff(5, 5), 0);
  EXPECT_EQ(PsnDiff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(PsnDiff(0x800000, 0), -0x800000);
  EXPECT_EQ(PsnDiff(0x400000, 0xc00001), 0x7fffff);
}

class RcPsnWrap : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kBytes = 512 * 1024;

  RcPsnWrap() : world(GetParam()) {
    x = world.Make(world.a, IBV_QPT_RC, kBytes);
    y = world.Make(world.b(), IBV_QPT_RC, kBytes);
    FillPattern(x.buffer, 1);
  }
  void JoinBefore(uint32_t packets) {
    Link link;
    link.psn_a = PsnAdd(0, 0x1000000 - packets);
    link.psn_b = PsnAdd(0, 0x1000000 - packets / 2 - 1);
    world.Join(x, y, link);
  }
  void ExpectAllOk(size_t count) {
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(sent[i].wr_id, i);
      EXPECT_EQ(sent[i].status, uint32_t{IBV_WC_SUCCESS});
    }
  }
  // Applies `what` to the packets of this PSN, once to the request and once to the response.
  void AtPsn(uint32_t psn, Fate what) {
    world.fate = [psn, what, request = false, answer = false](const wire::Packet& packet) mutable {
      if (packet.headers.psn != psn) return Fate::kDeliver;
      bool& seen = packet.headers.info().request ? request : answer;
      return std::exchange(seen, true) ? Fate::kDeliver : what;
    };
  }

  World world;
  Endpoint x, y;
};

TEST_P(RcPsnWrap, ALongSendWrapsInItsMiddle) {
  JoinBefore(150);
  y.PostReceive(0, {y.Sge(0, kBytes)});
  x.Post(SendWr(IBV_WR_SEND, 0), {x.Sge(0, 400'000)});
  world.Ring(x);
  world.Run();
  ExpectAllOk(1);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 400'000, y.buffer.begin()));
}

TEST_P(RcPsnWrap, ALongWriteWrapsInItsMiddle) {
  JoinBefore(150);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, y, 7), {x.Sge(0, 400'000)});
  world.Ring(x);
  world.Run();
  ExpectAllOk(1);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 400'000, y.buffer.begin() + 7));
}

TEST_P(RcPsnWrap, ALongReadWrapsInItsMiddle) {
  FillPattern(y.buffer, 2);
  for (const uint32_t before : {1u, 63u, 64u, 65u, 128u, 150u, 390u}) {
    SCOPED_TRACE(before);
    JoinBefore(before);
    std::ranges::fill(x.buffer, std::byte{0});
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 0, y, 0), {x.Sge(0, 400'000)});
    world.Ring(x);
    world.Run();
    ExpectAllOk(1);
    EXPECT_TRUE(std::equal(y.buffer.begin(), y.buffer.begin() + 400'000, x.buffer.begin()));
    world.SetState(x, IBV_QPS_RESET);
    world.SetState(y, IBV_QPS_RESET);
  }
}

TEST_P(RcPsnWrap, AtomicsWrapOneByOne) {
  JoinBefore(20);
  for (uint64_t i = 0; i < 40; ++i) {
    x.Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, i, y, 0, 1), {x.Sge(8 * i, 8)});
  }
  world.Ring(x);
  world.Run();
  ExpectAllOk(40);
  for (uint64_t i = 0; i < 40; ++i) {
    uint64_t answer;
    std::memcpy(&answer, x.buffer.data() + 8 * i, 8);
    EXPECT_EQ(answer, i);
  }
}

TEST_P(RcPsnWrap, AWindowOfShortSendsWraps) {
  JoinBefore(30);
  for (uint64_t i = 0; i < 60; ++i) {
    y.PostReceive(i, {y.Sge(i * 8, 8)});
    x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(i * 8, 8)});
  }
  world.Ring(x);
  world.Run();
  ExpectAllOk(60);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 480, y.buffer.begin()));
}

INSTANTIATE_TEST_SUITE_P(Hosts, RcPsnWrap, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

// Over the wire only: a PSN at the wrap is lost or duplicated, in requests and in responses.
class RcPsnWrapOnALossyWire : public RcPsnWrap {
 protected:
  void ForEachFaultAtTheWrap(const std::function<void()>& run) {
    for (const uint32_t psn : {0xfffffeu, 0xffffffu, 0u, 1u}) {
      for (const Fate what : {Fate::kDrop, Fate::kDuplicate}) {
        SCOPED_TRACE("PSN " + std::to_string(psn) + (what == Fate::kDrop ? " lost" : " repeated"));
        JoinBefore(20);
        AtPsn(psn, what);
        std::ranges::fill(y.buffer, std::byte{0});
        run();
        world.SetState(x, IBV_QPS_RESET);
        world.SetState(y, IBV_QPS_RESET);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(RcPsnWrapOnALossyWire, Sends) {
  ForEachFaultAtTheWrap([&] {
    for (uint64_t i = 0; i < 15; ++i) {
      y.PostReceive(i, {y.Sge(i * 3000, 3000)});
      x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(i * 3000, 3000)});
    }
    world.Ring(x);
    world.Run();
    ExpectAllOk(15);
    EXPECT_EQ(y.Received().size(), 15u);
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 45'000, y.buffer.begin()));
  });
}

TEST_P(RcPsnWrapOnALossyWire, Writes) {
  ForEachFaultAtTheWrap([&] {
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 0, y, 0), {x.Sge(0, 45'000)});
    world.Ring(x);
    world.Run();
    ExpectAllOk(1);
    EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + 45'000, y.buffer.begin()));
  });
}

TEST_P(RcPsnWrapOnALossyWire, Reads) {
  ForEachFaultAtTheWrap([&] {
    FillPattern(y.buffer, 4);
    for (uint64_t i = 0; i < 15; ++i) {
      x.Post(RdmaWr(IBV_WR_RDMA_READ, i, y, i * 3000), {x.Sge(kBytes / 2 + i * 3000, 3000)});
    }
    world.Ring(x);
    world.Run();
    ExpectAllOk(15);
    EXPECT_TRUE(
        std::equal(y.buffer.begin(), y.buffer.begin() + 45'000, x.buffer.begin() + kBytes / 2));
  });
}

TEST_P(RcPsnWrapOnALossyWire, Atomics) {
  ForEachFaultAtTheWrap([&] {
    for (uint64_t i = 0; i < 40; ++i) {
      x.Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, i, y, 0, 3), {x.Sge(kBytes / 2 + 8 * i, 8)});
    }
    world.Ring(x);
    world.Run();
    ExpectAllOk(40);
    uint64_t value;
    std::memcpy(&value, y.buffer.data(), 8);
    EXPECT_EQ(value, 120u);
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, RcPsnWrapOnALossyWire, ::testing::Values(false),
                         [](const auto&) { return "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
