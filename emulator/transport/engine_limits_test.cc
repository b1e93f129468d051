// The engine's limits: a full queue between local QPs, the division of the engine among QPs, and
// packets of a QP that is destroyed.
#include "emulator/transport/core.h"
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

// QPs of both hosts (or of the only host), connected in pairs.
struct Pairs {
  Pairs(World& world, size_t count, size_t bytes, uint32_t depth = 63) {
    for (size_t i = 0; i < count; ++i) {
      x.push_back(world.Make(world.a, IBV_QPT_RC, bytes, depth));
      y.push_back(world.Make(world.b(), IBV_QPT_RC, bytes, depth));
      world.Join(x.back(), y.back());
    }
  }
  std::vector<Endpoint> x, y;
};

void ExpectDone(Endpoint& e, size_t count) {
  const auto sent = e.Sent();
  ASSERT_EQ(sent.size(), count);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(sent[i].wr_id, i);
    ASSERT_EQ(sent[i].status, uint32_t{IBV_WC_SUCCESS});
  }
}

// Posts more requests than the queue between local QPs holds. Requests without room wait. None is
// lost, and the order is kept.
TEST(LocalQueue, MoreRequestsThanItHoldsAllArriveInOrder) {
  constexpr size_t kPairs = 2 * kMaxLocalRequests / 63 + 1;
  World world(true);
  Pairs pairs(world, kPairs, 1024);
  for (size_t i = 0; i < kPairs; ++i) {
    for (uint64_t k = 0; k < 63; ++k) {
      pairs.x[i].Post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, k, pairs.y[i], 0, 1),
                      {pairs.x[i].Sge(8 * k, 8)});
    }
    world.Ring(pairs.x[i]);
  }
  world.Run();
  for (size_t i = 0; i < kPairs; ++i) {
    ExpectDone(pairs.x[i], 63);
    for (uint64_t k = 0; k < 63; ++k) {
      uint64_t answer;
      std::memcpy(&answer, pairs.x[i].buffer.data() + 8 * k, 8);
      ASSERT_EQ(answer, k);
    }
  }
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
}

// READ responses may fill the queue up to their own limit. Requests and ACKs still have room.
TEST(LocalQueue, MoreReadResponsesThanItHoldsAllArrive) {
  constexpr size_t kPairs = 40;
  constexpr uint32_t kBytes = 64 * 1024;
  World world(true);
  Pairs pairs(world, kPairs, kBytes);
  for (size_t i = 0; i < kPairs; ++i) {
    FillPattern(pairs.y[i].buffer, static_cast<uint32_t>(i));
    for (uint64_t k = 0; k < 63; ++k) {
      pairs.x[i].Post(RdmaWr(IBV_WR_RDMA_READ, k, pairs.y[i], 0), {pairs.x[i].Sge(0, kBytes)});
    }
    world.Ring(pairs.x[i]);
  }
  world.Run();
  for (size_t i = 0; i < kPairs; ++i) {
    ExpectDone(pairs.x[i], 63);
    EXPECT_EQ(pairs.x[i].buffer, pairs.y[i].buffer);
  }
}

// Both sides send at once, with every operation. No side waits forever for room on the other.
TEST(LocalQueue, FullInBothDirectionsStillDrains) {
  constexpr size_t kPairs = 80;
  World world(true);
  Pairs pairs(world, kPairs, 4096);
  for (size_t i = 0; i < kPairs; ++i) {
    for (auto [from, to] : {std::pair{&pairs.x[i], &pairs.y[i]}, {&pairs.y[i], &pairs.x[i]}}) {
      for (uint64_t k = 0; k < 63; ++k) {
        if (k % 3 == 0) {
          from->Post(RdmaWr(IBV_WR_RDMA_READ, k, *to, 2048), {from->Sge(0, 1024)});
        } else if (k % 3 == 1) {
          from->Post(SendWr(IBV_WR_SEND, k), {from->Sge(3072, 8)});
          to->PostReceive(k, {to->Sge(3080, 8)});
        } else {
          from->Post(RdmaWr(IBV_WR_RDMA_WRITE, k, *to, 1024), {from->Sge(2048, 1024)});
        }
      }
      world.Ring(*from);
    }
  }
  world.Run();
  for (size_t i = 0; i < kPairs; ++i) {
    ExpectDone(pairs.x[i], 63);
    ExpectDone(pairs.y[i], 63);
  }
}

class Fairness : public ::testing::TestWithParam<bool> {
 protected:
  // Runs one step of the engines and, between hosts, of the wire.
  void StepOnce() {
    world.a.engine.Work(world.now);
    if (!world.other) return;
    world.other->engine.Work(world.now);
    Carry(world.a, *world.other);
    Carry(*world.other, world.a);
  }
  void Carry(Node& from, Node& to) {
    while (!from.out.empty()) {
      const Datagram datagram = std::move(from.out.front());
      from.out.pop_front();
      to.engine.Receive(world.now, datagram.flow, *wire::Parse(datagram.bytes));
    }
  }
  World world{GetParam()};
};

// A QP whose program posts endlessly does not stop another QP. The other QP's work is done within a
// few rounds, each of which begins with a full queue of the first QP.
TEST_P(Fairness, AQpWithEndlessWorkDoesNotStarveAnother) {
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pairs pairs(world, 2, 512 * 1024);
    Endpoint &greedy = pairs.x[0], &small = pairs.x[1];
    uint64_t posted = 0;
    const auto refill = [&] {
      while (!greedy.qp->send_ring.Full()) {
        greedy.Post(RdmaWr(opcode, posted++, pairs.y[0], 0), {greedy.Sge(0, 512 * 1024)});
      }
      world.Ring(greedy);
    };
    for (int i = 0; i < 10; ++i) {
      refill();
      StepOnce();
      greedy.Sent();
    }
    small.Post(RdmaWr(opcode, 0, pairs.y[1], 0), {small.Sge(0, 64)});
    world.Ring(small);
    int rounds = 0;
    while (small.qp->send_ring.Count() != 0 && rounds < 100) {
      refill();
      StepOnce();
      greedy.Sent();
      ++rounds;
    }
    EXPECT_EQ(small.Sent().size(), 1u);
    EXPECT_LE(rounds, 20);
    world.SetState(greedy, IBV_QPS_RESET);
    world.Run();
  }
}

// Many QPs with much work advance together. When one is done, every other has done at least half.
TEST_P(Fairness, QpsWithTheSameWorkAdvanceTogether) {
  constexpr size_t kPairs = 16;
  Pairs pairs(world, kPairs, 64 * 1024);
  for (size_t i = 0; i < kPairs; ++i) {
    for (uint64_t k = 0; k < 60; ++k) {
      pairs.x[i].Post(RdmaWr(IBV_WR_RDMA_WRITE, k, pairs.y[i], 0), {pairs.x[i].Sge(0, 64 * 1024)});
    }
    world.Ring(pairs.x[i]);
  }
  bool first_is_done = false;
  for (int i = 0; i < 10'000 && !first_is_done; ++i) {
    StepOnce();
    for (const Endpoint& e : pairs.x) first_is_done |= e.qp->send_ring.Empty();
  }
  ASSERT_TRUE(first_is_done);
  for (const Endpoint& e : pairs.x) EXPECT_LE(e.qp->send_ring.Count(), 30u);
}

INSTANTIATE_TEST_SUITE_P(Hosts, Fairness, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InOneHost" : "OverTheWire"; });

}  // namespace
}  // namespace rdmaemu::transport::testing
