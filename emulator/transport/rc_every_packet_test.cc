// Repeats one program of every RC operation. Each packet on the wire is lost, duplicated or late in
// turn, alone and in pairs. The PSNs wrap at any point of the program. In all cases every operation
// is done once and in order, and memory is correct.
#include "emulator/transport/harness.h"
#include "emulator/transport/psn.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kPsns = 18;          // of the whole program
constexpr size_t kRead = 32 * 1024;     // destination of x's READ
constexpr size_t kAnswers = 48 * 1024;  // destination of its atomics' responses
constexpr size_t kCounter = 60 * 1024;  // y's atomic word

uint64_t WordAt(const Endpoint& e, size_t offset) {
  uint64_t word;
  std::memcpy(&word, e.buffer.data() + offset, sizeof word);
  return word;
}

struct Event {
  size_t nth;  // packet of the whole run, both directions
  Fate what;
};

class RcEveryPacket : public ::testing::Test {
 protected:
  RcEveryPacket() {
    x = world.Make(world.a, IBV_QPT_RC, 64 * 1024);
    y = world.Make(world.b(), IBV_QPT_RC, 64 * 1024);
    packets = RunProgram({}, 100, 500);
  }
  // Runs the program. Returns false at a failure, with the run's description in the trace.
  bool Survives(const std::vector<Event>& events, uint32_t psn_a = 100, uint32_t psn_b = 500) {
    std::string text = "PSN " + std::to_string(psn_a);
    for (const Event& event : events) {
      constexpr const char* kNames[] = {"", " lost", " repeated", " late"};
      text += ", packet " + std::to_string(event.nth) + kNames[static_cast<int>(event.what)];
    }
    SCOPED_TRACE(text);
    RunProgram(events, psn_a, psn_b);
    return !HasFailure();
  }
  size_t RunProgram(const std::vector<Event>& events, uint32_t psn_a, uint32_t psn_b);

  World world{false};
  Endpoint x{}, y{};
  size_t packets = 0;  // of a run without faults
};

// Runs one connection. Returns the number of packets sent over the wire.
size_t RcEveryPacket::RunProgram(const std::vector<Event>& events, uint32_t psn_a, uint32_t psn_b) {
  Link link;
  link.psn_a = psn_a;
  link.psn_b = psn_b;
  link.retry_count = 6;
  world.Join(x, y, link);
  FillPattern(std::span(x.buffer).first(16 * 1024), 1);
  FillPattern(std::span(y.buffer).subspan(20 * 1024, 8 * 1024), 2);
  const uint64_t start = 1000;
  std::memcpy(y.buffer.data() + kCounter, &start, sizeof start);
  size_t count = 0;
  int since_held = -1;
  world.fate = [&](const wire::Packet&) {
    // A late packet arrives after three others.
    if (since_held >= 0 && since_held++ == 3) {
      since_held = -1;
      world.Release();
    }
    const size_t nth = count++;
    for (const Event& event : events) {
      if (event.nth != nth) continue;
      if (event.what == Fate::kHold) since_held = 0;
      return event.what;
    }
    return Fate::kDeliver;
  };
  for (uint64_t i = 0; i < 3; ++i) y.PostReceive(100 + i, {y.Sge(i * 4096, 4096)});
  const auto post = [&](rxe_send_wr wr, size_t from, uint32_t length) {
    x.Post(wr, {x.Sge(from, length)});
  };
  post(SendWr(IBV_WR_SEND, 0), 0, 3000);                                                // 3 PSNs
  post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 12288), 3000, 2500);                             // 3
  post(RdmaWr(IBV_WR_RDMA_READ, 2, y, 20 * 1024), kRead, 3500);                         // 4
  post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, y, kCounter, 5), kAnswers, 8);          // 1
  post(SendWr(IBV_WR_SEND_WITH_IMM, 4), 6000, 100);                                     // 1
  post(AtomicWr(IBV_WR_ATOMIC_CMP_AND_SWP, 5, y, kCounter, 1005, 7), kAnswers + 8, 8);  // 1
  post(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 6, y, 16384), 8000, 1500);                    // 2
  post(RdmaWr(IBV_WR_RDMA_READ, 7, y, 16384), kRead + 4096, 1500);  // 2, what request 6 wrote
  post(AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, y, kCounter, 1), kAnswers + 16, 8);  // 1
  world.Ring(x);
  world.Run();
  world.Release();
  world.Run();

  const auto sent = x.Sent(), received = y.Received();
  EXPECT_EQ(sent.size(), 9u);
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(sent[i].status, uint32_t{IBV_WC_SUCCESS});
  }
  EXPECT_EQ(received.size(), 3u);
  const uint32_t lengths[] = {3000, 100, 1500};
  for (size_t i = 0; i < std::min<size_t>(3, received.size()); ++i) {
    EXPECT_EQ(received[i].wr_id, 100 + i);
    EXPECT_EQ(received[i].byte_len, lengths[i]);
    EXPECT_EQ(received[i].status, uint32_t{IBV_WC_SUCCESS});
  }
  const auto same = [](const Endpoint& e, size_t at, const Endpoint& from, size_t begin, size_t n) {
    return std::memcmp(e.buffer.data() + at, from.buffer.data() + begin, n) == 0;
  };
  EXPECT_TRUE(same(y, 0, x, 0, 3000)) << "SEND";
  EXPECT_TRUE(same(y, 12288, x, 3000, 2500)) << "WRITE";
  EXPECT_TRUE(same(x, kRead, y, 20 * 1024, 3500)) << "READ";
  EXPECT_TRUE(same(y, 4096, x, 6000, 100)) << "SEND with immediate";
  EXPECT_TRUE(same(y, 16384, x, 8000, 1500)) << "WRITE with immediate";
  EXPECT_TRUE(same(x, kRead + 4096, x, 8000, 1500)) << "READ of what was written";
  EXPECT_EQ(WordAt(x, kAnswers), 1000u);
  EXPECT_EQ(WordAt(x, kAnswers + 8), 1005u);
  EXPECT_EQ(WordAt(x, kAnswers + 16), 7u);
  EXPECT_EQ(WordAt(y, kCounter), 8u);
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
  EXPECT_EQ(y.qp->state(), IBV_QPS_RTS);
  EXPECT_TRUE(x.qp->send_ring.Empty());
  for (Endpoint* e : {&x, &y}) {
    world.SetState(*e, IBV_QPS_RESET);
    std::ranges::fill(e->buffer, std::byte{0});
  }
  world.packets.clear();
  world.seen.clear();
  return count;
}

constexpr Fate kFates[] = {Fate::kDrop, Fate::kDuplicate, Fate::kHold};

TEST_F(RcEveryPacket, AnyOneIsLostRepeatedOrLate) {
  for (size_t nth = 0; nth < packets; ++nth) {
    for (const Fate what : kFates) {
      if (!Survives({{nth, what}})) return;
    }
  }
}

TEST_F(RcEveryPacket, AnyTwoAreLostOrRepeated) {
  for (size_t first = 0; first < packets; ++first) {
    for (size_t second = first + 1; second < packets + 6; ++second) {
      if (!Survives({{first, Fate::kDrop}, {second, Fate::kDrop}})) return;
      if (!Survives({{first, Fate::kDrop}, {second, Fate::kDuplicate}})) return;
      if (!Survives({{first, Fate::kDuplicate}, {second, Fate::kDrop}})) return;
      if (!Survives({{first, Fate::kHold}, {second, Fate::kDrop}})) return;
    }
  }
}

// IBTA 9.7.2: PSNs wrap from 0xffffff to 0 at any point of a message.
TEST_F(RcEveryPacket, ThePsnsWrapAnywhereInTheProgram) {
  for (uint32_t before = 0; before <= kPsns; ++before) {
    if (!Survives({}, PsnAdd(0, 0x1000000 - before), PsnAdd(0, 0xffffff))) return;
  }
}

TEST_F(RcEveryPacket, AnyOneIsLostRepeatedOrLateWhileThePsnsWrap) {
  for (uint32_t before = 1; before < kPsns; ++before) {
    for (size_t nth = 0; nth < packets; ++nth) {
      for (const Fate what : kFates) {
        if (!Survives({{nth, what}}, PsnAdd(0, 0x1000000 - before))) return;
      }
    }
  }
}

}  // namespace
}  // namespace rdmaemu::transport::testing
