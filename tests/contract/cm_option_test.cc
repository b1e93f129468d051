// rdma_set_option(3) and the effect of each option, rdma_init_qp_attr(3) in each state, and ECE
// through connect and accept (rdma_set_local_ece(3), rdma_get_remote_ece(3)).
#include <cerrno>

#include "tests/contract/support/direct.h"
#include "tests/contract/support/transport.h"

namespace rdma_contract {
namespace {

class Option : public ConnectedTest {
 protected:
  static int Set(const CmId& id, int level, int name, const void* value, size_t bytes) {
    return ErrnoOf(rdma_set_option(id.get(), level, name, const_cast<void*>(value), bytes));
  }
  static int SetByte(const CmId& id, int name, uint8_t value) {
    return Set(id, RDMA_OPTION_ID, name, &value, 1);
  }
  static ibv_qp_attr AttributesOf(ibv_qp* qp, int mask) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, mask, &init), 0);
    return attr;
  }
  // Gets the attributes that the id's QP needs for `state`. Returns 0 or an errno.
  static int InitFor(const CmId& id, ibv_qp_state state, ibv_qp_attr* attr, int* mask) {
    *attr = {};
    attr->qp_state = state;
    return ErrnoOf(rdma_init_qp_attr(id.get(), attr, mask));
  }
};

// ---- names and lengths

TEST_F(Option, LevelsAndNamesThatDoNotExist) {
  const CmId id = NewId(channel.get());
  const int value[2] = {1, 0};
  EXPECT_EQ(Set(id, 7, 0, value, 4), ENOSYS);
  EXPECT_EQ(Set(id, -1, RDMA_OPTION_ID_TOS, value, 1), ENOSYS);
  EXPECT_EQ(Set(id, RDMA_OPTION_ID, 77, value, 4), ENOSYS);
  EXPECT_EQ(Set(id, RDMA_OPTION_IB, 77, value, 4), ENOSYS);
  EXPECT_EQ(Set(id, RDMA_OPTION_IB, 0, value, 4), ENOSYS);
}

TEST_F(Option, LengthsAreExact) {
  const CmId id = NewId(channel.get());
  const int value[2] = {1, 0};
  for (const size_t bytes : {0, 2, 4, 8}) {
    EXPECT_EQ(Set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, value, bytes), EINVAL) << bytes;
    EXPECT_EQ(Set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, value, bytes), EINVAL) << bytes;
  }
  for (const size_t bytes : {0, 1, 2, 8}) {
    EXPECT_EQ(Set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, value, bytes), EINVAL) << bytes;
    EXPECT_EQ(Set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, value, bytes), EINVAL) << bytes;
  }
}

TEST_F(Option, AnAckTimeoutIsForReliableIds) {
  const CmId datagram = NewId(channel.get(), RDMA_PS_UDP), reliable = NewId(channel.get());
  EXPECT_EQ(SetByte(datagram, RDMA_OPTION_ID_ACK_TIMEOUT, 14), EINVAL);
  EXPECT_EQ(SetByte(reliable, RDMA_OPTION_ID_ACK_TIMEOUT, 14), 0);
}

// ---- effects

TEST_F(Option, AnAckTimeoutIsTheQpsAndOfNobodyElse) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  listener = Listener(passive_channel.get());
  active = NewId(channel.get());
  ASSERT_EQ(SetByte(active, RDMA_OPTION_ID_ACK_TIMEOUT, 9), 0);
  ASSERT_EQ(ResolveTo(active.get(), here, PortOf(listener.get())), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active.get(), 2000), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active->route.path_rec[0].packet_life_time, 8);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(rdma_connect(active.get(), nullptr), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(SetByte(passive, RDMA_OPTION_ID_ACK_TIMEOUT, 11), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(AttributesOf(active->qp, IBV_QP_TIMEOUT).timeout, 9);
  EXPECT_EQ(AttributesOf(passive->qp, IBV_QP_TIMEOUT).timeout, 11);
}

TEST_F(Option, AnAckTimeoutOfZeroTurnsTheTimerOffAndLeavesThePath) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  active = NewId(channel.get());
  ASSERT_EQ(SetByte(active, RDMA_OPTION_ID_ACK_TIMEOUT, 0), 0);
  ASSERT_EQ(ResolveTo(active.get(), here, 1), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active.get(), 2000), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_GE(active->route.path_rec[0].packet_life_time, 16);
}

TEST_F(Option, TypeOfServiceIsThePathsAndTheQpsTrafficClass) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  listener = Listener(passive_channel.get());
  active = NewId(channel.get());
  ASSERT_EQ(SetByte(active, RDMA_OPTION_ID_TOS, 0x60), 0);
  ASSERT_EQ(ResolveTo(active.get(), here, PortOf(listener.get())), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active.get(), 2000), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(active->route.path_rec[0].traffic_class, 0x60);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(rdma_connect(active.get(), nullptr), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  EXPECT_EQ(passive->route.path_rec[0].traffic_class, 0x60);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(rdma_accept(passive.get(), nullptr), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(AttributesOf(active->qp, IBV_QP_AV).ah_attr.grh.traffic_class, 0x60);
}

TEST_F(Option, ARouteResolvedBeforeKeepsItsTypeOfService) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  active = Resolved(1);
  EXPECT_EQ(SetByte(active, RDMA_OPTION_ID_TOS, 0x60), 0);
  EXPECT_EQ(active->route.path_rec[0].traffic_class, 0);
}

// ---- a path set by the program

class Path : public Option {
 protected:
  static ibv_path_data From(const ibv_sa_path_rec& path) {
    ibv_path_data data{};
    data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    data.path.dgid = path.dgid;
    data.path.sgid = path.sgid;
    data.path.flowlabel_hoplimit = htonl(64);
    data.path.reversible_numpath = 0x81;
    data.path.pkey = 0xffff;
    data.path.mtu = static_cast<uint8_t>(2 << 6 | path.mtu);
    data.path.rate = 2 << 6;
    data.path.packetlifetime = 2 << 6 | 13;
    return data;
  }
  // Creates an id with a resolved address only, and a path to its destination.
  void Prepare(uint16_t port) {
    const CmId other = Resolved(port);
    path = From(other->route.path_rec[0]);
    active = NewId(channel.get());
    ASSERT_EQ(ResolveTo(active.get(), here, port), 0);
    Expect(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  }
  int SetPath(size_t bytes = sizeof(ibv_path_data)) {
    return Set(active, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, bytes);
  }
  ibv_path_data path{};
};

TEST_F(Path, ResolvesTheRoute) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  ASSERT_NO_FATAL_FAILURE(Prepare(1));
  ASSERT_EQ(SetPath(), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(active->route.num_paths, 1);
  EXPECT_EQ(active->route.path_rec[0].packet_life_time, 13);
  EXPECT_EQ(active->route.path_rec[0].preference, static_cast<uint8_t>(path.flags));
  EXPECT_EQ(ErrnoOf(rdma_resolve_route(active.get(), 2000)), EINVAL);
  EXPECT_EQ(SetPath(), EINVAL);
}

TEST_F(Path, ConnectsByIt) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  listener = Listener(passive_channel.get());
  ASSERT_NO_FATAL_FAILURE(Prepare(PortOf(listener.get())));
  ASSERT_EQ(SetPath(), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_connect(active.get(), nullptr)), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(MakeQueues(passive.get()), 0);
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), nullptr)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

TEST_F(Path, HasWholeRecords) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  ASSERT_NO_FATAL_FAILURE(Prepare(1));
  EXPECT_EQ(SetPath(sizeof path - 1), EINVAL);
  EXPECT_EQ(SetPath(0), EINVAL);
}

TEST_F(Path, NeedsAPrimaryRecord) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  ASSERT_NO_FATAL_FAILURE(Prepare(1));
  path.flags = IBV_PATH_FLAG_ALTERNATE;
  EXPECT_EQ(SetPath(), EINVAL);
}

TEST_F(Path, IsForIdsWithAnAddress) {
  if (IsIwarp()) GTEST_SKIP() << kNoPathRecord;
  ASSERT_NO_FATAL_FAILURE(Prepare(1));
  active = NewId(channel.get());
  EXPECT_EQ(SetPath(), EINVAL);
  ASSERT_EQ(BindTo(active.get(), here), 0);
  EXPECT_EQ(SetPath(), EINVAL);
}

// ---- rdma_init_qp_attr

TEST_F(Option, InitAttributesOfAResolvedId) {
  if (IsIwarp()) GTEST_SKIP() << kOwnInitAttributes;
  active = Resolved(1);
  ibv_qp_attr attr{};
  int mask = 0;
  ASSERT_EQ(InitFor(active, IBV_QPS_INIT, &attr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(attr.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.pkey_index, 0);
  EXPECT_EQ(attr.qp_access_flags, 0u);
}

TEST_F(Option, InitAttributesOfADatagramId) {
  if (IsIwarp()) GTEST_SKIP() << kOwnInitAttributes;
  active = Resolved(1, RDMA_PS_UDP);
  ibv_qp_attr attr{};
  int mask = 0;
  ASSERT_EQ(InitFor(active, IBV_QPS_INIT, &attr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  EXPECT_EQ(attr.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
}

TEST_F(Option, InitAttributesWhileTheRequestIsUnderWay) {
  if (IsIwarp()) GTEST_SKIP() << kOwnInitAttributes;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ibv_qp_attr attr{};
  int mask = 0;
  EXPECT_EQ(InitFor(active, IBV_QPS_INIT, &attr, &mask), 0);
  EXPECT_EQ(InitFor(active, IBV_QPS_RTR, &attr, &mask), EINVAL);
  EXPECT_EQ(InitFor(active, IBV_QPS_RTS, &attr, &mask), EINVAL);
  ASSERT_EQ(InitFor(passive, IBV_QPS_INIT, &attr, &mask), 0);
  EXPECT_EQ(attr.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC));
  ASSERT_EQ(InitFor(passive, IBV_QPS_RTR, &attr, &mask), 0);
  EXPECT_EQ(mask & (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(attr.dest_qp_num, active->qp->qp_num);
  EXPECT_EQ(attr.path_mtu, static_cast<ibv_mtu>(active->route.path_rec[0].mtu));
  EXPECT_EQ(attr.max_dest_rd_atomic, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  ASSERT_EQ(InitFor(passive, IBV_QPS_RTS, &attr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
}

TEST_F(Option, InitAttributesAreForQpStatesAndForIdsWithADevice) {
  active = Resolved(1);
  ibv_qp_attr attr{};
  int mask = 0;
  EXPECT_EQ(InitFor(active, static_cast<ibv_qp_state>(99), &attr, &mask), EINVAL);
  const CmId idle = NewId(channel.get());
  EXPECT_EQ(InitFor(idle, IBV_QPS_INIT, &attr, &mask), EINVAL);
}

TEST_F(Option, InitAttributesMoveAQpThatIsNotTheIds) {
  if (IsIwarp()) GTEST_SKIP() << kOwnInitAttributes;
  listener = Listener(passive_channel.get());
  active = Resolved(PortOf(listener.get()));
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ASSERT_EQ(rdma_connect(active.get(), nullptr), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  const std::unique_ptr<ibv_cq, decltype(&ibv_destroy_cq)> cq(
      ibv_create_cq(passive->verbs, 8, nullptr, nullptr, 0), &ibv_destroy_cq);
  ibv_qp_init_attr init = SmallQueues();
  init.send_cq = init.recv_cq = cq.get();
  const std::unique_ptr<ibv_qp, decltype(&ibv_destroy_qp)> qp(ibv_create_qp(passive->pd, &init),
                                                              &ibv_destroy_qp);
  ASSERT_TRUE(qp);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attr{};
    int mask = 0;
    ASSERT_EQ(InitFor(passive, state, &attr, &mask), 0);
    ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, mask), 0) << state;
  }
  rdma_conn_param param = ParametersWith("");
  param.qp_num = qp->qp_num;
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), &param)), 0);
  const CmEvent established = Expect(channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_TRUE(established);
  EXPECT_EQ(established->param.conn.qp_num, qp->qp_num);
  Expect(passive_channel.get(), RDMA_CM_EVENT_ESTABLISHED);
}

// ---- ECE

class Ece : public Option {};

TEST_F(Ece, GoesFromConnectToTheRequestAndFromAcceptToTheResponse) {
  if (IsIwarp()) GTEST_SKIP() << kNoEce;
  listener = Listener(passive_channel.get());
  active = Resolved(PortOf(listener.get()));
  ibv_ece offered{};
  offered.vendor_id = 0x1234;
  offered.options = 0xabcd0001;
  ASSERT_EQ(ErrnoOf(rdma_set_local_ece(active.get(), &offered)), 0);
  rdma_conn_param param = ParametersWith("");
  param.qp_num = ForeignQpn();
  ASSERT_EQ(rdma_connect(active.get(), &param), 0);
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ibv_ece seen{};
  ASSERT_EQ(ErrnoOf(rdma_get_remote_ece(passive.get(), &seen)), 0);
  EXPECT_EQ(seen.vendor_id, 0x1234u);
  EXPECT_EQ(seen.options, 0xabcd0001u);
  EXPECT_EQ(seen.comp_mask, 0u);
  offered.options = 0x55;
  ASSERT_EQ(ErrnoOf(rdma_set_local_ece(passive.get(), &offered)), 0);
  param.qp_num = ForeignQpn();
  ASSERT_EQ(ErrnoOf(rdma_accept(passive.get(), &param)), 0);
  Expect(channel.get(), RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(ErrnoOf(rdma_get_remote_ece(active.get(), &seen)), 0);
  EXPECT_EQ(seen.vendor_id, 0x1234u);
  EXPECT_EQ(seen.options, 0x55u);
}

TEST_F(Ece, IsForIdsWithoutAQp) {
  active = Resolved(1);
  ASSERT_EQ(MakeQueues(active.get()), 0);
  ibv_ece ece{};
  ece.vendor_id = 1;
  EXPECT_EQ(ErrnoOf(rdma_set_local_ece(active.get(), &ece)), EINVAL);
  EXPECT_EQ(ErrnoOf(rdma_get_remote_ece(active.get(), &ece)), EINVAL);
}

TEST_F(Ece, NeedsAVendorAndNoMask) {
  active = NewId(channel.get());
  ibv_ece ece{};
  EXPECT_EQ(ErrnoOf(rdma_set_local_ece(active.get(), &ece)), EINVAL);
  ece.vendor_id = 1;
  ece.comp_mask = 1;
  EXPECT_EQ(ErrnoOf(rdma_set_local_ece(active.get(), &ece)), EINVAL);
  EXPECT_EQ(ErrnoOf(rdma_set_local_ece(active.get(), nullptr)), EINVAL);
}

TEST_F(Ece, ARejectionForItHasItsOwnReason) {
  if (IsIwarp()) GTEST_SKIP() << kNoEce;
  listener = Listener(passive_channel.get());
  active = Requesting(listener.get());
  passive = NextRequest(passive_channel.get());
  ASSERT_TRUE(passive);
  ASSERT_EQ(ErrnoOf(rdma_reject_ece(passive.get(), "why", 3)), 0);
  const CmEvent rejected = Expect(channel.get(), RDMA_CM_EVENT_REJECTED, 35);
  ASSERT_TRUE(rejected);
  EXPECT_EQ(memcmp(rejected->param.conn.private_data, "why", 3), 0);
}

}  // namespace
}  // namespace rdma_contract
