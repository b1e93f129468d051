// Requests that a responder must refuse. The tests check the NAK, its PSN, and the effect on the QP
// and on the receive in use (IBTA 9.7.4.1, 9.7.5.2; rxe's check_op_seq, check_rkey).
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;

class RcNak : public ScriptedPeer {
 protected:
  void Prepare() {
    Begin();
    x.PostReceive(7, {x.Sge(0, 8192)});
    x.PostReceive(8, {x.Sge(0, 8192)});
  }
  // Expects this NAK with the packet's own PSN and no new message number. The QP is then in ERR and
  // sends nothing more.
  void ExpectRefused(const wire::PacketHeaders& headers, std::span<const std::byte> payload,
                     wire::NakCode code, uint32_t msn = 0) {
    const uint64_t before = world.a.engine.counters().naks;
    ExpectAck(Say(headers, payload), headers.psn, msn, Nak(code));
    EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.a.engine.counters().naks, before + 1);
    EXPECT_TRUE(Say(headers, payload).empty());
  }
  void ExpectReceives(std::initializer_list<ibv_wc_status> statuses) {
    const auto received = x.Received();
    ASSERT_EQ(received.size(), statuses.size());
    size_t i = 0;
    for (const ibv_wc_status status : statuses) EXPECT_EQ(received[i++].status, uint32_t{status});
  }
  // Returns a right that the operation does not need.
  static int OtherRight(wire::Operation operation) {
    return operation == kReadRequest ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
  }
  static bool MovesData(wire::Operation operation) {
    return operation == kReadRequest || operation == kWriteOnly;
  }
  static constexpr auto kInvalid = wire::NakCode::kInvalidRequest;
  static constexpr auto kAccess = wire::NakCode::kRemoteAccess;
  const std::vector<std::byte> full = std::vector<std::byte>(1024, std::byte{0xaa});
  const std::span<const std::byte> none;
};

// IBTA 9.7.4.1.2 (C9-76): the permitted order of packets. A message begins with First or Only.
TEST_F(RcNak, AMessageThatDoesNotBeginIsInvalid) {
  for (const auto operation : {kSendMiddle, kSendLast, kSendLastImm, kSendLastInvalidate,
                               kWriteMiddle, kWriteLast, kWriteLastImm}) {
    SCOPED_TRACE(static_cast<int>(operation));
    Prepare();
    ExpectRefused(Request(operation, kPeerPsn), full, kInvalid);
    ExpectReceives({IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR});
  }
}

// Inside a message, only the rest of the message may follow. The receive in use gets an error.
TEST_F(RcNak, NothingElseMayComeInsideASend) {
  for (const auto operation : {kSendFirst, kSendOnly, kWriteFirst, kWriteMiddle, kWriteLast,
                               kWriteOnly, kReadRequest, kFetchAdd, kCompareSwap}) {
    SCOPED_TRACE(static_cast<int>(operation));
    Prepare();
    Say(Packet(kSendFirst, kPeerPsn), full);
    ExpectRefused(Remote(operation, kPeerPsn + 1, 0, 1024),
                  wire::Opcode(own_class, operation).payload ? std::span(full) : none, kInvalid);
    ExpectReceives({IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR});
  }
}

TEST_F(RcNak, NothingElseMayComeInsideAWrite) {
  for (const auto operation : {kSendFirst, kSendMiddle, kSendLast, kSendOnly, kWriteFirst,
                               kWriteOnly, kReadRequest, kFetchAdd}) {
    SCOPED_TRACE(static_cast<int>(operation));
    Prepare();
    Say(Remote(kWriteFirst, kPeerPsn, 0, 4096), full);
    world.a.out.clear();
    ExpectRefused(Remote(operation, kPeerPsn + 1, 0, 1024),
                  wire::Opcode(own_class, operation).payload ? std::span(full) : none, kInvalid);
  }
}

// IBTA 9.7.4.1.6 (C9-92, C9-93): First and Middle are full, Last is not empty, none is above the
// path MTU.
TEST_F(RcNak, ASendWhosePacketsHaveTheWrongSizeIsInvalid) {
  const std::vector<std::byte> over(1028, std::byte{1}), under(1020, std::byte{1});
  const struct {
    wire::Operation operation;
    bool inside;
    std::span<const std::byte> payload;
  } cases[] = {
      {kSendOnly, false, over},          {kSendOnlyImm, false, over}, {kSendFirst, false, over},
      {kSendFirst, false, under},        {kSendFirst, false, none},   {kSendMiddle, true, over},
      {kSendMiddle, true, under},        {kSendMiddle, true, none},   {kSendLast, true, over},
      {kSendLastImm, true, over},        {kSendLast, true, none},     {kSendLastImm, true, none},
      {kSendOnlyInvalidate, false, over}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(static_cast<int>(c.operation)) + " of " +
                 std::to_string(c.payload.size()));
    Prepare();
    uint32_t psn = kPeerPsn;
    if (c.inside) Say(Packet(kSendFirst, psn++), full);
    ExpectRefused(Request(c.operation, psn), c.payload, kInvalid);
    EXPECT_EQ(x.buffer[c.inside ? 1024 : 0], std::byte{0}) << "was placed all the same";
  }
}

TEST_F(RcNak, AWriteThatBringsOtherThanItAnnouncedIsInvalid) {
  const std::vector<std::byte> over(1028, std::byte{1}), under(1020, std::byte{1});
  const struct {
    wire::Operation operation;
    uint32_t announced;
    std::span<const std::byte> payload;
  } cases[] = {{kWriteOnly, 1024, under}, {kWriteOnly, 1020, full},  {kWriteOnly, 8, none},
               {kWriteOnly, 0, full},     {kWriteFirst, 1024, full}, {kWriteFirst, 4096, under},
               {kWriteFirst, 4096, over}, {kWriteOnly, 2048, full},  {kWriteOnlyImm, 1020, full}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(static_cast<int>(c.operation)) + " announces " +
                 std::to_string(c.announced) + ", brings " + std::to_string(c.payload.size()));
    Prepare();
    ExpectRefused(Remote(c.operation, kPeerPsn, 0, c.announced), c.payload, kInvalid);
    EXPECT_EQ(x.buffer[0], std::byte{0});
  }
}

TEST_F(RcNak, AWriteThatEndsTooSoonOrTooLateIsInvalid) {
  const struct {
    uint32_t announced;
    wire::Operation then;
    size_t bytes;
  } cases[] = {{2048, kWriteMiddle, 1024}, {2048, kWriteLast, 1020}, {2000, kWriteLast, 1024},
               {3000, kWriteLast, 1024},   {3000, kWriteLast, 0},    {4096, kWriteMiddle, 1020}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.announced);
    Prepare();
    Hand(Remote(kWriteFirst, kPeerPsn, 0, c.announced), full);
    Hear();
    ExpectRefused(Request(c.then, kPeerPsn + 1), std::span(full).first(c.bytes), kInvalid);
  }
}

// IBTA 9.7.4.1.7: a READ or WRITE above 2^31 bytes, or here above the device's limit.
TEST_F(RcNak, AMessageAboveTheLargestIsInvalid) {
  for (const auto operation : {kReadRequest, kWriteFirst}) {
    Prepare();
    const uint32_t most = x.qp->device->profile.port.max_msg_sz;
    x.qp->device->profile.enforces_max_msg_sz = true;
    ExpectRefused(Remote(operation, kPeerPsn, 0, most + 1),
                  operation == kWriteFirst ? std::span(full) : none, kInvalid);
  }
}

// rxe_resp_check_length of Linux 6.12: the responder alone checks the length.
TEST_F(RcNak, AResponderAloneMayRefuseALongRequest) {
  for (const auto operation : {kReadRequest, kWriteOnly}) {
    SCOPED_TRACE(static_cast<int>(operation));
    Prepare();
    Profile& profile = x.qp->device->profile;
    profile.refuses_long_requests = true;
    profile.port.max_msg_sz = 64;
    const auto payload = [&](size_t bytes) {
      return operation == kWriteOnly ? std::span(full).first(bytes) : none;
    };
    EXPECT_EQ(One(Say(Remote(operation, kPeerPsn, 0, 64), payload(64))).headers.syndrome,
              wire::kAethUnlimitedCredits);
    ExpectRefused(Remote(operation, kPeerPsn + 1, 0, 65), payload(65), kInvalid, 1);
    EXPECT_EQ(profile.most_message_bytes(), UINT32_MAX);
  }
}

// rxe: RESPST_ERR_MISALIGNED_ATOMIC.
TEST_F(RcNak, AnAtomicThatIsNotAlignedIsInvalid) {
  for (const size_t offset : {1u, 4u, 7u}) {
    Prepare();
    ExpectRefused(Atomic(kFetchAdd, kPeerPsn, offset, 1), none, kInvalid);
    EXPECT_EQ(WordAt(0), 0u);
  }
}

// IBTA 9.7.4.1.4: READs and atomics beyond the responder's resources. Without resources, all are
// refused.
TEST_F(RcNak, WithoutResponderResourcesReadsAndAtomicsAreInvalid) {
  for (const auto operation : {kReadRequest, kFetchAdd, kCompareSwap}) {
    Link link;
    link.rd_atomic = 0;
    Begin(link);
    ExpectRefused(Remote(operation, kPeerPsn, 0, 64), none, kInvalid);
  }
}

// rxe's check_op_valid: an operation that the QP's access flags forbid is an invalid request.
TEST_F(RcNak, WhatTheQpDoesNotAllowIsInvalid) {
  const struct {
    wire::Operation operation;
    int access;
  } cases[] = {{kReadRequest, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC},
               {kWriteOnly, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC},
               {kWriteOnlyImm, IBV_ACCESS_REMOTE_READ},
               {kFetchAdd, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE},
               {kCompareSwap, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE}};
  for (const auto& c : cases) {
    SCOPED_TRACE(static_cast<int>(c.operation));
    Link link;
    link.access = c.access;
    Begin(link);
    x.PostReceive(1, {});
    const bool data = wire::Opcode(own_class, c.operation).payload;
    ExpectRefused(Remote(c.operation, kPeerPsn, 0, 1024), data ? std::span(full) : none, kInvalid);
  }
}

// IBTA 9.7.4.1.5 (C9-88 and on): key, bounds and rights of the region. No byte is moved.
TEST_F(RcNak, AWrongKeyBoundOrRightIsARemoteAccessError) {
  enum Fault { kKey, kPastEnd, kBeforeBegin, kWraps, kRight, kGone };
  for (const auto operation : {kReadRequest, kWriteOnly, kFetchAdd, kCompareSwap}) {
    for (const Fault fault : {kKey, kPastEnd, kBeforeBegin, kWraps, kRight, kGone}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(operation)) + " fault " + std::to_string(fault));
      Prepare();
      auto headers = Remote(operation, kPeerPsn, 0, 1024);
      if (fault == kKey) headers.rkey ^= 0x100;
      if (fault == kPastEnd) {
        headers.remote_address = x.At(x.buffer.size() - (MovesData(operation) ? 1023 : 4));
      }
      if (fault == kBeforeBegin) headers.remote_address = x.At(0) - 8;
      if (fault == kWraps) headers.remote_address = ~0ull - 7;
      if (fault == kRight) {
        const auto other =
            world.a.verbs.RegMr(kGroup, kProcess,
                                {world.a.pd->handle, IBV_ACCESS_LOCAL_WRITE | OtherRight(operation),
                                 x.At(0), 4096, x.At(0)});
        headers.rkey = (*other)->rkey;
      }
      if (fault == kGone) {
        ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, x.mr->handle).has_value());
      }
      const bool brings = wire::Opcode(own_class, operation).payload;
      ExpectRefused(headers, brings ? std::span(full) : none, kAccess);
      EXPECT_EQ(x.buffer[0], std::byte{0});
    }
  }
}

// The whole WRITE is checked at its first packet, not at the packet that exceeds the bounds.
TEST_F(RcNak, ALongWriteOutOfBoundsIsRefusedAtItsFirstPacket) {
  Prepare();
  ExpectRefused(Remote(kWriteFirst, kPeerPsn, x.buffer.size() - 2048, 4096), full, kAccess);
  EXPECT_EQ(x.buffer[x.buffer.size() - 2048], std::byte{0});
}

// A key that is invalidated during a message ends the message there.
TEST_F(RcNak, AKeyThatGoesInTheMiddleOfAWriteIsARemoteAccessError) {
  Prepare();
  Hand(Remote(kWriteFirst, kPeerPsn, 0, 4096), full);
  Hear();
  ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, x.mr->handle).has_value());
  ExpectRefused(Packet(kWriteMiddle, kPeerPsn + 1), full, kAccess);
}

// IBTA 9.7.4.1.8, as in rxe: a receive that is too small is a remote operation error.
TEST_F(RcNak, AReceiveTooSmallIsARemoteOperationError) {
  Begin();
  x.PostReceive(7, {x.Sge(0, 1500)});
  Say(Packet(kSendFirst, kPeerPsn), full);
  ExpectRefused(Request(kSendLast, kPeerPsn + 1), full, wire::NakCode::kRemoteOperation);
  ExpectReceives({IBV_WC_LOC_QP_OP_ERR});
}

// The NAK's message number counts the messages completed before it.
TEST_F(RcNak, TheNakTellsTheMessagesCompletedSoFar) {
  Prepare();
  Say(Request(kSendOnly, kPeerPsn), full);
  ExpectRefused(Request(kSendMiddle, kPeerPsn + 1), full, kInvalid, 1);
}

// READ responses in progress are sent before the NAK of a later request.
TEST_F(RcNak, WhatWasAnsweredBeforeGoesOutBeforeTheNak) {
  Prepare();
  Hand(Remote(kReadRequest, kPeerPsn, 0, 3000));
  Hand(Request(kSendMiddle, kPeerPsn + 3), full);
  const auto all = Hear();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(Psns(all), (std::vector<uint32_t>{kPeerPsn, kPeerPsn + 1, kPeerPsn + 2, kPeerPsn + 3}));
  EXPECT_EQ(all[3].headers.syndrome, Nak(kInvalid));
}

}  // namespace
}  // namespace rdmaemu::transport::testing
