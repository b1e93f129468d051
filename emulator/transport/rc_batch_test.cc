// Packets that arrive together have the effects of single packets. Memory, completions and
// responses are the same whatever was lost, duplicated, reordered or damaged. Only acknowledgements
// differ, because a batch sends just the last one.
#include "emulator/base/random.h"
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;
constexpr uint32_t kMtuBytes = 256;

struct Answer {
  std::string name;
  uint32_t psn, msn;
  uint8_t syndrome;
  std::vector<std::byte> payload;
  bool operator==(const Answer&) const = default;

  bool IsPlainAck() const {
    return name == "RC Acknowledge" && syndrome == wire::kAethUnlimitedCredits;
  }
};

std::vector<Answer> WithoutPlainAcks(std::vector<Answer> answers) {
  std::erase_if(answers, [](const Answer& answer) { return answer.IsPlainAck(); });
  return answers;
}

// A sender, whose packets the test carries, and a receiver.
struct Pair {
  Pair() : world(false) {
    x = world.Make(world.a, IBV_QPT_RC, kBufferBytes);
    y = world.Make(world.b(), IBV_QPT_RC, kBufferBytes);
    FillPattern(x.buffer, 1);
    world.Join(x, y, {.mtu = IBV_MTU_256});
  }
  static std::vector<Datagram> Take(Node& node) {
    std::vector<Datagram> taken(std::make_move_iterator(node.out.begin()),
                                std::make_move_iterator(node.out.end()));
    node.out.clear();
    return taken;
  }
  static std::vector<wire::Packet> Parsed(const std::vector<Datagram>& datagrams) {
    std::vector<wire::Packet> packets;
    for (const Datagram& datagram : datagrams) packets.push_back(*wire::Parse(datagram.bytes));
    return packets;
  }
  // Returns the packets that the sender sends for all posts, up to its window.
  std::vector<wire::Packet> Send() {
    world.Ring(x);
    while (world.a.engine.Work(world.now)) {
    }
    sent = Take(world.a);
    return Parsed(sent);
  }
  // Delivers the packets, all together or one by one, then lets the receiver work.
  static void Deliver(World& world, Node& from, Node& to, std::span<const wire::Packet> packets,
                      bool together) {
    const wire::UdpFlow flow{from.address, to.address, 4791, 4791};
    if (together) {
      to.engine.Receive(world.now, flow, packets);
    } else {
      for (const wire::Packet& packet : packets) to.engine.Receive(world.now, flow, {&packet, 1});
    }
    while (to.engine.Work(world.now)) {
    }
  }
  std::vector<Answer> Answers() {
    std::vector<Answer> answers;
    for (const Datagram& datagram : world.b().out) {
      const wire::Packet packet = *wire::Parse(datagram.bytes);
      answers.push_back({packet.headers.info().name,
                         packet.headers.psn,
                         packet.headers.msn,
                         packet.headers.syndrome,
                         {packet.payload.begin(), packet.payload.end()}});
    }
    return answers;
  }

  World world;
  Endpoint x, y;
  std::vector<Datagram> sent;
};

void PostSome(Pair& pair, Random& random) {
  for (uint64_t i = 0; i < 20; ++i) {
    const uint32_t bytes = random.Below(4) == 0 ? random.Below(64) : random.Below(12 * kMtuBytes);
    const size_t from = random.Below(kBufferBytes / 2), to = random.Below(kBufferBytes / 2);
    switch (random.Below(6)) {
      case 0:
      case 1:
        pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE, i, pair.y, to), {pair.x.Sge(from, bytes)});
        break;
      case 2:
        pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, i, pair.y, to), {pair.x.Sge(from, bytes)});
        break;
      case 3:
        pair.x.Post(RdmaWr(IBV_WR_RDMA_READ, i, pair.y, to), {pair.x.Sge(from, bytes)});
        break;
      default:
        pair.x.Post(SendWr(IBV_WR_SEND, i), {pair.x.Sge(from, bytes)});
    }
  }
  // Some receives are missing or too small.
  for (uint64_t i = 0; i < 16 + random.Below(8); ++i) {
    const uint32_t room = random.Below(12) == 0 ? 5 * kMtuBytes : 12 * kMtuBytes;
    pair.y.PostReceive(i, {pair.y.Sge(random.Below(kBufferBytes / 2), room / 2),
                           pair.y.Sge(kBufferBytes / 2, room / 2)});
  }
}

// Returns an order of packets as a bad wire makes it.
std::vector<size_t> Shuffled(size_t count, Random& random) {
  std::vector<size_t> order;
  const uint32_t quiet = 1 + random.Below(60);  // approximate packets between disturbances
  for (size_t i = 0; i < count && order.size() < 4 * count; ++i) {
    const uint32_t what = random.Below(4 * quiet);
    if (what == 0) continue;
    order.push_back(i);
    if (what == 1) order.push_back(i);
    if (what == 2 && order.size() > 1) std::swap(order.back(), order[order.size() - 2]);
    if (what == 3) i = random.Below(static_cast<uint32_t>(i + 1));  // a go-back
  }
  return order;
}

void Break(wire::Packet& packet, Random& random) {
  wire::PacketHeaders& headers = packet.headers;
  switch (random.Below(8)) {
    case 0:
      headers.operation = wire::Operation::kWriteMiddle;
      break;
    case 1:
      headers.operation = wire::Operation::kSendLast;
      break;
    case 2:
      headers.operation = wire::Operation::kWriteLast;
      break;
    case 3:
      packet.payload = packet.payload.first(packet.payload.size() / 2);
      break;
    case 4:
      headers.rkey ^= 1;
      break;
    case 5:
      headers.pkey = 0x1234;
      break;
    case 6:
      headers.remote_address += kBufferBytes;
      break;
    default:
      headers.dma_length += 4;
  }
}

void ExpectSameCompletions(const std::vector<ib_uverbs_wc>& expected,
                           const std::vector<ib_uverbs_wc>& got) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].wr_id, expected[i].wr_id);
    EXPECT_EQ(got[i].status, expected[i].status);
    EXPECT_EQ(got[i].opcode, expected[i].opcode);
    EXPECT_EQ(got[i].byte_len, expected[i].byte_len);
    EXPECT_EQ(got[i].wc_flags, expected[i].wc_flags);
  }
}

// A batch sends the same responses without some of the acknowledgements, but never without the
// last.
void ExpectSameAnswers(const std::vector<Answer>& expected, const std::vector<Answer>& got) {
  EXPECT_EQ(WithoutPlainAcks(got), WithoutPlainAcks(expected));
  size_t next = 0;
  for (const Answer& answer : got) {
    while (next < expected.size() && !(expected[next] == answer)) next++;
    ASSERT_LT(next, expected.size()) << answer.name << " " << answer.psn;
    next++;
  }
  ASSERT_EQ(got.empty(), expected.empty());
  if (got.empty()) return;
  EXPECT_EQ(got.back(), expected.back());
}

TEST(RcBatch, AReceiverOfBatchesEndsWhereAReceiverOfSinglePacketsDoes) {
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair single, batched;
    for (Pair* pair : {&single, &batched}) {
      Random random(seed);
      PostSome(*pair, random);
      if (random.Below(3) == 0) {  // a page that is unmapped before the bytes arrive
        pair->world.b().memory.holes.push_back(
            {{pair->y.At(random.Below(kBufferBytes)), kMtuBytes}});
      }
      const std::vector<wire::Packet> packets = pair->Send();
      const std::vector<size_t> order = Shuffled(packets.size(), random);
      const size_t broken = random.Below(2) == 0 ? random.Below(100) : SIZE_MAX;
      std::vector<wire::Packet> arriving;
      for (const size_t i : order) {
        arriving.push_back(packets[i]);
        if (arriving.size() - 1 == broken) Break(arriving.back(), random);
      }
      for (std::span<const wire::Packet> left = arriving; !left.empty();) {
        const size_t count = std::min<size_t>(left.size(), 1 + random.Below(50));
        Pair::Deliver(pair->world, pair->world.a, pair->world.b(), left.first(count),
                      pair == &batched);
        left = left.subspan(count);
      }
    }
    EXPECT_TRUE(single.y.buffer == batched.y.buffer);
    EXPECT_EQ(single.y.qp->state(), batched.y.qp->state());
    ExpectSameCompletions(single.y.Received(), batched.y.Received());
    ExpectSameAnswers(single.Answers(), batched.Answers());
    const EngineCounters &one = single.world.b().engine.counters(),
                         &many = batched.world.b().engine.counters();
    EXPECT_EQ(one.packets_received, many.packets_received);
    EXPECT_EQ(one.duplicates, many.duplicates);
    EXPECT_EQ(one.naks, many.naks);
    EXPECT_EQ(one.rnr_naks, many.rnr_naks);
    EXPECT_EQ(one.dropped_wrong_pkey, many.dropped_wrong_pkey);
    EXPECT_EQ(one.dropped_wrong_state, many.dropped_wrong_state);
  }
}

// The same for a requester that gets batches of READ responses. It may have sent a different
// amount. Its window grows with every response that found the window full, and a batch is one
// response.
TEST(RcBatch, ARequesterOfBatchesEndsWhereARequesterOfSinglePacketsDoes) {
  for (uint64_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair single, batched;
    for (Pair* pair : {&single, &batched}) {
      Random random(seed);
      FillPattern(pair->y.buffer, 5);
      PostSome(*pair, random);
      Pair::Deliver(pair->world, pair->world.a, pair->world.b(), pair->Send(), true);
      if (random.Below(3) == 0) {
        pair->world.a.memory.holes.push_back({{pair->x.At(random.Below(kBufferBytes)), kMtuBytes}});
      }
      const std::vector<Datagram> answers = Pair::Take(pair->world.b());
      const std::vector<wire::Packet> packets = Pair::Parsed(answers);
      std::vector<wire::Packet> arriving;
      for (const size_t i : Shuffled(packets.size(), random)) arriving.push_back(packets[i]);
      for (std::span<const wire::Packet> left = arriving; !left.empty();) {
        const size_t count = std::min<size_t>(left.size(), 1 + random.Below(50));
        Pair::Deliver(pair->world, pair->world.b(), pair->world.a, left.first(count),
                      pair == &batched);
        left = left.subspan(count);
      }
    }
    EXPECT_TRUE(single.x.buffer == batched.x.buffer);
    EXPECT_EQ(single.x.qp->state(), batched.x.qp->state());
    ExpectSameCompletions(single.x.Sent(), batched.x.Sent());
    EXPECT_EQ(single.world.a.engine.counters().retransmissions,
              batched.world.a.engine.counters().retransmissions);
  }
}

// The packets of a message cause one acknowledgement and one write to program memory.
TEST(RcBatch, ConsecutivePacketsMoveTogether) {
  Pair pair;
  pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, pair.y, 0), {pair.x.Sge(0, 40 * kMtuBytes)});
  pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 2, pair.y, 40 * kMtuBytes),
              {pair.x.Sge(40 * kMtuBytes, 3 * kMtuBytes)});
  const std::vector<wire::Packet> packets = pair.Send();
  ASSERT_EQ(packets.size(), 43u);
  const size_t before = pair.world.b().memory.gathered_writes;
  Pair::Deliver(pair.world, pair.world.a, pair.world.b(), packets, true);
  EXPECT_EQ(pair.world.b().memory.gathered_writes - before, 2u);
  const std::vector<Answer> answers = pair.Answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn, packets.back().headers.psn);
  EXPECT_TRUE(std::equal(pair.x.buffer.begin(), pair.x.buffer.begin() + 43 * kMtuBytes,
                         pair.y.buffer.begin()));
}

// C9-105: the NAK names the packet that could not be written. The packets before it are in memory.
TEST(RcBatch, AFaultInTheMiddleIsThePacketsOwn) {
  Pair pair;
  const std::vector<std::byte> untouched = pair.y.buffer;
  pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, pair.y, 0), {pair.x.Sge(0, 30 * kMtuBytes)});
  const std::vector<wire::Packet> packets = pair.Send();
  pair.world.b().memory.holes.push_back({{pair.y.At(17 * kMtuBytes + 9), 1}});
  Pair::Deliver(pair.world, pair.world.a, pair.world.b(), packets, true);
  const std::vector<Answer> answers = pair.Answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].psn, packets[17].headers.psn);
  EXPECT_EQ(answers[0].syndrome, 0x60 | static_cast<uint8_t>(wire::NakCode::kRemoteAccess));
  const auto place = [&](size_t packet) {
    return pair.y.buffer.begin() + static_cast<ptrdiff_t>(packet * kMtuBytes);
  };
  EXPECT_TRUE(std::equal(place(0), place(17), pair.x.buffer.begin()));
  EXPECT_TRUE(std::equal(place(17), pair.y.buffer.end(), untouched.begin() + 17 * kMtuBytes));
}

TEST(RcBatch, EachPacketOfABatchCounts) {
  for (const bool together : {true, false}) {
    Pair pair;
    pair.x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, pair.y, 0), {pair.x.Sge(0, 1000)});
    pair.x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, pair.y, 0), {pair.x.Sge(0, 1000)});
    const std::vector<wire::Packet> requests = pair.Send();
    Pair::Deliver(pair.world, pair.world.a, pair.world.b(), requests, together);
    EXPECT_EQ(pair.y.qp->device->counters.rcvd_pkts, requests.size());
    const std::vector<Datagram> answers = Pair::Take(pair.world.b());
    Pair::Deliver(pair.world, pair.world.b(), pair.world.a, Pair::Parsed(answers), together);
    EXPECT_EQ(pair.x.qp->device->counters.rcvd_pkts, answers.size());
    EXPECT_EQ(pair.x.Sent().size(), 2u);
  }
}

}  // namespace
}  // namespace rdmaemu::transport::testing
