#include "emulator/runtime/memory_maps.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>

namespace rdmaemu::runtime {
namespace {

bool Covered(MemoryRange range, bool write, std::initializer_list<const char*> lines) {
  CoverageCheck check(range, write);
  for (const char* line : lines) {
    if (!check.AddLine(line)) break;
  }
  return check.covered();
}

constexpr char kReadWrite[] = "00001000-00003000 rw-p 00000000 00:00 0 ";
constexpr char kReadOnly[] = "00003000-00004000 r--p 00000000 08:01 1234  /lib/x";
constexpr char kGuard[] = "00004000-00005000 ---p 00000000 00:00 0 ";

TEST(CoverageCheck, TakesOneMappingOrSeveralThatTouch) {
  EXPECT_TRUE(Covered({0x1000, 0x2000}, true, {kReadWrite}));
  EXPECT_TRUE(Covered({0x1fff, 0x1002}, false, {kReadWrite, kReadOnly}));
}

TEST(CoverageCheck, AsksForWritePermissionOnlyWhereWritten) {
  EXPECT_TRUE(Covered({0x3000, 0x10}, false, {kReadWrite, kReadOnly}));
  EXPECT_FALSE(Covered({0x3000, 0x10}, true, {kReadWrite, kReadOnly}));
  EXPECT_FALSE(Covered({0x2ff0, 0x20}, true, {kReadWrite, kReadOnly}));
}

TEST(CoverageCheck, RefusesGapsGuardPagesAndTheEndOfMappings) {
  EXPECT_FALSE(Covered({0x0ff0, 0x20}, false, {kReadWrite}));
  EXPECT_FALSE(Covered({0x2ff0, 0x20}, false, {kReadWrite, kGuard}));
  EXPECT_FALSE(Covered({0x3ff0, 0x20}, false, {kReadWrite, kReadOnly, kGuard}));
  EXPECT_FALSE(Covered({0x2ff0, 0x20}, false, {kReadWrite}));
}

TEST(CoverageCheck, RefusesARangeThatWrapsAround) {
  EXPECT_FALSE(Covered({UINT64_MAX - 4, 16}, false, {kReadWrite}));
}

TEST(IsMapped, FollowsTheProcessAsItIsNow) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const MemoryRange range{reinterpret_cast<uint64_t>(memory), 3 * page};
  EXPECT_TRUE(IsMapped(getpid(), range, true));
  mprotect(static_cast<char*>(memory) + page, page, PROT_READ);
  EXPECT_TRUE(IsMapped(getpid(), range, false));
  EXPECT_FALSE(IsMapped(getpid(), range, true));
  munmap(static_cast<char*>(memory) + page, page);
  EXPECT_FALSE(IsMapped(getpid(), range, false));
  munmap(memory, page);
  munmap(static_cast<char*>(memory) + 2 * page, page);
}

}  // namespace
}  // namespace rdmaemu::runtime
