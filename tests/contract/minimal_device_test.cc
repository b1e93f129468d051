// The refusals of the profile minimal: a device without optional features and with small limits.
#include <cerrno>
#include <vector>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class MinimalDevice : public DeviceTest {
 protected:
  int ErrnoOfQp(ibv_qp_cap cap) {
    const Cq cq = MakeCq();
    errno = 0;
    return MakeQp(IBV_QPT_RC, cq.get(), nullptr, cap) ? 0 : errno;
  }
};

TEST_F(MinimalDevice, HasNoSharedReceiveQueues) {
  ibv_srq_init_attr init{};
  init.attr = {1, 1, 0};
  errno = 0;
  EXPECT_EQ(ibv_create_srq(pd.get(), &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(MinimalDevice, HasNoWindows) {
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MinimalDevice, HasNeitherInlineDataNorLongLists) {
  EXPECT_EQ(ErrnoOfQp({16, 16, 1, 1, 0}), 0);
  EXPECT_EQ(ErrnoOfQp({16, 16, 1, 1, 1}), EINVAL);
  EXPECT_EQ(ErrnoOfQp({16, 16, 2, 1, 0}), EINVAL);
  EXPECT_EQ(ErrnoOfQp({16, 16, 1, 2, 0}), EINVAL);
  EXPECT_EQ(ErrnoOfQp({17, 16, 1, 1, 0}), EINVAL);
}

TEST_F(MinimalDevice, RefusesToPostAtomicsAndInlineData) {
  const Cq cq = MakeCq();
  const Qp qp = MakeQp(IBV_QPT_RC, cq.get());
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
  attr.ah_attr = PathToMyself();
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
  uint64_t word = 0;
  ibv_sge piece{reinterpret_cast<uint64_t>(&word), sizeof word, 0};
  ibv_send_wr send{};
  send.sg_list = &piece;
  send.num_sge = 1;
  send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp.get(), &send, &bad), EINVAL);
  EXPECT_EQ(bad, &send);
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_INLINE;
  EXPECT_EQ(ibv_post_send(qp.get(), &send, &bad), EINVAL);
}

TEST_F(MinimalDevice, HasNoExtendedCalls) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 4;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MinimalDevice, DoesNotResizeCompletionQueues) {
  const Cq cq = MakeCq();
  ASSERT_TRUE(cq);
  EXPECT_EQ(ibv_resize_cq(cq.get(), 32), EOPNOTSUPP);
}

TEST_F(MinimalDevice, DoesNotRegisterARegionAgain) {
  Buffer buffer = Allocate(4096);
  const Mr mr(ibv_reg_mr(pd.get(), buffer.data, buffer.size, 0));
  ASSERT_TRUE(mr);
  errno = 0;
  EXPECT_NE(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MinimalDevice, LimitsItsObjects) {
  std::vector<Pd> pds;
  for (int i = 0; i < 3; ++i) pds.emplace_back(ibv_alloc_pd(context.get()));
  ASSERT_TRUE(pds.back());
  EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);  // `pd` is the fourth
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace rdma_contract
