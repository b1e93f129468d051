// UD: datagrams of up to one MTU after 40 bytes of the global route, from any sender that uses the
// Q_Key.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/contract/support/state.h"
#include "tests/contract/support/transfer.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kRouteBytes = 40;
constexpr uint32_t kQkey = 0x11111111;

class Ud : public testing::Test {
 protected:
  void SetUp() override {
    pair = ConnectPair(local, remote, {.type = IBV_QPT_UD}, {.qkey = kQkey});
    ah = local.CreateAh(pair.remote_address);
    ASSERT_GE(ah, 0);
    source = Allocate(8192);
    sink = Allocate(8192 + kRouteBytes);
    FillPattern(source.bytes(), 1);
    from = local.Register(source);
    to = remote.Register(sink);
  }
  WorkRequest Datagram(uint64_t wr_id, uint32_t bytes) {
    WorkRequest request{
        .wr_id = wr_id, .ah = ah, .remote_qpn = pair.remote_address.qpn, .remote_qkey = kQkey};
    return request.Add(source.address(), bytes, from.lkey);
  }
  int PostReceive(uint64_t wr_id, uint32_t bytes = 8192 + kRouteBytes) {
    return remote.PostReceive(pair.remote,
                              WorkRequest{.wr_id = wr_id}.Add(sink.address(), bytes, to.lkey));
  }
  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
  Pair pair;
  int ah = -1;
  Buffer source, sink;
  Region from, to;
};

TEST_F(Ud, DatagramsOfEverySizeArriveBehindTheirRoute) {
  for (const uint32_t size : {0u, 1u, 3u, 255u, 256u, 1000u, 1023u, 1024u}) {
    SCOPED_TRACE(size);
    memset(sink.data, 0, sink.size);
    ASSERT_EQ(PostReceive(1), 0);
    WorkRequest request = Datagram(2, size);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm = 0x01020304;
    ASSERT_EQ(local.PostSend(pair.local, request), 0);
    const Completion sent = local.Poll(pair.local, Queue::kSend);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(received.wc.byte_len, size + kRouteBytes);
    EXPECT_EQ(received.wc.src_qp, pair.local_address.qpn);
    EXPECT_EQ(received.wc.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
    EXPECT_EQ(ntohl(received.wc.imm_data), 0x01020304u);
    EXPECT_EQ(FirstDifference(sink.bytes().subspan(kRouteBytes, size), 1), -1);
    EXPECT_EQ(sink.data[kRouteBytes + size], 0);
    // The route is an IPv4 header in the last 20 bytes, which end with source and destination.
    EXPECT_EQ(memcmp(sink.data + 32, pair.local_address.gid.raw + 12, 4), 0);
    EXPECT_EQ(memcmp(sink.data + 36, pair.remote_address.gid.raw + 12, 4), 0);
  }
  EXPECT_TRUE(GuardsIntact());
}

// rdma_rxe sends the Q_Key of the request as it is (init_req_packet). IBTA 10.2.5 replaces one
// whose highest bit is set by that of the queue pair.
TEST_F(Ud, AWrongQkeyIsDroppedWithoutAWordAlsoWithItsHighestBit) {
  ASSERT_EQ(PostReceive(1), 0);
  for (const uint32_t qkey : {0x22222222u, 0x80000000u}) {
    WorkRequest request = Datagram(2, 10);
    request.remote_qkey = qkey;
    ASSERT_EQ(local.PostSend(pair.local, request), 0);
    EXPECT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
    EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found) << qkey;
  }
  ASSERT_EQ(local.PostSend(pair.local, Datagram(3, 10)), 0);
  EXPECT_TRUE(remote.Poll(pair.remote, Queue::kReceive).found);
}

TEST_F(Ud, AnUnknownQpNumberIsDroppedWithoutAWord) {
  WorkRequest request = Datagram(2, 10);
  request.remote_qpn = 0xabcdef;
  ASSERT_EQ(local.PostSend(pair.local, request), 0);
  EXPECT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
}

TEST_F(Ud, WithoutAReceiveADatagramIsLost) {
  ASSERT_EQ(local.PostSend(pair.local, Datagram(2, 10)), 0);
  EXPECT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
  EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);
  ASSERT_EQ(PostReceive(1), 0);
  EXPECT_FALSE(remote.Poll(pair.remote, Queue::kReceive, kQuiet_ms).found);
}

// rdma_rxe sends within ibv_post_send. Some programs, for example mckey(1), therefore destroy their
// objects at once.
class UdEnds : public Ud {
 protected:
  // More than a host handles in one turn.
  static constexpr uint32_t kDatagrams = 60;

  void PostAll() {
    for (uint32_t i = 0; i < kDatagrams; i++) ASSERT_EQ(PostReceive(i), 0);
    for (uint32_t i = 0; i < kDatagrams; i++) {
      ASSERT_EQ(local.PostSend(pair.local, Datagram(i, 100)), 0);
    }
  }
  void AllArrive() {
    for (uint32_t i = 0; i < kDatagrams; i++) {
      ASSERT_TRUE(remote.Poll(pair.remote, Queue::kReceive).found) << i;
    }
  }
};

TEST_F(UdEnds, WhatWasPostedBeforeItsAddressHandleWentIsSent) {
  PostAll();
  ASSERT_EQ(local.DestroyAh(ah), 0);
  AllArrive();
  for (uint32_t i = 0; i < kDatagrams; i++) {
    EXPECT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS) << i;
  }
}

TEST_F(UdEnds, WhatWasPostedBeforeItsQueuePairWentIsSent) {
  PostAll();
  ASSERT_EQ(local.DestroyQp(pair.local), 0);
  AllArrive();
}

TEST_F(UdEnds, WhatWasPostedBeforeItsMemoryWentIsSent) {
  PostAll();
  ASSERT_EQ(local.Deregister(from.index), 0);
  AllArrive();
}

TEST_F(Ud, AReplyGoesBackToTheSourceOfADatagram) {
  ASSERT_EQ(PostReceive(1), 0);
  ASSERT_EQ(local.PostSend(pair.local, Datagram(2, 10)), 0);
  const Completion received = remote.Poll(pair.remote, Queue::kReceive);
  ASSERT_TRUE(received.found);
  const int back = remote.CreateAh(pair.local_address);
  ASSERT_GE(back, 0);
  const Buffer answer = Allocate(64), here = Allocate(64 + kRouteBytes);
  FillPattern(answer.bytes(), 9);
  const Region a = remote.Register(answer), h = local.Register(here);
  ASSERT_EQ(local.PostReceive(pair.local, ReceiveInto(3, here, h)), 0);
  WorkRequest reply{.wr_id = 4, .ah = back, .remote_qpn = received.wc.src_qp, .remote_qkey = kQkey};
  ASSERT_EQ(remote.PostSend(pair.remote, reply.Add(answer.address(), 64, a.lkey)), 0);
  EXPECT_TRUE(local.Poll(pair.local, Queue::kReceive).found);
  EXPECT_EQ(FirstDifference(here.bytes().subspan(kRouteBytes), 9), -1);
}

// ---- link-local GIDs, which programs exchange that use entry 0 of the table

ibv_gid FirstGidStep(State& state, const int& index) {
  ibv_gid gid{};
  ibv_query_gid(state.context, 1, index, &gid);
  return gid;
}

int AhByFirstGidStep(State& state, const ibv_gid& peer) {
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.grh.dgid = peer;
  path.grh.hop_limit = 64;
  ibv_ah* made = ibv_create_ah(state.pd, &path);
  if (made == nullptr) return -errno;
  state.ahs.push_back(made);
  return static_cast<int>(state.ahs.size()) - 1;
}

struct Receipt {
  ibv_wc wc;
  ibv_grh route;
};
// Returns the path that ibv_init_ah_from_wc finds; `port_num` 0: no path.
ibv_ah_attr PathBackStep(State& state, const Receipt& receipt) {
  Receipt copy = receipt;
  ibv_ah_attr path{};
  if (ibv_init_ah_from_wc(state.context, 1, &copy.wc, &copy.route, &path) != 0) return {};
  return path;
}
int AhBackStep(State& state, const Receipt& receipt) {
  Receipt copy = receipt;
  ibv_ah* made = ibv_create_ah_from_wc(state.pd, &copy.wc, &copy.route, 1);
  if (made == nullptr) return -errno;
  state.ahs.push_back(made);
  return static_cast<int>(state.ahs.size()) - 1;
}

TEST_F(Ud, BetweenLinkLocalGidsTheRouteIsAnIpv6HeaderThatLeadsBack) {
  const ibv_gid ours = local.worker().Call(&FirstGidStep, 0);
  const ibv_gid theirs = remote.worker().Call(&FirstGidStep, 0);
  ASSERT_EQ(ours.raw[0], 0xfe);
  ah = local.worker().Call(&AhByFirstGidStep, theirs);
  ASSERT_GE(ah, 0);
  for (const uint32_t size : {0u, 8u, 255u, 256u, 257u, 1024u}) {
    SCOPED_TRACE(size);
    memset(sink.data, 0xcc, kRouteBytes);
    ASSERT_EQ(PostReceive(1), 0);
    ASSERT_EQ(local.PostSend(pair.local, Datagram(2, size)), 0);
    ASSERT_EQ(local.Poll(pair.local, Queue::kSend).wc.status, IBV_WC_SUCCESS);
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    EXPECT_EQ(received.wc.wr_id, 1u);
    EXPECT_EQ(received.wc.wc_flags, unsigned{IBV_WC_GRH});
    Receipt receipt{received.wc, {}};
    memcpy(&receipt.route, sink.data, sizeof receipt.route);
    EXPECT_EQ(ntohl(receipt.route.version_tclass_flow) >> 28, 6u);
    EXPECT_EQ(ntohs(receipt.route.paylen), 8 + 12 + 8 + (size + 3) / 4 * 4 + 4);
    EXPECT_EQ(receipt.route.next_hdr, 17);  // UDP
    EXPECT_EQ(receipt.route.hop_limit, 64);
    EXPECT_EQ(memcmp(&receipt.route.sgid, &ours, sizeof ours), 0);
    EXPECT_EQ(memcmp(&receipt.route.dgid, &theirs, sizeof theirs), 0);

    const ibv_ah_attr path = remote.worker().Call(&PathBackStep, receipt);
    EXPECT_EQ(path.port_num, 1);
    EXPECT_EQ(path.grh.sgid_index, 0);
    EXPECT_EQ(memcmp(&path.grh.dgid, &ours, sizeof ours), 0);
    const int back = remote.worker().Call(&AhBackStep, receipt);
    ASSERT_GE(back, 0);
    ASSERT_EQ(local.PostReceive(pair.local,
                                WorkRequest{.wr_id = 3}.Add(source.address(), 100, from.lkey)),
              0);
    WorkRequest reply{
        .wr_id = 4, .ah = back, .remote_qpn = received.wc.src_qp, .remote_qkey = kQkey};
    ASSERT_EQ(remote.PostSend(pair.remote, reply.Add(sink.address(), 8, to.lkey)), 0);
    ASSERT_TRUE(remote.Poll(pair.remote, Queue::kSend).found);
    EXPECT_TRUE(local.Poll(pair.local, Queue::kReceive).found);
  }
}

TEST_F(Ud, PiecesAreGatheredAndScattered) {
  const Buffer route = Allocate(kRouteBytes), first = Allocate(10), second = Allocate(500);
  const Region r = remote.Register(route), f = remote.Register(first), s = remote.Register(second);
  WorkRequest receive{.wr_id = 1};
  receive.Add(route.address(), kRouteBytes, r.lkey)
      .Add(first.address(), 10, f.lkey)
      .Add(second.address(), 500, s.lkey);
  ASSERT_EQ(remote.PostReceive(pair.remote, receive), 0);
  WorkRequest request{
      .wr_id = 2, .ah = ah, .remote_qpn = pair.remote_address.qpn, .remote_qkey = kQkey};
  AddPieces(request, source, from.lkey, {3, 0, 200, 57});
  ASSERT_EQ(local.PostSend(pair.local, request), 0);
  ASSERT_TRUE(remote.Poll(pair.remote, Queue::kReceive).found);
  EXPECT_EQ(FirstDifference(first.bytes(), 1), -1);
  EXPECT_EQ(FirstDifference(second.bytes().first(250), 1, 10), -1);
  EXPECT_TRUE(GuardsIntact());
}

}  // namespace
}  // namespace rdma_contract
