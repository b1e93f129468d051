// ATOMIC WRITE (IBTA annex A19): 8 bytes in one packet. The response is an empty READ response. On
// devices without the operation nothing is sent, and nothing is executed.
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;

constexpr uint64_t kWord = 0x8877665544332211;

void Serve(Node& node) {
  node.verbs.DeviceByIndex(0)->profile.device.device_cap_flags_ex |= kDeviceCapAtomicWrite;
}
void PostWord(Endpoint& from, uint64_t wr_id, const Endpoint& to, size_t offset,
              uint64_t word = kWord) {
  std::memcpy(from.buffer.data(), &word, sizeof word);
  // The word is where inline data would be.
  from.Post(RdmaWr(IBV_WR_ATOMIC_WRITE, wr_id, to, offset, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
            {from.Sge(0, sizeof word)});
}
uint64_t WordIn(const Endpoint& e, size_t offset) {
  uint64_t word;
  std::memcpy(&word, e.buffer.data() + offset, sizeof word);
  return word;
}

// ---- two engines, on one host and on two

class AtomicWrite : public ::testing::TestWithParam<bool> {
 protected:
  AtomicWrite() : world(GetParam()) {
    Serve(world.a);
    Serve(world.b());
  }
  void Join(const Link& link = {}) {
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.b(), IBV_QPT_RC, 4096);
    world.Join(x, y, link);
  }
  void Run() {
    world.Ring(x);
    world.Run();
  }
  uint32_t StatusOfOne() {
    const auto sent = x.Sent();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? UINT32_MAX : sent[0].status;
  }
  World world;
  Endpoint x{}, y{};
};
INSTANTIATE_TEST_SUITE_P(Hosts, AtomicWrite, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST_P(AtomicWrite, WritesItsWordAndCompletes) {
  Join();
  PostWord(x, 7, y, 64);
  Run();
  EXPECT_EQ(WordIn(y, 64), kWord);
  EXPECT_EQ(WordIn(y, 56), 0u);
  EXPECT_EQ(WordIn(y, 72), 0u);
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 7u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[0].opcode, uint32_t{IBV_WC_ATOMIC_WRITE});
  EXPECT_EQ(sent[0].byte_len, 8u);
  EXPECT_TRUE(y.Received().empty());
  if (!GetParam()) {
    EXPECT_EQ(world.seen, (std::vector<std::string>{"RC ATOMIC WRITE", "RC READ Response Only"}));
  }
}

// The requester has at most max_rd_atomic of them in flight, as of READs and atomics.
TEST_P(AtomicWrite, ManyAreExecutedInOrderBetweenOtherRequests) {
  Join({.rd_atomic = 1});
  for (uint64_t i = 0; i < 20; ++i) {
    PostWord(x, i, y, 64, i + 1);
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 100 + i, y, 64), {x.Sge(256 + 8 * i, 8)});
  }
  Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 40u);
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(sent[2 * i].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_EQ(WordIn(x, 256 + 8 * i), i + 1) << "the READ after the write";
  }
}

TEST_P(AtomicWrite, NeedsTheRightsOfAWrite) {
  for (const int access : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
    SCOPED_TRACE(access);
    Join({.access = access});
    PostWord(x, 1, y, 64);
    Run();
    const bool allowed = access == IBV_ACCESS_REMOTE_WRITE;
    EXPECT_EQ(StatusOfOne(), uint32_t{allowed ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR});
    EXPECT_EQ(WordIn(y, 64), allowed ? kWord : 0);
  }
}

TEST_P(AtomicWrite, IsRefusedOutsideItsRegionAndWithoutItsKey) {
  for (const bool bad_key : {false, true}) {
    SCOPED_TRACE(bad_key);
    Join();
    rxe_send_wr wr =
        RdmaWr(IBV_WR_ATOMIC_WRITE, 1, y, bad_key ? 64 : 4096, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    if (bad_key) wr.wr.rdma.rkey ^= 0x300;
    x.Post(wr, {x.Sge(0, 8)});
    Run();
    EXPECT_EQ(StatusOfOne(), uint32_t{IBV_WC_REM_ACCESS_ERR});
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
  }
}

// IBTA A19.4.2; rxe: RESPST_ERR_MISALIGNED_ATOMIC.
TEST_P(AtomicWrite, MustBeAligned) {
  Join();
  PostWord(x, 1, y, 68);
  Run();
  EXPECT_EQ(StatusOfOne(), uint32_t{IBV_WC_REM_INV_REQ_ERR});
  EXPECT_EQ(WordIn(y, 68), 0u);
}

TEST_P(AtomicWrite, OfAnotherLengthIsALocalError) {
  for (const uint32_t bytes : {0u, 7u, 9u, 16u}) {
    SCOPED_TRACE(bytes);
    Join();
    x.Post(RdmaWr(IBV_WR_ATOMIC_WRITE, 1, y, 64, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
           {x.Sge(0, bytes)});
    Run();
    EXPECT_EQ(StatusOfOne(), uint32_t{IBV_WC_LOC_QP_OP_ERR});
  }
}

TEST_P(AtomicWrite, IsALocalErrorOnADeviceWithoutIt) {
  world.a.verbs.DeviceByIndex(0)->profile.device.device_cap_flags_ex = 0;
  Join();
  PostWord(x, 1, y, 64);
  Run();
  EXPECT_EQ(StatusOfOne(), uint32_t{IBV_WC_LOC_QP_OP_ERR});
  EXPECT_EQ(WordIn(y, 64), 0u);
}

TEST_P(AtomicWrite, IsOnlyForReliableConnections) {
  x = world.Make(world.a, IBV_QPT_UC, 4096);
  y = world.Make(world.b(), IBV_QPT_UC, 4096);
  world.Join(x, y);
  PostWord(x, 1, y, 64);
  Run();
  EXPECT_EQ(StatusOfOne(), uint32_t{IBV_WC_LOC_QP_OP_ERR});
}

// ---- loss on the wire

class AtomicWriteOnTheWire : public ScriptedPeer {
 protected:
  AtomicWriteOnTheWire() {
    Serve(world.a);
    Serve(*world.other);
  }
  static std::vector<std::byte> Bytes(uint64_t word) {
    std::vector<std::byte> bytes(sizeof word);
    std::memcpy(bytes.data(), &word, sizeof word);
    return bytes;
  }
  void ExpectResponse(const std::vector<Out>& all, uint32_t psn, uint32_t msn) {
    const Out one = One(all);
    EXPECT_EQ(one.name, "RC READ Response Only");
    EXPECT_EQ(one.headers.psn, psn);
    EXPECT_EQ(one.headers.msn, msn);
    EXPECT_EQ(one.headers.syndrome, wire::kAethUnlimitedCredits);
    EXPECT_TRUE(one.payload.empty());
  }
  void ExpectRefused(const wire::PacketHeaders& headers, std::span<const std::byte> payload,
                     wire::NakCode code) {
    ExpectAck(Say(headers, payload), headers.psn, 0, Nak(code));
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
    EXPECT_EQ(WordAt(64), 0u);
  }
  std::vector<Out> PostOne() {
    PostWord(x, 7, y, 64);
    world.Ring(x);
    return Hear();
  }
  wire::PacketHeaders Response(uint32_t psn) const {
    auto headers = Packet(kReadResponseOnly, psn);
    headers.syndrome = wire::kAethUnlimitedCredits;
    return headers;
  }
};

TEST_F(AtomicWriteOnTheWire, IsOnePacketWithARethAndEightBytes) {
  Begin();
  const Out one = One(PostOne());
  EXPECT_EQ(one.name, "RC ATOMIC WRITE");
  EXPECT_EQ(one.headers.psn, kOwnPsn);
  EXPECT_TRUE(one.headers.ack_request);
  EXPECT_EQ(one.headers.remote_address, y.At(64));
  EXPECT_EQ(one.headers.rkey, y.mr->rkey);
  EXPECT_EQ(one.headers.dma_length, 8u);
  EXPECT_EQ(one.payload, Bytes(kWord));
}

TEST_F(AtomicWriteOnTheWire, CompletesWithAnEmptyReadResponseOnly) {
  Begin();
  PostOne();
  // An ACK that covers the request means that its response is lost.
  EXPECT_EQ(One(Say(Ack(kOwnPsn))).name, "RC ATOMIC WRITE");
  EXPECT_TRUE(x.Sent().empty());
  Say(Response(kOwnPsn));
  ASSERT_EQ(x.Sent().size(), 1u);
  PostOne();
  Say(Response(kOwnPsn + 1), Bytes(kWord));
  EXPECT_EQ(x.Sent().at(0).status, uint32_t{IBV_WC_BAD_RESP_ERR});
}

TEST_F(AtomicWriteOnTheWire, IsSentAgainWhenItsResponseIsLost) {
  Begin();
  PostOne();
  const Out again = One(HearLater());
  EXPECT_EQ(again.headers.psn, kOwnPsn);
  EXPECT_EQ(again.payload, Bytes(kWord));
  Say(Response(kOwnPsn));
  EXPECT_EQ(x.Sent().at(0).status, uint32_t{IBV_WC_SUCCESS});
}

TEST_F(AtomicWriteOnTheWire, IsExecutedOnceAndItsResponseRepeated) {
  Begin();
  const auto request = Remote(kAtomicWrite, kPeerPsn, 64, 8);
  ExpectResponse(Say(request, Bytes(kWord)), kPeerPsn, 1);
  EXPECT_EQ(WordAt(64), kWord);
  SetWord(64, 5);
  ExpectResponse(Say(request, Bytes(kWord)), kPeerPsn, 1);
  EXPECT_EQ(WordAt(64), 5u);
  // Another kind of request with its PSN is no repetition.
  EXPECT_TRUE(Say(Atomic(kFetchAdd, kPeerPsn, 64, 1)).empty());
  EXPECT_TRUE(Say(Remote(kReadRequest, kPeerPsn, 64, 8)).empty());
  ExpectResponse(Say(Remote(kAtomicWrite, kPeerPsn + 1, 64, 8), Bytes(9)), kPeerPsn + 1, 2);
  EXPECT_EQ(WordAt(64), 9u);
}

// IBTA oA19-28: the payload has exactly 8 bytes.
TEST_F(AtomicWriteOnTheWire, OfAnotherLengthIsInvalid) {
  const struct {
    uint32_t announced;
    size_t payload;
  } cases[] = {{8, 4}, {8, 7}, {8, 9}, {8, 16}, {8, 0}, {4, 4}, {16, 16}, {16, 8}, {0, 0}, {7, 8}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.announced) + ", " + std::to_string(c.payload));
    Begin();
    ExpectRefused(Remote(kAtomicWrite, kPeerPsn, 64, c.announced),
                  std::vector<std::byte>(c.payload, std::byte{1}), wire::NakCode::kInvalidRequest);
  }
}

TEST_F(AtomicWriteOnTheWire, InsideAMessageIsInvalid) {
  Begin();
  Say(Remote(kWriteFirst, kPeerPsn, 2048, 2048), std::vector<std::byte>(1024));
  ExpectRefused(Remote(kAtomicWrite, kPeerPsn + 1, 64, 8), Bytes(kWord),
                wire::NakCode::kInvalidRequest);
}

TEST_F(AtomicWriteOnTheWire, WithoutResponderResourcesIsInvalid) {
  Begin({.rd_atomic = 0});
  ExpectRefused(Remote(kAtomicWrite, kPeerPsn, 64, 8), Bytes(kWord),
                wire::NakCode::kInvalidRequest);
}

TEST_F(AtomicWriteOnTheWire, IsAnUnknownOpcodeToADeviceWithoutIt) {
  Begin();
  x.qp->device->profile.device.device_cap_flags_ex = 0;
  EXPECT_TRUE(Say(Remote(kAtomicWrite, kPeerPsn, 64, 8), Bytes(kWord)).empty());
  EXPECT_EQ(WordAt(64), 0u);
  EXPECT_EQ(world.a.engine.counters().dropped_bad_opcode, 1u);
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
