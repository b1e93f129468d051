// The properties of an iWARP device and its missing features, as measured on the kernel's siw
// (scenarios limits, mr, depth, cq).
#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class SiwDevice : public DeviceTest {
 protected:
  // Creates a QP with these capabilities. Returns 0 or the errno.
  int CreateQpErrno(ibv_qp_cap cap, ibv_qp_type type = IBV_QPT_RC) {
    const Cq cq = MakeCq();
    errno = 0;
    return MakeQp(type, cq.get(), nullptr, cap) ? 0 : errno;
  }
  template <class Object>
  static void ExpectUnsupported(Object* object) {
    EXPECT_EQ(object, nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
};

TEST_F(SiwDevice, IsAnRnicOnIwarp) {
  EXPECT_EQ(context->device->node_type, IBV_NODE_RNIC);
  EXPECT_EQ(context->device->transport_type, IBV_TRANSPORT_IWARP);
}

TEST_F(SiwDevice, LimitsAreThoseOfIbvDevinfo) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
  EXPECT_EQ(attr.vendor_id, 0x626d74u);
  EXPECT_EQ(attr.max_qp, 102400);
  EXPECT_EQ(attr.max_qp_wr, 32768);
  EXPECT_EQ(attr.device_cap_flags, 0x00200000u);
  EXPECT_EQ(attr.max_sge, 6);
  EXPECT_EQ(attr.max_sge_rd, 1);
  EXPECT_EQ(attr.max_cqe, 3276800);
  EXPECT_EQ(attr.max_mr, 1024000);
  EXPECT_EQ(attr.max_qp_rd_atom, 128);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
  EXPECT_EQ(attr.max_mw, 0);
  EXPECT_EQ(attr.max_ah, 0);
  EXPECT_EQ(attr.max_mcast_grp, 0);
  EXPECT_EQ(attr.max_srq_sge, 6);
  EXPECT_EQ(attr.max_pkeys, 0);
}

TEST_F(SiwDevice, LimitsOfItsPort) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.max_msg_sz, 0xffffffffu);
  EXPECT_EQ(port.port_cap_flags, 0x00090000u);
  EXPECT_EQ(port.pkey_tbl_len, 0);
  EXPECT_EQ(port.gid_tbl_len, 1);
  EXPECT_EQ(ibv_query_port(context.get(), 2, &port), EINVAL);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), -1);
}

// The GID contains the six bytes of the MAC and no IP address.
TEST_F(SiwDevice, LimitsTheGidTableToItsMac) {
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
  EXPECT_TRUE(std::any_of(gid.raw, gid.raw + 6, [](uint8_t byte) { return byte != 0; }));
  EXPECT_TRUE(std::all_of(gid.raw + 6, gid.raw + 16, [](uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(ibv_query_gid(context.get(), 1, 3, &gid), -1);
}

TEST_F(SiwDevice, LimitsOfQps) {
  EXPECT_EQ(CreateQpErrno({32768, 1, 1, 1, 0}), 0);
  EXPECT_EQ(CreateQpErrno({32769, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(CreateQpErrno({1, 32769, 1, 1, 0}), EINVAL);
  EXPECT_EQ(CreateQpErrno({1, 1, 6, 6, 0}), 0);
  EXPECT_EQ(CreateQpErrno({1, 1, 7, 1, 0}), EINVAL);
  EXPECT_EQ(CreateQpErrno({1, 1, 1, 7, 0}), EINVAL);
  EXPECT_EQ(CreateQpErrno({16, 16, 4, 4, 64}), 0);
  EXPECT_EQ(CreateQpErrno({1, 1, 1, 1, 512}), EINVAL);
  EXPECT_EQ(CreateQpErrno({0, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(CreateQpErrno({1, 0, 1, 1, 0}), EINVAL);
}

TEST_F(SiwDevice, LimitsTheTypesOfQpsToRc) {
  const ibv_qp_cap cap{1, 1, 1, 1, 0};
  EXPECT_EQ(CreateQpErrno(cap, IBV_QPT_RC), 0);
  EXPECT_EQ(CreateQpErrno(cap, IBV_QPT_UC), EOPNOTSUPP);
  EXPECT_EQ(CreateQpErrno(cap, IBV_QPT_UD), EOPNOTSUPP);
  EXPECT_EQ(CreateQpErrno(cap, IBV_QPT_RAW_PACKET), EOPNOTSUPP);
  EXPECT_EQ(CreateQpErrno(cap, IBV_QPT_XRC_SEND), EOPNOTSUPP);
}

TEST_F(SiwDevice, DepthIsGrantedAsAskedAndQueriedAsAPowerOfTwo) {
  const Cq cq = MakeCq();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {5, 3, 2, 2, 10};
  init.qp_type = IBV_QPT_RC;
  const Qp qp(ibv_create_qp(pd.get(), &init));
  ASSERT_TRUE(qp);
  EXPECT_EQ(init.cap.max_send_wr, 5u);
  EXPECT_EQ(init.cap.max_recv_wr, 3u);
  EXPECT_EQ(init.cap.max_send_sge, 2u);
  EXPECT_EQ(init.cap.max_inline_data, 10u);
  ibv_qp_attr attr{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_CAP, &init), 0);
  EXPECT_EQ(attr.cap.max_send_wr, 8u);
  EXPECT_EQ(attr.cap.max_recv_wr, 4u);
  EXPECT_EQ(attr.cap.max_inline_data, 80u);
}

TEST_F(SiwDevice, SrqsTakeAPowerOfTwoAndCannotBeQueriedNorResized) {
  std::array<char, 64> bytes{};
  const Mr mr(ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE));
  ASSERT_TRUE(mr);
  for (const auto& [asked, takes] :
       std::vector<std::pair<uint32_t, uint32_t>>{{1, 1}, {2, 2}, {5, 8}, {16, 16}, {17, 32}}) {
    ibv_srq_init_attr init{};
    init.attr = {asked, 1, 0};
    const Srq srq(ibv_create_srq(pd.get(), &init));
    ASSERT_TRUE(srq);
    EXPECT_EQ(init.attr.max_wr, asked);
    ibv_sge piece{reinterpret_cast<uint64_t>(bytes.data()), bytes.size(), mr->lkey};
    ibv_recv_wr receive{}, *bad = nullptr;
    receive.sg_list = &piece;
    receive.num_sge = 1;
    uint32_t taken = 0;
    while (taken <= takes && ibv_post_srq_recv(srq.get(), &receive, &bad) == 0) taken++;
    EXPECT_EQ(taken, takes) << asked;
    ibv_srq_attr attr{};
    EXPECT_EQ(ibv_query_srq(srq.get(), &attr), EOPNOTSUPP);
    attr = {asked + 1, 1, takes};
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
    attr.srq_limit = takes + 1;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), EINVAL);
  }
}

TEST_F(SiwDevice, SrqsHaveLimits) {
  const auto create = [&](ibv_srq_attr attr) {
    ibv_srq_init_attr init{};
    init.attr = attr;
    errno = 0;
    return Srq(ibv_create_srq(pd.get(), &init)) ? 0 : errno;
  };
  EXPECT_EQ(create({8, 6, 8}), 0);
  EXPECT_EQ(create({8, 7, 0}), EINVAL);
  EXPECT_EQ(create({8, 1, 9}), EINVAL);
  EXPECT_EQ(create({0, 1, 0}), EINVAL);
  EXPECT_EQ(create({327681, 1, 0}), EINVAL);
}

TEST_F(SiwDevice, CqsAreRoundedUpToPowersOfTwo) {
  for (const auto& [asked, got] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {3, 4}, {7, 8}, {8, 8}, {10, 16}}) {
    const Cq cq = MakeCq(asked);
    ASSERT_TRUE(cq);
    EXPECT_EQ(cq->cqe, got) << asked;
  }
  EXPECT_FALSE(MakeCq(3276801));
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SiwDevice, CqsAreNotResizedNorExtended) {
  const Cq cq = MakeCq(8);
  EXPECT_EQ(ibv_resize_cq(cq.get(), 100), EOPNOTSUPP);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 8;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ExpectUnsupported(ibv_create_cq_ex(context.get(), &attr));
}

TEST_F(SiwDevice, MrsButNoWindowsNoAddressHandlesNoBuilders) {
  ExpectUnsupported(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
  ExpectUnsupported(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2));
  ibv_ah_attr path{};
  path.port_num = 1;
  path.is_global = 1;
  path.grh.dgid = GidOf(LocalAddress());
  ExpectUnsupported(ibv_create_ah(pd.get(), &path));
  const Cq cq = MakeCq();
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ExpectUnsupported(ibv_create_qp_ex(context.get(), &init));
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  const Qp plain(ibv_create_qp_ex(context.get(), &init));
  EXPECT_TRUE(plain);
  ibv_gid group{};
  group.raw[0] = 0xff;
  EXPECT_EQ(ibv_attach_mcast(plain.get(), &group, 0), EOPNOTSUPP);
}

}  // namespace
}  // namespace rdma_contract
