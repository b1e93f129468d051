// Memory that a process shares with its host. The process is this one, and its arena has an address
// at which nothing is mapped: what the host does not reach directly fails with EFAULT.
#include "emulator/runtime/shared_buffers.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "emulator/runtime/memfd_segments.h"
#include "emulator/runtime/process_memory.h"

namespace rdmaemu::runtime {
namespace {

constexpr ProcessId kSharingProcess{1}, kOrdinaryProcess{2};
constexpr uint64_t kArenaAddress = uint64_t{1} << 60;  // no program can map it
constexpr uint64_t kFirstGranule = BufferArena::kControlBytes / BufferArena::kGranuleBytes;

class SharedBuffersTest : public ::testing::Test {
 protected:
  SharedBuffersTest() : bytes_(segments_.CreateSegment(BufferArena::kBytes)->bytes) {
    memory_.AddProcess(kSharingProcess, getpid());
    memory_.AddProcess(kOrdinaryProcess, getpid());
    EXPECT_TRUE(memory_.ShareBuffers(kSharingProcess, kArenaAddress, bytes_));
  }
  BufferArena& arena() { return *reinterpret_cast<BufferArena*>(bytes_.data()); }
  // A range that begins `offset` bytes behind the first granule for buffers.
  static MemoryRange At(uint64_t offset, uint64_t length) {
    return {kArenaAddress + BufferArena::kControlBytes + offset, length};
  }
  std::byte* HostAt(uint64_t offset) { return bytes_.data() + BufferArena::kControlBytes + offset; }
  int WriteTo(MemoryRange to, std::string_view text) {
    const Status done = memory_.Write(kSharingProcess, {&to, 1}, std::as_bytes(std::span(text)));
    return done ? 0 : done.error().code;
  }
  static MemoryRange Own(std::string& text) {
    return {reinterpret_cast<uint64_t>(text.data()), text.size()};
  }

  MemfdSegments segments_;
  std::span<std::byte> bytes_;
  ProcessMemory memory_{[](const std::string&) {}};
};

std::string BytesOfPattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; i++) text[i] = static_cast<char>(i * 7 + i / 251 + 1);
  return text;
}

TEST_F(SharedBuffersTest, EveryByteMovesAtEachSizeAndOffset) {
  arena().Show(kFirstGranule, 1024);
  for (const size_t size : {1, 2, 4, 7, 8, 9, 4095, 4096, 4097, 1 << 20}) {
    for (const uint64_t offset : {0, 1, 4, 4095}) {
      SCOPED_TRACE(testing::Message() << size << " at " << offset);
      const std::string text = BytesOfPattern(size);
      ASSERT_EQ(WriteTo(At(offset, size), text), 0);
      EXPECT_EQ(std::memcmp(HostAt(offset), text.data(), size), 0);
      EXPECT_EQ(HostAt(offset)[size], std::byte{0});
      std::string back(size, '\0');
      const MemoryRange from = At(offset, size);
      ASSERT_TRUE(
          memory_.Read(kSharingProcess, {&from, 1}, std::as_writable_bytes(std::span(back))));
      EXPECT_EQ(back, text);
      std::memset(HostAt(offset), 0, size);
    }
  }
}

TEST_F(SharedBuffersTest, CopiesBetweenSharedAndOrdinaryMemoryInBothDirections) {
  arena().Show(kFirstGranule, 1024);
  const std::string text = BytesOfPattern(300000);
  std::string ordinary = text, back(text.size(), '\0');
  const MemoryRange from = Own(ordinary), to = Own(back);
  const MemoryRange near = At(5, text.size()), far = At(400001, text.size());
  const MemoryRange cut[] = {At(400001, 7), At(400008, text.size() - 7)};
  ASSERT_TRUE(memory_.Copy(kOrdinaryProcess, {&from, 1}, kSharingProcess, {&near, 1}));
  ASSERT_TRUE(memory_.Copy(kSharingProcess, {&near, 1}, kSharingProcess, cut));
  ASSERT_TRUE(memory_.Copy(kSharingProcess, {&far, 1}, kOrdinaryProcess, {&to, 1}));
  EXPECT_EQ(back, text);
}

TEST_F(SharedBuffersTest, BytesOutsideSharedGranulesAreReachedByTheKernelAlone) {
  arena().Show(kFirstGranule + 1, 2);
  EXPECT_EQ(WriteTo(At(4096, 8192), BytesOfPattern(8192)), 0);
  EXPECT_EQ(WriteTo(At(4095, 2), "xx"), EFAULT) << "begins before a shared granule";
  EXPECT_EQ(WriteTo(At(3 * 4096 - 1, 2), "xx"), EFAULT) << "ends behind one";
  EXPECT_EQ(WriteTo({kArenaAddress, 4}, "xxxx"), EFAULT) << "the arena's own words";
  EXPECT_EQ(WriteTo({kArenaAddress + BufferArena::kBytes - 1, 2}, "xx"), EFAULT);
  EXPECT_EQ(WriteTo({kArenaAddress - 1, 2}, "xx"), EFAULT);
  EXPECT_EQ(WriteTo(At(4096, 1), "x"), 0);
  arena().Hide(kFirstGranule + 2, 1);
  EXPECT_EQ(WriteTo(At(4096, 8192), BytesOfPattern(8192)), EFAULT);
  EXPECT_EQ(WriteTo(At(4096, 4096), BytesOfPattern(4096)), 0);
}

TEST_F(SharedBuffersTest, OnlyRangesWithASharedByteCountAsShared) {
  arena().Show(kFirstGranule + 1, 1);
  const auto is_shared = [&](MemoryRange range) {
    return memory_.IsShared(kSharingProcess, {&range, 1});
  };
  EXPECT_TRUE(is_shared(At(4096, 1)));
  EXPECT_TRUE(is_shared(At(0, 4097)));
  EXPECT_TRUE(is_shared({0, UINT64_MAX}));
  EXPECT_FALSE(is_shared(At(0, 4096)));
  EXPECT_FALSE(is_shared(At(8192, 4096)));
  EXPECT_FALSE(is_shared({kArenaAddress - 4096, 4096}));
  const MemoryRange shared = At(4096, 1);
  EXPECT_FALSE(memory_.IsShared(kOrdinaryProcess, {&shared, 1}));
}

TEST_F(SharedBuffersTest, AProcessThatHasEndedSharesNothing) {
  arena().Show(kFirstGranule, 1);
  arena().ordinary_buffers = 3;
  EXPECT_EQ(memory_.shared_counts().processes, 1u);
  EXPECT_FALSE(memory_.ShareBuffers(kSharingProcess, kArenaAddress, bytes_))
      << "one arena per process";
  memory_.ProcessEnded(kSharingProcess);
  EXPECT_EQ(WriteTo(At(0, 1), "x"), ESRCH);
  EXPECT_EQ(memory_.shared_counts().processes, 0u);
  EXPECT_EQ(memory_.shared_counts().ordinary_buffers, 3u);
}

TEST_F(SharedBuffersTest, TheHostDoesNotWaitForAProcessThatNeverEndsAChange) {
  arena().Show(kFirstGranule, 1);
  arena().changes = 1;
  EXPECT_EQ(WriteTo(At(0, 1), "x"), EFAULT);
  arena().changes = 2;
  EXPECT_EQ(WriteTo(At(0, 1), "x"), EFAULT) << "it is not trusted again";
}

// The process takes its granules back, as before a fork, while the host writes.
TEST_F(SharedBuffersTest, TheHostWritesNothingWhileTheProcessChangesItsMappings) {
  constexpr uint64_t kCount = 16;
  constexpr size_t kSize = kCount * BufferArena::kGranuleBytes;
  std::atomic<bool> stop{false};
  std::atomic<int> written{0}, tried{0};
  std::thread host([&] {
    for (char with = 'a'; !stop.load(); with = with == 'z' ? 'a' : static_cast<char>(with + 1)) {
      if (WriteTo(At(0, kSize), std::string(kSize, with)) == 0) written++;
      tried++;
    }
  });
  const std::atomic_ref changes(arena().changes);
  const std::atomic_ref copies(arena().host_copies);
  for (int round = 0; round < 200; round++) {
    arena().Show(kFirstGranule, kCount);
    // On a busy machine the host may have stopped trusting this process.
    for (const int before = written.load(), end = tried.load() + 10;
         written.load() == before && tried.load() < end;) {
      sched_yield();
    }
    changes.fetch_add(1);
    arena().Hide(kFirstGranule, kCount);
    while (copies.load() != 0) sched_yield();
    // The host's next write is whole or not there.
    for (size_t i = 1; i < kSize; i++) ASSERT_EQ(HostAt(i)[0], HostAt(0)[0]) << i;
    std::memset(HostAt(0), '#', kSize);
    EXPECT_EQ(HostAt(kSize - 1)[0], std::byte{'#'});
    changes.fetch_add(1);
  }
  stop = true;
  host.join();
  EXPECT_GT(written.load(), 0);
}

}  // namespace
}  // namespace rdmaemu::runtime
