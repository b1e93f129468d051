// FLUSH (IBTA annex A19): a request without data. The response is an empty READ response. A region
// is flushed in a range or as a whole, for global visibility or persistence.
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;

constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | kAccessFlush;

void ServeFlush(Node& node) {
  Profile& profile = node.verbs.DeviceByIndex(0)->profile;
  profile.device.device_cap_flags_ex |= kDeviceCapFlushGlobal | kDeviceCapFlushPersistent;
  profile.has_persistent_memory = true;
}
// Replaces the endpoint's region by one with these rights.
void Reregister(Endpoint& e, int access) {
  e.mr = *e.node->verbs.RegMr(kGroup, kProcess,
                              {e.node->pd->handle, access, e.At(0), e.buffer.size(), e.At(0)});
}

struct FlushSpec {
  size_t offset = 64;
  uint32_t length = 8;
  uint8_t placement = kFlushGlobal;
  uint8_t selectivity = kFlushRange;
  uint32_t key_bits = 0;  // wrong bits of the rkey
};

void PostFlush(Endpoint& from, uint64_t wr_id, const Endpoint& to, const FlushSpec& spec) {
  rxe_send_wr wr = SendWr(static_cast<ibv_wr_opcode>(kWrFlush), wr_id);
  const FlushRequest flush{to.At(spec.offset), 0, to.mr->rkey ^ spec.key_bits, spec.placement,
                           spec.selectivity};
  std::memcpy(&wr.wr, &flush, sizeof flush);
  Ring& ring = from.qp->send_ring;
  const uint32_t at = ring.Producer();
  from.Post(wr, {});
  ring.SlotAs<SendEntry>(at)->length = spec.length;
}

// ---- two engines, on one host and on two

class Flush : public ::testing::TestWithParam<bool> {
 protected:
  Flush() : world(GetParam()) {
    ServeFlush(world.a);
    ServeFlush(world.b());
  }
  void Join(Link link = {.access = kRights}, int region = kRights) {
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.b(), IBV_QPT_RC, 4096);
    Reregister(y, region);
    world.Join(x, y, link);
  }
  // Returns the status of one FLUSH.
  uint32_t StatusOf(const FlushSpec& spec) {
    PostFlush(x, 7, y, spec);
    world.Ring(x);
    world.Run();
    const auto sent = x.Sent();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? UINT32_MAX : sent[0].status;
  }
  World world;
  Endpoint x{}, y{};
};
INSTANTIATE_TEST_SUITE_P(Hosts, Flush, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

TEST_P(Flush, CompletesAfterTheWritesBeforeIt) {
  Join();
  std::memset(x.buffer.data(), 0x5a, 3000);
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0, 0), {x.Sge(0, 3000)});
  PostFlush(x, 7, y, {.offset = 0, .length = 3000});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].wr_id, 7u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[0].opcode, kWcFlush);
  EXPECT_EQ(sent[0].byte_len, 3000u);
  EXPECT_EQ(y.buffer[2999], std::byte{0x5a});
  if (!GetParam()) {
    EXPECT_EQ(world.seen.back(), "RC READ Response Only");
    EXPECT_EQ(std::ranges::count(world.seen, "RC FLUSH"), 1);
  }
}

// rxe's check_init_depth does not count them.
TEST_P(Flush, MoreMayBeInFlightThanReads) {
  Join({.rd_atomic = 1, .access = kRights});
  for (uint64_t i = 0; i < 30; ++i) PostFlush(x, i, y, {});
  world.Ring(x);
  world.Run();
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 30u);
  for (uint64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(sent[i].wr_id, i);
    EXPECT_EQ(sent[i].status, uint32_t{IBV_WC_SUCCESS});
  }
}

// rxe's check_qp_attr_access: each placement needs its right of the QP, and none needs none.
TEST_P(Flush, EachPlacementNeedsItsRightOfTheQp) {
  const uint8_t both = kFlushGlobal | kFlushPersistent;
  for (const uint8_t placement : {uint8_t{0}, kFlushGlobal, kFlushPersistent, both}) {
    for (const int access : {0, kAccessFlushGlobal, kAccessFlushPersistent, kAccessFlush}) {
      SCOPED_TRACE(std::to_string(placement) + ", " + std::to_string(access));
      Join({.access = access});
      const bool allowed = (placement & ~(access >> 8)) == 0;
      EXPECT_EQ(StatusOf({.placement = placement}),
                uint32_t{allowed ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR});
    }
  }
}

TEST_P(Flush, EachPlacementNeedsItsRightOfTheRegion) {
  for (const uint8_t placement : {kFlushGlobal, kFlushPersistent}) {
    for (const int access : {kAccessFlushGlobal, kAccessFlushPersistent, kAccessFlush}) {
      SCOPED_TRACE(std::to_string(placement) + ", " + std::to_string(access));
      Join({.access = kRights}, access);
      const bool allowed = (placement & ~(access >> 8)) == 0;
      EXPECT_EQ(StatusOf({.placement = placement}),
                uint32_t{allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR});
    }
  }
}

TEST_P(Flush, ARangeMustBeInsideItsRegionAndAWholeRegionHasNoRange) {
  const struct {
    FlushSpec spec;
    bool fits;
  } cases[] = {{{.offset = 0, .length = 4096}, true},
               {{.offset = 4088, .length = 8}, true},
               {{.offset = 4089, .length = 8}, false},
               {{.offset = 4096, .length = 0}, true},
               {{.offset = 4097, .length = 0}, false},
               {{.offset = 9000, .length = 8, .selectivity = kFlushRegion}, true},
               {{.key_bits = 0x300}, false},
               {{.length = 0, .key_bits = 0x300}, false},
               {{.selectivity = kFlushRegion, .key_bits = 0x300}, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.spec.offset) + ", " + std::to_string(c.spec.length));
    Join();
    EXPECT_EQ(StatusOf(c.spec), uint32_t{c.fits ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR});
  }
}

TEST_P(Flush, IsALocalErrorOnADeviceWithoutIt) {
  world.a.verbs.DeviceByIndex(0)->profile.device.device_cap_flags_ex = 0;
  x = world.Make(world.a, IBV_QPT_RC, 4096);
  y = world.Make(world.b(), IBV_QPT_RC, 4096);
  world.Join(x, y, {.access = kRights});
  EXPECT_EQ(StatusOf({}), uint32_t{IBV_WC_LOC_QP_OP_ERR});
}

// ---- packets by hand

class FlushOnTheWire : public ScriptedPeer {
 protected:
  FlushOnTheWire() {
    ServeFlush(world.a);
    ServeFlush(*world.other);
  }
  void Prepare(Link link = {.access = kRights}) {
    Begin(link);
    Reregister(x, kRights);
  }
  wire::PacketHeaders FlushPacket(uint32_t psn) const {
    auto headers = Remote(kFlush, psn, 64, 8);
    headers.placement = kFlushGlobal;
    return headers;
  }
  void ExpectResponse(const std::vector<Out>& all, uint32_t psn, uint32_t msn) {
    const Out one = One(all);
    EXPECT_EQ(one.name, "RC READ Response Only");
    EXPECT_EQ(one.headers.psn, psn);
    EXPECT_EQ(one.headers.msn, msn);
    EXPECT_TRUE(one.payload.empty());
  }
};

TEST_F(FlushOnTheWire, IsOnePacketWithAFethAndAReth) {
  Prepare();
  PostFlush(x, 7, y, {.length = 100, .placement = kFlushPersistent, .selectivity = kFlushRegion});
  world.Ring(x);
  const Out one = One(Hear());
  EXPECT_EQ(one.name, "RC FLUSH");
  EXPECT_EQ(one.headers.psn, kOwnPsn);
  EXPECT_TRUE(one.headers.ack_request);
  EXPECT_EQ(one.headers.placement, kFlushPersistent);
  EXPECT_EQ(one.headers.selectivity, kFlushRegion);
  EXPECT_EQ(one.headers.remote_address, y.At(64));
  EXPECT_EQ(one.headers.rkey, y.mr->rkey);
  EXPECT_EQ(one.headers.dma_length, 100u);
  EXPECT_TRUE(one.payload.empty());
  // An ACK that covers the request means that its response is lost.
  EXPECT_EQ(One(Say(Ack(kOwnPsn))).name, "RC FLUSH");
  EXPECT_TRUE(x.Sent().empty());
}

TEST_F(FlushOnTheWire, IsSentAgainWhenItsResponseIsLost) {
  Prepare();
  PostFlush(x, 7, y, {});
  world.Ring(x);
  One(Hear());
  EXPECT_EQ(One(HearLater()).headers.psn, kOwnPsn);
  auto response = Packet(kReadResponseOnly, kOwnPsn);
  response.syndrome = wire::kAethUnlimitedCredits;
  Say(response);
  EXPECT_EQ(x.Sent().at(0).status, uint32_t{IBV_WC_SUCCESS});
}

// rxe's duplicate_request: the response is repeated, also when the region is gone.
TEST_F(FlushOnTheWire, IsExecutedOnceAndItsResponseRepeated) {
  Prepare();
  const auto request = FlushPacket(kPeerPsn);
  const auto read = Remote(kReadRequest, kPeerPsn, 64, 8);
  ExpectResponse(Say(request), kPeerPsn, 1);
  ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, x.mr->handle));
  ExpectResponse(Say(request), kPeerPsn, 1);
  EXPECT_TRUE(Say(read).empty());
}

TEST_F(FlushOnTheWire, OfMoreThanTheLargestMessageIsInvalid) {
  Prepare();
  x.qp->device->profile.refuses_long_requests = true;
  x.qp->device->profile.port.max_msg_sz = 64;
  auto request = FlushPacket(kPeerPsn);
  request.dma_length = 65;
  ExpectAck(Say(request), kPeerPsn, 0, Nak(wire::NakCode::kInvalidRequest));
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
}

TEST_F(FlushOnTheWire, WithoutResponderResourcesIsInvalid) {
  Prepare({.rd_atomic = 0, .access = kRights});
  ExpectAck(Say(FlushPacket(kPeerPsn)), kPeerPsn, 0, Nak(wire::NakCode::kInvalidRequest));
}

TEST_F(FlushOnTheWire, IsAnUnknownOpcodeToADeviceWithoutIt) {
  Prepare();
  x.qp->device->profile.device.device_cap_flags_ex = 0;
  EXPECT_TRUE(Say(FlushPacket(kPeerPsn)).empty());
  EXPECT_EQ(world.a.engine.counters().dropped_bad_opcode, 1u);
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
