// Unmapped buffers do not crash the program.
#include "shim/verbs/program_memory.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

#include <string>

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
