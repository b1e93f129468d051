// Protection domains, memory regions and windows: access flags, bounds, keys, and the objects that
// prevent the destruction of others.
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class PdMr : public DeviceTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DeviceTest::SetUp());
    buffer = Allocate(16384);
  }
  Mr Register(int access) { return Mr(ibv_reg_mr(pd.get(), buffer.data, buffer.size, access)); }
  Buffer buffer;
};

TEST_F(PdMr, DescribesWhatWasRegistered) {
  const Mr mr = Register(kAllAccess);
  ASSERT_TRUE(mr);
  EXPECT_EQ(mr->addr, buffer.data);
  EXPECT_EQ(mr->length, buffer.size);
  EXPECT_EQ(mr->pd, pd.get());
  EXPECT_EQ(mr->context, context.get());
}

// A handle belongs to one open device. The last of eight handles exists in no other context.
TEST_F(PdMr, HandlesBelongToTheContextThatTheyWereMadeThrough) {
  const Context other(OpenTestDevice());
  ASSERT_TRUE(other);
  std::vector<Pd> pds;
  for (int i = 0; i < 8; ++i) pds.emplace_back(ibv_alloc_pd(context.get()));
  const Mr mr = Register(kAllAccess);
  ASSERT_TRUE(pds.back() && mr);
  ibv_pd moved = *pds.back();
  moved.context = other.get();
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(&moved, buffer.data, buffer.size, 0), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_dealloc_pd(&moved), ENOENT);
  Cq cq(ibv_create_cq(other.get(), 4, nullptr, nullptr, 0));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp(&moved, &init), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(PdMr, UnknownHandlesAreNotThere) {
  const Mr mr = Register(kAllAccess);
  ASSERT_TRUE(mr);
  ibv_pd no_pd = *pd;
  no_pd.handle = 0x7fff;
  EXPECT_EQ(ibv_dealloc_pd(&no_pd), ENOENT);
  EXPECT_EQ(ibv_reg_mr(&no_pd, buffer.data, buffer.size, 0), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(PdMr, KeysAreOfThisRegionAlone) {
  std::set<uint32_t> keys;
  std::vector<Mr> regions;
  for (int i = 0; i < 50; ++i) {
    regions.push_back(Register(kAllAccess));
    ASSERT_TRUE(regions.back());
    EXPECT_TRUE(keys.insert(regions.back()->lkey).second);
    EXPECT_EQ(regions.back()->lkey, regions.back()->rkey);
  }
}

struct AccessCase {
  int access;
  bool accepted;
  bool has_rkey;
};
class Access : public PdMr, public testing::WithParamInterface<AccessCase> {};
TEST_P(Access, IsAcceptedOrRefusedAsTheKernelDoes) {
  const Mr mr = Register(GetParam().access);
  ASSERT_EQ(mr != nullptr, GetParam().accepted);
  if (mr) {
    EXPECT_EQ(mr->rkey != 0, GetParam().has_rkey);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Flags, Access,
    testing::Values(AccessCase{0, true, false}, AccessCase{IBV_ACCESS_LOCAL_WRITE, true, false},
                    AccessCase{IBV_ACCESS_REMOTE_WRITE, false, false},
                    AccessCase{IBV_ACCESS_REMOTE_READ, true, true},
                    AccessCase{IBV_ACCESS_REMOTE_ATOMIC, false, false},
                    AccessCase{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, true, true},
                    AccessCase{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, true, true},
                    AccessCase{IBV_ACCESS_MW_BIND, true, false},
                    AccessCase{IBV_ACCESS_ON_DEMAND, false, false},
                    AccessCase{IBV_ACCESS_RELAXED_ORDERING, true, false}));

TEST_F(PdMr, RefusesLengthZero) {
  // At the beginning of a page. Elsewhere rxe counts the page that contains the address.
  uint8_t* page = buffer.data - buffer.address() % 4096 + 4096;
  EXPECT_EQ(ibv_reg_mr(pd.get(), page, 0, kAllAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// rxe pins the page that contains the address.
TEST_F(PdMr, RegistersLengthZeroWithinAPage) {
  const Mr mr(ibv_reg_mr(pd.get(), buffer.data - buffer.address() % 4096 + 4097, 0, kAllAccess));
  ASSERT_TRUE(mr) << strerror(errno);
  EXPECT_EQ(mr->length, 0u);
  void* gone = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  munmap(gone, 4096);
  EXPECT_EQ(ibv_reg_mr(pd.get(), static_cast<char*>(gone) + 1, 0, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(PdMr, RefusesMemoryThatIsNotThere) {
  EXPECT_EQ(ibv_reg_mr(pd.get(), nullptr, 4096, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  void* page = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  munmap(static_cast<char*>(page) + 4096, 4096);
  EXPECT_EQ(ibv_reg_mr(pd.get(), page, 8192, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(page, 4096);
}

// Sizes around 1 MiB, above which the emulator does not check every page.
class RegionSizes : public PdMr, public testing::WithParamInterface<size_t> {};

TEST_P(RegionSizes, TakeNoHoleAndNoPageThatMayNotBeWritten) {
  constexpr size_t kPage = 4096;
  const size_t bytes = GetParam();
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  char* const first = static_cast<char*>(memory);
  char* const last = first + bytes - kPage;
  const auto refuses = [&](int access) {
    errno = 0;
    const Mr mr(ibv_reg_mr(pd.get(), memory, bytes, access));
    return !mr && errno == EFAULT;
  };
  EXPECT_FALSE(refuses(kAllAccess));
  for (char* const page : {first, last}) {
    ASSERT_EQ(mprotect(page, kPage, PROT_READ), 0);
    EXPECT_TRUE(refuses(IBV_ACCESS_LOCAL_WRITE));
    EXPECT_FALSE(refuses(0));
    ASSERT_EQ(mprotect(page, kPage, PROT_READ | PROT_WRITE), 0);
  }
  EXPECT_FALSE(refuses(kAllAccess));
  ASSERT_EQ(munmap(first + bytes / 2 / kPage * kPage, kPage), 0);
  EXPECT_TRUE(refuses(0));
  munmap(memory, bytes);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RegionSizes,
                         testing::Values(size_t{3} * 4096, size_t{1} << 20,
                                         (size_t{1} << 20) + 4096, size_t{9} << 20));

TEST_F(PdMr, ReadOnlyMemoryMayBeReadOnly) {
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(ibv_reg_mr(pd.get(), page, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  {
    // Calls the function, not the inline of verbs.h. With constant flags the inline only uses
    // another symbol.
    const Mr mr(ibv_reg_mr(pd.get(), page, 4096, 0));
    EXPECT_TRUE(mr);
  }
  munmap(page, 4096);
}

TEST_F(PdMr, RefusesARangeThatWrapsAround) {
  EXPECT_EQ(ibv_reg_mr(pd.get(), buffer.data, ~size_t{0}, kAllAccess), nullptr);
}

TEST_F(PdMr, KeepsItsPd) {
  Mr mr = Register(kAllAccess);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
  mr.reset();
  EXPECT_EQ(ibv_dealloc_pd(pd.release()), 0);
}

TEST_F(PdMr, WindowsAndAddressHandlesKeepTheirPd) {
  Mw mw(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
  ASSERT_TRUE(mw);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
  mw.reset();
  ibv_ah_attr path = PathToMyself();
  Ah ah(ibv_create_ah(pd.get(), &path));
  ASSERT_TRUE(ah);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
}

TEST_F(PdMr, IovaGivesRemoteAddressesOfItsOwn) {
  const uint64_t in_page = buffer.address() % 4096;  // the offset in the page must be the same
  const Mr mr(ibv_reg_mr_iova(pd.get(), buffer.data, buffer.size, 0x10000 + in_page, kAllAccess));
  EXPECT_TRUE(mr);
  EXPECT_EQ(ibv_reg_mr_iova(pd.get(), buffer.data, buffer.size, 0x10000 + in_page + 1, kAllAccess),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(PdMr, AdviceIsNotSupported) {
  const Mr mr = Register(kAllAccess);
  ibv_sge range{buffer.address(), 4096, mr->lkey};
  EXPECT_EQ(ibv_advise_mr(pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1), EOPNOTSUPP);
}

TEST_F(PdMr, ClosingTheDeviceFreesWhatIsLeft) {
  // As in the kernel: objects end with their context.
  ibv_context* other = OpenTestDevice();
  ASSERT_NE(other, nullptr);
  ASSERT_NE(ibv_alloc_pd(other), nullptr);
  EXPECT_EQ(ibv_close_device(other), 0);
}

}  // namespace
}  // namespace rdma_contract
