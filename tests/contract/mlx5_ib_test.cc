// The profile mlx5-ib: a port with link layer InfiniBand. Peers are addressed by their LIDs.
// LIDs.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

constexpr uint32_t kGrhBytes = 40, kBytes = 1000, kQkey = 0x11111111;

// The low 16 bits of an IPv4 address.
uint16_t LidOf(const std::string& address) {
  const ibv_gid gid = GidOf(address);
  return static_cast<uint16_t>(gid.raw[14] << 8 | gid.raw[15]);
}

class LidDevice : public DeviceTest {
 protected:
  static ibv_ah_attr PathTo(uint16_t dlid) {
    ibv_ah_attr path{};
    path.port_num = 1;
    path.dlid = dlid;
    return path;
  }
  int ErrnoOfAh(ibv_ah_attr path) {
    errno = 0;
    return Ah(ibv_create_ah(pd.get(), &path)) ? 0 : errno;
  }
};

TEST_F(LidDevice, ThePortHasTheLidOfItsAddress) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(port.lid, LidOf(LocalAddress()));
  EXPECT_EQ(port.sm_lid, port.lid);
  EXPECT_EQ(port.lmc, 0);
  EXPECT_EQ(port.flags & IBV_QPF_GRH_REQUIRED, 0);
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, uint32_t{IBV_GID_TYPE_IB});
  EXPECT_EQ(entry.gid.raw[0], 0xfe);
}

TEST_F(LidDevice, AnAddressHandleNeedsAUnicastLid) {
  EXPECT_EQ(ErrnoOfAh(PathTo(1)), 0);
  EXPECT_EQ(ErrnoOfAh(PathTo(0xbfff)), 0);
  for (const uint16_t lid : {uint16_t{0}, uint16_t{0xc000}, uint16_t{0xffff}}) {
    EXPECT_EQ(ErrnoOfAh(PathTo(lid)), EINVAL) << lid;
  }
  ibv_ah_attr wrong_port = PathTo(1);
  wrong_port.port_num = 2;
  EXPECT_EQ(ErrnoOfAh(wrong_port), EINVAL);
}

TEST_F(LidDevice, AQueuePairReportsItsAddressVectorAsItWasSet) {
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_UC, cq.get());
  ASSERT_TRUE(qp);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.ah_attr = PathTo(0x1234);
  attr.ah_attr.sl = 3;
  ASSERT_EQ(
      ibv_modify_qp(qp.get(), &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
      0);
  ibv_qp_attr got{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &got, IBV_QP_AV, &init), 0);
  EXPECT_EQ(got.ah_attr.is_global, 0);
  EXPECT_EQ(got.ah_attr.dlid, 0x1234);
  EXPECT_EQ(got.ah_attr.sl, 3);
  EXPECT_EQ(got.ah_attr.port_num, 1);
}

TEST_F(LidDevice, AnAddressHandleFromACompletionHasTheSendersLid) {
  ibv_wc wc{};
  wc.slid = LidOf(LocalAddress());
  wc.sl = 2;
  ibv_grh unused{};
  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(context.get(), 1, &wc, &unused, &attr), 0);
  EXPECT_EQ(attr.is_global, 0);
  EXPECT_EQ(attr.dlid, wc.slid);
  EXPECT_EQ(attr.sl, 2);
  const Ah ah(ibv_create_ah_from_wc(pd.get(), &wc, &unused, 1));
  EXPECT_TRUE(ah);
}

// Two sides that address each other by LID, or by GID.
class ByLid : public testing::Test {
 protected:
  void Join(ibv_qp_type type, bool by_lid) {
    ASSERT_EQ(local.Open(), 0);
    ASSERT_EQ(remote.Open(), 0);
    pair.local = local.CreateQp({.type = type});
    pair.remote = remote.CreateQp({.type = type});
    ASSERT_GE(pair.local, 0);
    ASSERT_GE(pair.remote, 0);
    pair.local_address = local.AddressOf(pair.local);
    pair.remote_address = remote.AddressOf(pair.remote);
    ASSERT_EQ(pair.remote_address.lid, LidOf(RemoteAddress()));
    if (!by_lid) pair.local_address.lid = pair.remote_address.lid = 0;
    ASSERT_EQ(remote.Connect(pair.remote, {.qkey = kQkey}, pair.local_address), 0);
    ASSERT_EQ(local.Connect(pair.local, {.qkey = kQkey}, pair.remote_address), 0);
    source = Allocate(kBytes);
    sink = Allocate(kBytes + kGrhBytes);
    FillPattern(source.bytes(), 1);
    from = local.Register(source);
    to = remote.Register(sink);
    ASSERT_EQ(from.error, 0);
    ASSERT_EQ(to.error, 0);
    if (type != IBV_QPT_UD) return;
    ah = local.CreateAh(pair.remote_address);
    ASSERT_GE(ah, 0);
  }
  // Sends one message and expects its payload `offset` bytes into the receive.
  void Send(uint32_t offset, unsigned flags) {
    WorkRequest receive{.wr_id = 1};
    ASSERT_EQ(
        remote.PostReceive(pair.remote, receive.Add(sink.address(), kBytes + kGrhBytes, to.lkey)),
        0);
    WorkRequest send{.wr_id = 2};
    if (ah >= 0) {
      send.ah = ah;
      send.remote_qpn = pair.remote_address.qpn;
      send.remote_qkey = kQkey;
    }
    ASSERT_EQ(local.PostSend(pair.local, send.Add(source.address(), kBytes, from.lkey)), 0);
    const Completion sent = local.Poll(pair.local, Queue::kSend);
    ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
    const Completion received = remote.Poll(pair.remote, Queue::kReceive);
    ASSERT_TRUE(received.found);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(received.wc.byte_len, kBytes + offset);
    EXPECT_EQ(received.wc.wc_flags, flags);
    EXPECT_EQ(received.wc.slid, LidOf(LocalAddress()));
    EXPECT_EQ(received.wc.sl, 0);
    EXPECT_EQ(FirstDifference(sink.bytes().subspan(offset, kBytes), 1), -1);
  }

  Side local{Place::kThisProcess};
  Side remote{Place::kPeersMachine};
  Pair pair{};
  int ah = -1;
  Buffer source, sink;
  Region from, to;
};

TEST_F(ByLid, AReliableConnectionCarriesMessagesWithoutAGrh) {
  Join(IBV_QPT_RC, true);
  Send(0, 0);
}

TEST_F(ByLid, AnUnreliableConnectionCarriesMessagesWithoutAGrh) {
  Join(IBV_QPT_UC, true);
  Send(0, 0);
}

TEST_F(ByLid, ADatagramHas40BytesBeforeItAndNoGrh) {
  Join(IBV_QPT_UD, true);
  Send(kGrhBytes, 0);
}

TEST_F(ByLid, AReliableConnectionByGidHasAGrh) {
  Join(IBV_QPT_RC, false);
  Send(0, IBV_WC_GRH);
}

TEST_F(ByLid, ADatagramByGidHasAGrh) {
  Join(IBV_QPT_UD, false);
  Send(kGrhBytes, IBV_WC_GRH);
}

TEST_F(ByLid, AMessageToALidOfNoHostRunsOutOfRetries) {
  Join(IBV_QPT_RC, true);
  const int lost = local.CreateQp();
  ASSERT_GE(lost, 0);
  QpAddress nobody = pair.remote_address;
  nobody.lid = static_cast<uint16_t>((nobody.lid & 0xff00) | 0xfe);
  ASSERT_EQ(local.Connect(lost, {.timeout = 8, .retry = 1}, nobody), 0);
  WorkRequest send{.wr_id = 3};
  ASSERT_EQ(local.PostSend(lost, send.Add(source.address(), 8, from.lkey)), 0);
  const Completion sent = local.Poll(lost, Queue::kSend);
  ASSERT_TRUE(sent.found);
  EXPECT_EQ(sent.wc.status, IBV_WC_RETRY_EXC_ERR) << Describe(sent);
}

}  // namespace
}  // namespace rdma_contract
