// Unmapped buffers do not crash the program.
#include "shim/verbs/program_memory.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>
#include <string>

#include "tests/support/refuse_calls.h"

namespace rdmaemu::shim {
namespace {

constexpr size_t kPage = 4096;

class ProgramMemoryTest : public ::testing::Test {
 protected:
  ProgramMemoryTest() {
    pages = static_cast<char*>(
        mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(pages, 'p', 3 * kPage);
    memory.Begin();
  }
  ~ProgramMemoryTest() override { munmap(pages, 3 * kPage); }
  uint64_t At(size_t offset) const { return reinterpret_cast<uint64_t>(pages + offset); }

  char* pages;
  ProgramMemory memory{};
  char buffer[256] = {};
};

using RefusedProbes = ProgramMemoryTest;

// A seccomp filter that refuses a probe says nothing about the memory.
TEST_F(RefusedProbes, MemoryIsWrittenAndReadAllTheSame) {
  for (const uint32_t error : {EPERM, ENOSYS}) {
    for (const std::initializer_list<int>& calls :
         {std::initializer_list<int>{SYS_getcpu},
          std::initializer_list<int>{SYS_getcpu, SYS_getrandom, SYS_rt_sigprocmask}}) {
      EXPECT_EXIT(
          {
            const bool is_refused = testing::RefuseCalls(calls, error);
            const bool moved = memory.Write(At(kPage - 10), "abcdefghijklmnopqrst", 20) &&
                               memory.Write(At(0), "x", 1) && memory.Read(buffer, At(0), 2);
            _exit(is_refused && moved && memcmp(pages + kPage - 10, "abcdefghij", 10) == 0 &&
                          buffer[0] == 'x'
                      ? 0
                      : 1);
          },
          ::testing::ExitedWithCode(0), "");
    }
  }
}

TEST_F(RefusedProbes, AHoleIsNotWrittenWhenOneProbeIsLeft) {
  ASSERT_EQ(munmap(pages + kPage, kPage), 0);
  EXPECT_EXIT(
      _exit(testing::RefuseCalls({SYS_getcpu}, EPERM) && !memory.Write(At(kPage), buffer, 8) ? 0
                                                                                             : 1),
      ::testing::ExitedWithCode(0), "");
}

TEST_F(ProgramMemoryTest, BytesMoveAcrossPages) {
  ASSERT_TRUE(memory.Read(buffer, At(kPage - 10), 20));
  EXPECT_EQ(std::string(buffer, 20), std::string(20, 'p'));
  ASSERT_TRUE(memory.Write(At(kPage - 10), "abcdefghijklmnopqrst", 20));
  EXPECT_EQ(std::string(pages + kPage - 11, 22), "pabcdefghijklmnopqrstp");
}

TEST_F(ProgramMemoryTest, AHoleIsNeitherReadNorWritten) {
  ASSERT_EQ(munmap(pages + kPage, kPage), 0);
  EXPECT_FALSE(memory.Read(buffer, At(kPage), 8));
  EXPECT_FALSE(memory.Read(buffer, At(kPage - 4), 8));
  EXPECT_FALSE(memory.Write(At(kPage), buffer, 8));
  EXPECT_FALSE(memory.Write(At(kPage - 4), buffer, 8));
  EXPECT_FALSE(memory.Write(At(kPage), buffer, 1)) << "too short to ask with";
}

TEST_F(ProgramMemoryTest, APageThatCanOnlyBeReadIsNotWritten) {
  ASSERT_EQ(mprotect(pages, kPage, PROT_READ), 0);
  EXPECT_TRUE(memory.Read(buffer, At(0), 8));
  ProgramMemory others{};
  others.Begin();
  EXPECT_FALSE(others.Write(At(0), buffer, 8));
  EXPECT_EQ(pages[0], 'p');
}

TEST_F(ProgramMemoryTest, ShortWritesTouchNothingBesideThem) {
  for (size_t bytes = 1; bytes < 8; bytes++) {
    ProgramMemory fresh{};
    fresh.Begin();
    ASSERT_TRUE(fresh.Write(At(100), "zzzzzzz", bytes));
    EXPECT_EQ(pages[99], 'p');
    EXPECT_EQ(pages[100 + bytes], 'p');
    memset(pages + 100, 'p', bytes);
  }
}

TEST_F(ProgramMemoryTest, AddressesThatWrapOrAreNoneAreRefused) {
  EXPECT_FALSE(memory.Read(buffer, UINT64_MAX - 10, 64));
  EXPECT_FALSE(memory.Write(UINT64_MAX - 10, buffer, 64));
  EXPECT_FALSE(memory.Read(buffer, 16, 8));
  EXPECT_FALSE(memory.Write(16, buffer, 8));
  EXPECT_FALSE(memory.Read(buffer, uint64_t{1} << 60, 8));
}

TEST_F(ProgramMemoryTest, TheAnswerOfAPageIsBelievedForAMomentOnly) {
  EXPECT_TRUE(memory.Read(buffer, At(0), 8));
  ASSERT_EQ(munmap(pages, kPage), 0);
  timespec begun, now;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1'000'000'000 + now.tv_nsec - begun.tv_nsec < 200'000);
  memory.Begin();
  EXPECT_FALSE(memory.Read(buffer, At(0), 8));
}

}  // namespace
}  // namespace rdmaemu::shim
