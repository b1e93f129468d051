// Memory windows and zero-based memory on ConnectX devices, as the profile mlx5-roce has them.
// emulator/verbs/profiles/mlx5-roce.toml names the source of each habit.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

constexpr uint64_t kOffset = 1024;  // of the bound bytes in the region
constexpr uint32_t kBound = 64;

class Mlx5Windows : public LoopbackTest {
 protected:
  void SetUpWindow(unsigned region_access = 0) {
    Connect();
    region.reset(ibv_reg_mr(pd.get(), data.data, data.size,
                            kAllAccess | IBV_ACCESS_MW_BIND | static_cast<int>(region_access)));
    window.reset(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2));
    ASSERT_TRUE(region && window);
  }
  ibv_send_wr BindRequest(unsigned access = IBV_ACCESS_REMOTE_WRITE) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {window.get(),
                  ibv_inc_rkey(window->rkey),
                  {region.get(), data.address() + kOffset, kBound, access}};
    return wr;
  }
  int Post(ibv_qp* qp, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  ibv_wc_status Next() {
    const Completion completion = PollOne(send_cq.get());
    EXPECT_TRUE(completion.found);
    return completion.wc.status;
  }
  // Writes 8 bytes from the start of `data` through `a`.
  ibv_wc_status Write(uint64_t address, uint32_t rkey) {
    ibv_sge piece{data.address(), 8, mr->lkey};
    memcpy(data.data, "ABCDEFGH", 8);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma = {address, rkey};
    EXPECT_EQ(Post(a.get(), wr), 0);
    return Next();
  }
  bool HoldsTheBytes(uint64_t offset) {
    return memcmp(reinterpret_cast<char*>(data.data) + offset, "ABCDEFGH", 8) == 0;
  }

  Mr region;
  Mw window;
};

// sets_rkey_at_bind
TEST_F(Mlx5Windows, ATypeTwoWindowHasItsNewRkeyWhenTheBindIsPosted) {
  SetUpWindow();
  const ibv_send_wr bind = BindRequest();
  ASSERT_NE(bind.bind_mw.rkey, window->rkey);
  ASSERT_EQ(Post(b.get(), bind), 0);
  EXPECT_EQ(window->rkey, bind.bind_mw.rkey);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(data.address() + kOffset, window->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HoldsTheBytes(kOffset));
}

TEST_F(Mlx5Windows, TwoBindsInOneListHaveTheirOwnRkeys) {
  SetUpWindow();
  const Mw other(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2));
  ASSERT_TRUE(other);
  ibv_send_wr first = BindRequest(), second = BindRequest();
  first.next = &second;
  second.bind_mw.mw = other.get();
  second.bind_mw.rkey = ibv_inc_rkey(other->rkey);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(b.get(), &first, &bad), 0);
  EXPECT_EQ(window->rkey, first.bind_mw.rkey);
  EXPECT_EQ(other->rkey, second.bind_mw.rkey);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
}

TEST_F(Mlx5Windows, ARefusedBindLeavesTheRkey) {
  SetUpWindow();
  const uint32_t before = window->rkey;
  ibv_send_wr bind = BindRequest();
  ibv_sge piece = Piece();
  bind.sg_list = &piece;
  bind.num_sge = 1;  // a BIND has no data
  EXPECT_EQ(Post(b.get(), bind), EINVAL);
  EXPECT_EQ(window->rkey, before);
  // The window can be bound afterwards.
  ASSERT_EQ(Post(b.get(), BindRequest()), 0);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_NE(window->rkey, before);
}

// The provider does not know at ibv_wr_bind_mw whether the program will call ibv_wr_abort.
TEST_F(Mlx5Windows, AnExtendedBindLeavesTheRkeyToTheProgram) {
  SetUpWindow();
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = send_cq.get();
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.pd = pd.get();
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_BIND_MW;
  const Qp qp(ibv_create_qp_ex(context.get(), &init));
  ASSERT_TRUE(qp);
  ASSERT_EQ(Join(qp.get(), qp.get()), 0);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp.get());
  const ibv_send_wr bind = BindRequest();
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  const uint32_t before = window->rkey;
  ibv_wr_bind_mw(ex, window.get(), bind.bind_mw.rkey, &bind.bind_mw.bind_info);
  ibv_wr_abort(ex);
  EXPECT_EQ(window->rkey, before);
  ibv_wr_start(ex);
  ibv_wr_bind_mw(ex, window.get(), bind.bind_mw.rkey, &bind.bind_mw.bind_info);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(window->rkey, before);
}

// set_umr_mkey_seg of libmlx5: a zero-based window starts at address 0.
TEST_F(Mlx5Windows, AZeroBasedWindowTakesOffsets) {
  SetUpWindow();
  ASSERT_EQ(Post(b.get(), BindRequest(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), 0);
  ASSERT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(kBound - 8, window->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HoldsTheBytes(kOffset + kBound - 8));
  EXPECT_EQ(Write(kBound - 7, window->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mlx5Windows, AZeroBasedWindowRefusesVirtualAddresses) {
  SetUpWindow();
  ASSERT_EQ(Post(b.get(), BindRequest(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), 0);
  ASSERT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(data.address() + kOffset, window->rkey), IBV_WC_REM_ACCESS_ERR);
}

// mlx5_ib_reg_user_mr does not look at IB_ZERO_BASED: ibv_reg_mr keeps virtual addresses.
TEST_F(Mlx5Windows, TheFlagZeroBasedOfARegionChangesNothing) {
  SetUpWindow(IBV_ACCESS_ZERO_BASED);
  EXPECT_EQ(Write(data.address() + kOffset, region->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HoldsTheBytes(kOffset));
  EXPECT_EQ(Write(kOffset, region->rkey), IBV_WC_REM_ACCESS_ERR);
}

// binds_zero_based_regions
TEST_F(Mlx5Windows, AWindowIsBoundToARegionWithTheFlagZeroBased) {
  SetUpWindow(IBV_ACCESS_ZERO_BASED);
  ASSERT_EQ(Post(b.get(), BindRequest()), 0);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(data.address() + kOffset, window->rkey), IBV_WC_SUCCESS);
}

// ibv_reg_mr_iova(3) makes the regions that are based at zero.
TEST_F(Mlx5Windows, ARegionWithIovaZeroTakesOffsetsAtBothEnds) {
  constexpr size_t kPage = 4096;  // the iova and the address have one offset in their page
  Connect();
  const std::unique_ptr<char, decltype(&free)> page(
      static_cast<char*>(std::aligned_alloc(kPage, kPage)), &free);
  ASSERT_TRUE(page);
  const Mr zero(ibv_reg_mr_iova(pd.get(), page.get(), kPage, 0, kAllAccess));
  ASSERT_TRUE(zero);
  memcpy(page.get() + 8, "ABCDEFGH", 8);
  ibv_sge piece{8, 8, zero->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.wr.rdma = {kPage - 8, zero->rkey};
  ASSERT_EQ(Post(a.get(), wr), 0);
  EXPECT_EQ(Next(), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(page.get() + kPage - 8, "ABCDEFGH", 8), 0);
  wr.wr.rdma.remote_addr = kPage - 7;
  ASSERT_EQ(Post(a.get(), wr), 0);
  EXPECT_EQ(Next(), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace rdma_contract
