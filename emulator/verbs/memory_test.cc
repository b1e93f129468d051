#include <gtest/gtest.h>

#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

class MemoryKeys : public ::testing::Test, public testing::VerbsFixture {
 protected:
  int RegError(int access, uint64_t at, uint64_t length) {
    const auto mr = verbs.RegMr(kGroup, kProcess, {pd->handle, access, at, length, at});
    return mr ? 0 : mr.error().code;
  }
  static rxe_send_wr Bind(const MemoryWindow& window, const MemoryRegion& region, uint64_t address,
                          uint64_t length, int access) {
    rxe_send_wr wr{};
    wr.wr.mw.addr = address;
    wr.wr.mw.length = length;
    wr.wr.mw.mr_lkey = region.lkey;
    wr.wr.mw.mw_rkey = window.rkey;
    wr.wr.mw.rkey = ibv_inc_rkey(window.rkey);
    wr.wr.mw.access = static_cast<uint32_t>(access);
    return wr;
  }
  uint64_t at() const { return uint64_t(bytes); }
};

TEST_F(MemoryKeys, AccessAndRangeAreCheckedAsTheKernelDoes) {
  EXPECT_EQ(RegError(IBV_ACCESS_REMOTE_WRITE, at(), 8), EINVAL);
  EXPECT_EQ(RegError(IBV_ACCESS_REMOTE_ATOMIC, at(), 8), EINVAL);
  EXPECT_EQ(RegError(IBV_ACCESS_ON_DEMAND, at(), 8), EINVAL);
  EXPECT_EQ(RegError(0x8000, at(), 8), EINVAL);
  EXPECT_EQ(RegError(IBV_ACCESS_RELAXED_ORDERING, at(), 8), 0);
  const uint64_t page = (at() + 4095) / 4096 * 4096;
  EXPECT_EQ(RegError(0, page, 0), EINVAL) << "no page";
  EXPECT_EQ(RegError(0, page + 1, 0), 0) << "the page is counted";
  EXPECT_EQ(RegError(0, at(), UINT64_MAX), EINVAL);
  memory.holes.push_back({{at() + 4096, 4096}, true});
  EXPECT_EQ(RegError(IBV_ACCESS_LOCAL_WRITE, at(), 8192), EFAULT);
  EXPECT_EQ(RegError(IBV_ACCESS_REMOTE_READ, at(), 8192), 0) << "read-only memory may be read";
}

TEST_F(MemoryKeys, ADeviceMayRefuseAccessThatItDoesNotUse) {
  Profile& profile = verbs.DeviceByIndex(0)->profile;
  for (const bool refuses : {false, true}) {
    SCOPED_TRACE(refuses);
    profile.refuses_unused_access = refuses;
    EXPECT_EQ(RegError(IBV_ACCESS_ZERO_BASED, at(), 8), refuses ? EOPNOTSUPP : 0);
    EXPECT_EQ(RegError(IBV_ACCESS_HUGETLB, at(), 8), refuses ? EOPNOTSUPP : 0);
    EXPECT_EQ(RegError(IBV_ACCESS_ON_DEMAND, at(), 8), refuses ? EOPNOTSUPP : EINVAL);
    EXPECT_EQ(RegError(IBV_ACCESS_HUGETLB | IBV_ACCESS_REMOTE_WRITE, at(), 8), EINVAL);
    QueuePair* qp = Qp(IBV_QPT_RC);
    const MemoryRegion* region = Mr(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    const auto window = *verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_2);
    const rxe_send_wr huge = Bind(*window, *region, at(), 8, IBV_ACCESS_HUGETLB);
    EXPECT_EQ(verbs.BindWindow(*qp, huge).has_value(), !refuses);
  }
}

// ib_check_mr_access of Linux 6.12, and rxe_mr_fill_pages_from_sgt. 6.1 does not know the flags.
TEST_F(MemoryKeys, RightsToFlushNeedTheDevicesCapability) {
  Profile& profile = verbs.DeviceByIndex(0)->profile;
  EXPECT_EQ(RegError(kAccessFlushGlobal, at(), 8), EINVAL);
  profile.refuses_unused_access = true;
  EXPECT_EQ(RegError(kAccessFlushGlobal, at(), 8), EOPNOTSUPP);
  profile.device.device_cap_flags_ex |= kDeviceCapFlushGlobal;
  EXPECT_EQ(RegError(kAccessFlushGlobal, at(), 8), 0);
  EXPECT_EQ(RegError(kAccessFlushPersistent, at(), 8), EOPNOTSUPP);
  profile.device.device_cap_flags_ex |= kDeviceCapFlushPersistent;
  EXPECT_EQ(RegError(kAccessFlushPersistent, at(), 8), EINVAL) << "no persistent memory";
  profile.has_persistent_memory = true;
  EXPECT_EQ(RegError(kAccessFlush, at(), 8), 0);
}

TEST_F(MemoryKeys, AFlushHasARangeOrAWholeRegionAndItsRight) {
  verbs.DeviceByIndex(0)->profile.device.device_cap_flags_ex |= kDeviceCapFlushGlobal;
  QueuePair* qp = Qp(IBV_QPT_RC);
  const MemoryRegion* region = Mr(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | kAccessFlushGlobal);
  const auto flush = [&](uint32_t rkey, uint64_t address, uint64_t length, bool whole,
                         int access = kAccessFlushGlobal) {
    return verbs.ResolveFlush(*qp, rkey, address, length, whole, access);
  };
  EXPECT_EQ(flush(region->rkey, at() + 8, 16, false)->range.address, at() + 8);
  EXPECT_EQ(flush(region->rkey, 1, 2, true)->range.length, sizeof bytes);
  EXPECT_EQ(flush(region->rkey, at(), sizeof bytes + 1, false).error(), MemoryFault::kRange);
  EXPECT_EQ(flush(region->rkey ^ 1, at(), 0, false).error(), MemoryFault::kKey);
  EXPECT_EQ(flush(region->rkey, at(), 8, false, kAccessFlush).error(), MemoryFault::kAccess);
  const auto window = *verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_2);
  ASSERT_TRUE(verbs.BindWindow(*qp, Bind(*window, *region, at() + 64, 64, kAccessFlushGlobal)));
  EXPECT_EQ(flush(window->rkey, at() + 64, 64, false)->range.address, at() + 64);
  EXPECT_EQ(flush(window->rkey, at(), 8, false).error(), MemoryFault::kRange);
  EXPECT_EQ(flush(window->rkey, 0, 0, true)->range.length, sizeof bytes) << "as in rxe";
}

// The library has checked the pages. All other checks precede this check.
TEST_F(MemoryKeys, WhatTheLibraryFoundOutIsBelieved) {
  memory.holes.push_back({{at() + 4096, 4096}, false});
  const auto error = [&](int access, RegionPages pages) {
    const auto mr = verbs.RegMr(kGroup, kProcess, {pd->handle, access, at(), 8192, at(), pages});
    return mr ? 0 : mr.error().code;
  };
  EXPECT_EQ(error(0, RegionPages::kUnknown), EFAULT);
  EXPECT_EQ(error(0, RegionPages::kReachable), 0);
  EXPECT_EQ(error(0, RegionPages::kUnreachable), EFAULT);
  EXPECT_EQ(error(0, RegionPages{77}), EFAULT);
  EXPECT_EQ(error(IBV_ACCESS_REMOTE_WRITE, RegionPages::kUnreachable), EINVAL);
}

TEST_F(MemoryKeys, OnlyRemoteAccessGivesAnRkeyAndItIsTheLkey) {
  EXPECT_EQ(Mr(IBV_ACCESS_LOCAL_WRITE)->rkey, 0u);
  const MemoryRegion* region = Mr();
  EXPECT_EQ(region->rkey, region->lkey);
}

TEST_F(MemoryKeys, LocalKeysAreCheckedForPdRightAndBounds) {
  const QueuePair* qp = Qp(IBV_QPT_RC);
  const MemoryRegion* region = Mr(0);
  const auto resolve = [&](uint64_t address, uint32_t length, uint32_t key, int access) {
    return verbs.ResolveLocal(*qp->pd, {address, length, key}, access);
  };
  const auto whole = resolve(at(), sizeof bytes, region->lkey, 0);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->process, kProcess);
  EXPECT_EQ(whole->range.address, at());
  EXPECT_EQ(resolve(at() + 1, sizeof bytes, region->lkey, 0).error(), MemoryFault::kRange);
  EXPECT_EQ(resolve(at() - 1, 1, region->lkey, 0).error(), MemoryFault::kRange);
  EXPECT_EQ(resolve(UINT64_MAX, 2, region->lkey, 0).error(), MemoryFault::kRange);
  EXPECT_EQ(resolve(at(), 1, region->lkey, IBV_ACCESS_LOCAL_WRITE).error(), MemoryFault::kAccess);
  EXPECT_EQ(resolve(at(), 1, region->lkey ^ 1, 0).error(), MemoryFault::kKey);
  EXPECT_TRUE(resolve(0, 0, 12345, 0)) << "no bytes need no key";
  const auto other_pd = *verbs.AllocPd(kGroup, context->handle);
  const auto foreign = *verbs.RegMr(kGroup, kProcess, {other_pd->handle, 0, at(), 64, at()});
  EXPECT_EQ(resolve(at(), 1, foreign->lkey, 0).error(), MemoryFault::kKey);
}

TEST_F(MemoryKeys, IovaNamesTheBytesForBothKeys) {
  const QueuePair* qp = Qp(IBV_QPT_RC);
  const uint64_t iova = 0x100000 + at() % 4096;
  const auto region = *verbs.RegMr(kGroup, kProcess, {pd->handle, kAll, at(), 4096, iova});
  const auto remote = verbs.ResolveRemote(*qp, region->rkey, iova + 8, 16, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_TRUE(remote);
  EXPECT_EQ(remote->range.address, at() + 8);
  EXPECT_EQ(verbs.ResolveRemote(*qp, region->rkey, at(), 16, IBV_ACCESS_REMOTE_READ).error(),
            MemoryFault::kRange);
}

TEST_F(MemoryKeys, ZeroRemoteBytesAreAlwaysGranted) {
  EXPECT_TRUE(verbs.ResolveRemote(*Qp(IBV_QPT_RC), 0xdead, 0, 0, IBV_ACCESS_REMOTE_READ));
}

TEST_F(MemoryKeys, DeregisteringTakesTheKeyAwayAndFreesThePd) {
  const QueuePair* qp = Qp(IBV_QPT_RC);
  const MemoryRegion* region = Mr();
  const uint32_t key = region->rkey;
  EXPECT_EQ(verbs.DeallocPd(kGroup, pd->handle).error().code, EBUSY);
  ASSERT_TRUE(verbs.DeregMr(kGroup, region->handle));
  EXPECT_EQ(verbs.ResolveRemote(*qp, key, at(), 1, IBV_ACCESS_REMOTE_READ).error(),
            MemoryFault::kKey);
}

TEST_F(MemoryKeys, InvalidationEndsRemoteUseOnly) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  const MemoryRegion* region = Mr();
  ASSERT_TRUE(verbs.Invalidate(*qp, region->rkey));
  EXPECT_FALSE(verbs.ResolveRemote(*qp, region->rkey, at(), 1, IBV_ACCESS_REMOTE_READ));
  EXPECT_TRUE(verbs.ResolveLocal(*qp->pd, {at(), 1, region->lkey}, 0));
  EXPECT_FALSE(verbs.Invalidate(*qp, region->rkey));
}

TEST_F(MemoryKeys, ReregistrationIsRefusedWhereTheProfileHasNone) {
  EXPECT_EQ(verbs
                .ReregMr(kGroup, kProcess, Mr()->handle,
                         {IBV_REREG_MR_CHANGE_ACCESS, 0, IBV_ACCESS_LOCAL_WRITE, 0, 0})
                .error()
                .code,
            EOPNOTSUPP);
}

TEST_F(MemoryKeys, ReregistrationChangesWhatItNamesAndNothingOnError) {
  device->profile.reregisters_regions = true;
  MemoryRegion* region = Mr();
  const auto other = *verbs.AllocPd(kGroup, context->handle);
  ASSERT_TRUE(verbs.ReregMr(kGroup, kProcess, region->handle,
                            {IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION,
                             other->handle, 0, at() + 4096, 100}));
  EXPECT_EQ(region->pd, other);
  EXPECT_EQ(region->iova, at() + 4096);
  EXPECT_EQ(region->length, 100u);
  EXPECT_EQ(region->access, kAll);
  EXPECT_TRUE(verbs.DeallocPd(kGroup, pd->handle));
  EXPECT_EQ(verbs
                .ReregMr(kGroup, kProcess, region->handle,
                         {IBV_REREG_MR_CHANGE_ACCESS, 0, IBV_ACCESS_REMOTE_WRITE, 0, 0})
                .error()
                .code,
            EINVAL);
  EXPECT_EQ(region->access, kAll);
  EXPECT_EQ(verbs.ReregMr(kGroup, kProcess, region->handle, {0, 0, 0, 0, 0}).error().code, EINVAL);
}

TEST_F(MemoryKeys, AType1WindowMovesWithEachBindingAndKeepsItsRegionBusy) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  MemoryRegion* region = Mr();
  MemoryWindow* window = *verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_1);
  const uint32_t before = window->rkey;
  EXPECT_FALSE(verbs.ResolveRemote(*qp, before, at(), 1, IBV_ACCESS_REMOTE_READ));
  ASSERT_TRUE(verbs.BindWindow(*qp, Bind(*window, *region, at() + 64, 64, IBV_ACCESS_REMOTE_READ)));
  EXPECT_EQ(window->rkey, ibv_inc_rkey(before));
  EXPECT_TRUE(verbs.ResolveRemote(*qp, window->rkey, at() + 64, 64, IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(verbs.ResolveRemote(*qp, window->rkey, at() + 63, 1, IBV_ACCESS_REMOTE_READ).error(),
            MemoryFault::kRange);
  EXPECT_EQ(verbs.ResolveRemote(*qp, window->rkey, at() + 64, 1, IBV_ACCESS_REMOTE_WRITE).error(),
            MemoryFault::kAccess);
  EXPECT_EQ(verbs.ResolveRemote(*qp, before, at() + 64, 1, IBV_ACCESS_REMOTE_READ).error(),
            MemoryFault::kKey);
  EXPECT_EQ(verbs.DeregMr(kGroup, region->handle).error().code, EINVAL);
  ASSERT_TRUE(verbs.BindWindow(*qp, Bind(*window, *region, 0, 0, 0)));
  EXPECT_TRUE(verbs.DeregMr(kGroup, region->handle));
}

TEST_F(MemoryKeys, AType2WindowBelongsToItsQpUntilItIsInvalidatedOrTheQpGoes) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  QueuePair* other = Qp(IBV_QPT_RC);
  MemoryRegion* region = Mr();
  MemoryWindow* window = *verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_2);
  const auto bind = [&] {
    return verbs.BindWindow(*qp, Bind(*window, *region, at(), 64, IBV_ACCESS_REMOTE_READ));
  };
  ASSERT_TRUE(bind());
  EXPECT_FALSE(bind()) << "bound already";
  EXPECT_TRUE(verbs.ResolveRemote(*qp, window->rkey, at(), 1, IBV_ACCESS_REMOTE_READ));
  EXPECT_FALSE(verbs.ResolveRemote(*other, window->rkey, at(), 1, IBV_ACCESS_REMOTE_READ));
  EXPECT_FALSE(verbs.Invalidate(*other, window->rkey));
  ASSERT_TRUE(verbs.Invalidate(*qp, window->rkey));
  ASSERT_TRUE(bind());
  ASSERT_TRUE(verbs.DestroyQp(now, kGroup, qp->handle));
  EXPECT_EQ(window->qp, nullptr);
  EXPECT_EQ(region->bound_windows, 0u);
}

TEST_F(MemoryKeys, BindingNeedsTheRightAndLocalWriteForRemoteWrite) {
  QueuePair* qp = Qp(IBV_QPT_RC);
  MemoryWindow* window = *verbs.AllocMw(kGroup, pd->handle, IBV_MW_TYPE_1);
  const MemoryRegion* no_bind = Mr(IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(verbs.BindWindow(*qp, Bind(*window, *no_bind, at(), 8, 0)).error(),
            MemoryFault::kAccess);
  const MemoryRegion* read_only = Mr(IBV_ACCESS_MW_BIND);
  EXPECT_EQ(
      verbs.BindWindow(*qp, Bind(*window, *read_only, at(), 8, IBV_ACCESS_REMOTE_WRITE)).error(),
      MemoryFault::kAccess);
  EXPECT_EQ(verbs.BindWindow(*qp, Bind(*window, *read_only, at() + 1, sizeof bytes, 0)).error(),
            MemoryFault::kRange);
}

}  // namespace
}  // namespace rdmaemu
