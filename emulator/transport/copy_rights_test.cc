// Copy jobs whose right ends, or whose memory or queue pair goes, before they are made.
#include "emulator/transport/copy_jobs.h"

#include "emulator/transport/copy_jobs_for_test.h"

namespace rdmaemu::transport::testing {
namespace {

TEST_F(CopyJobsTest, MemoryIsNotTouchedAfterItsRegionWent) {
  Poll();
  Write(1, 0);
  Work();
  ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, y.mr->handle));
  EXPECT_FALSE(Job(0).Claim(CopyJob::kTaken)) << "the offer was withdrawn";
  Work();
  ExpectSent({1}, IBV_WC_REM_ACCESS_ERR);
  EXPECT_FALSE(Arrived(0));
}

// Tests with a region of y's buffer that windows can be bound to, and a window.
class RightsTest : public CopyJobsTest, public ::testing::WithParamInterface<bool> {
 protected:
  RightsTest() : verbs(world.a.verbs) {
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
    region = *verbs.RegMr(kGroup, kProcess, {world.a.pd->handle, access, y.At(0), kSize, y.At(0)});
  }
  MemoryWindow* Bind(ibv_mw_type type) {
    MemoryWindow* const window = *verbs.AllocMw(kGroup, world.a.pd->handle, type);
    Bind(*window, kSize);
    return window;
  }
  void Bind(const MemoryWindow& window, uint64_t length) {
    rxe_send_wr wr = SendWr(IBV_WR_BIND_MW, 9);
    wr.wr.mw.addr = y.At(0);
    wr.wr.mw.length = length;
    wr.wr.mw.mr_lkey = region->lkey;
    wr.wr.mw.mw_rkey = window.rkey;
    wr.wr.mw.rkey = window.rkey + 1;
    wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE;
    ASSERT_TRUE(verbs.BindWindow(*y.qp, wr));
  }
  // Offers a WRITE by the key. With the parameter, a thread has copied half of it.
  void OfferWrite(uint32_t rkey) {
    Poll();
    rxe_send_wr write = RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0);
    write.wr.rdma.rkey = rkey;
    x.Post(write, {x.Sge(0, kSize)});
    world.Ring(x);
    Work();
    ASSERT_EQ(jobs->offered, 1u);
    if (!GetParam()) return;
    Take(0);
    world.a.memory.meanwhile = [this] { Do(0); };
  }
  void ExpectEnded() {
    EXPECT_FALSE(Job(0).Claim(CopyJob::kTaken)) << "the offer was withdrawn";
    EXPECT_NE(Job(0).Now(), CopyJob::kTaken) << "the copy that had begun was waited for";
    std::ranges::fill(y.buffer, std::byte{0x77});
    Work();
    EXPECT_TRUE(
        std::ranges::all_of(y.buffer, [](std::byte one) { return one == std::byte{0x77}; }));
    ExpectSent({1}, IBV_WC_REM_ACCESS_ERR);
  }

  Verbs& verbs;
  MemoryRegion* region;
};

TEST_P(RightsTest, EndWithTheRegion) {
  OfferWrite(region->rkey);
  ASSERT_TRUE(verbs.DeregMr(kGroup, region->handle));
  ExpectEnded();
}

TEST_P(RightsTest, EndWithTheWindow) {
  const MemoryWindow* const window = Bind(IBV_MW_TYPE_1);
  OfferWrite(window->rkey);
  ASSERT_TRUE(verbs.DeallocMw(kGroup, window->handle));
  ExpectEnded();
}

TEST_P(RightsTest, EndWhenTheWindowIsBoundAnew) {
  const MemoryWindow* const window = Bind(IBV_MW_TYPE_1);
  OfferWrite(window->rkey);
  Bind(*window, 8);
  ExpectEnded();
}

TEST_P(RightsTest, EndWhenTheWindowIsInvalidated) {
  const MemoryWindow* const window = Bind(IBV_MW_TYPE_2);
  OfferWrite(window->rkey);
  ASSERT_TRUE(verbs.Invalidate(*y.qp, window->rkey));
  ExpectEnded();
}

TEST_P(RightsTest, EndWhenTheRegionIsInvalidated) {
  OfferWrite(region->rkey);
  ASSERT_TRUE(verbs.Invalidate(*y.qp, region->rkey));
  ExpectEnded();
}

TEST_P(RightsTest, MoveWithTheRegion) {
  verbs.devices()[0]->profile.reregisters_regions = true;
  OfferWrite(region->rkey);
  std::vector<std::byte> elsewhere(kSize);
  ASSERT_TRUE(verbs.ReregMr(kGroup, kProcess, region->handle,
                            {IBV_REREG_MR_CHANGE_TRANSLATION, 0, 0,
                             reinterpret_cast<uint64_t>(elsewhere.data()), kSize}));
  ExpectEnded();
}

TEST_P(RightsTest, ToOtherBytesLeaveTheOfferAlone) {
  OfferWrite(region->rkey);
  std::vector<std::byte> other(kSize);
  const MemoryRegion* const unrelated = *verbs.RegMr(
      kGroup, kProcess,
      {world.a.pd->handle, IBV_ACCESS_LOCAL_WRITE, reinterpret_cast<uint64_t>(other.data()), kSize,
       reinterpret_cast<uint64_t>(other.data())});
  ASSERT_TRUE(verbs.DeregMr(kGroup, unrelated->handle));
  EXPECT_EQ(Job(0).Now(), GetParam() ? CopyJob::kTaken : CopyJob::kOffered);
}

INSTANTIATE_TEST_SUITE_P(All, RightsTest, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Begun" : "Offered");
});

class ReadJobsTest : public CopyJobsTest {
 protected:
  // A READ whose copy is offered to the program.
  void OfferRead() {
    std::ranges::fill(x.buffer, std::byte{0xee});
    Poll();
    x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(0, kSize)});
    world.Ring(x);
    Work();
    ASSERT_EQ(jobs->offered, 1u);
  }
  // The program of the responding QP uses its memory again. The READ must not see that.
  void ExpectNothingRead(ibv_wc_status status) {
    std::ranges::fill(y.buffer, std::byte{0x77});
    world.Run();
    EXPECT_TRUE(std::ranges::none_of(x.buffer, [](std::byte b) { return b == std::byte{0x77}; }));
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, uint32_t{status});
  }
};

TEST_F(ReadJobsTest, NothingIsReadAfterTheRightHasEnded) {
  ASSERT_NO_FATAL_FAILURE(OfferRead());
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  world.Modify(y, attr, IBV_QP_ACCESS_FLAGS);
  ExpectNothingRead(IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ReadJobsTest, NothingIsReadAfterTheRespondingQueuePairHasEnded) {
  ASSERT_NO_FATAL_FAILURE(OfferRead());
  world.SetState(y, IBV_QPS_ERR);
  ExpectNothingRead(IBV_WC_RETRY_EXC_ERR);
}

TEST_F(ReadJobsTest, NothingIsReadFromANewLifeOfTheQueuePair) {
  ASSERT_NO_FATAL_FAILURE(OfferRead());
  world.SetState(y, IBV_QPS_RESET);
  world.Connect(y, x, {}, 500, 7777, true);
  ExpectNothingRead(IBV_WC_RETRY_EXC_ERR);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
