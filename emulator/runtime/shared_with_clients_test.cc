// A client can misuse every descriptor that it holds. The host must not be affected.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "emulator/runtime/eventfd_counters.h"
#include "emulator/runtime/memfd_segments.h"

namespace rdmaemu::runtime {
namespace {

bool Readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, 0) == 1;
}

TEST(EventfdCounters, CountsAndIsReadableWhileAboveZero) {
  EventfdCounters counters;
  const Result<CounterId> counter = counters.Create();
  ASSERT_TRUE(counter);
  const int fd = counters.Descriptor(*counter);
  EXPECT_FALSE(Readable(fd));
  counters.Add(*counter, 3);
  uint64_t value = 0;
  ASSERT_EQ(read(fd, &value, sizeof value), 8);
  EXPECT_EQ(value, 1u) << "a read takes one";
  EXPECT_EQ(counters.Remove(*counter, 5), 2u);
  EXPECT_FALSE(Readable(fd));
}

TEST(EventfdCounters, RemoveDoesNotBlockOnADescriptorThatTheClientLeftBlocking) {
  EventfdCounters counters;
  const CounterId counter = *counters.Create();
  EXPECT_EQ(fcntl(counters.Descriptor(counter), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(counters.Remove(counter, 1), 0u);
}

// A client fills its counter completely whenever there is room. A host that polled before it wrote
// would block sooner or later, because the client fills the counter in between.
TEST(EventfdCounters, AddNeverWaitsForAClientThatKeepsItsCounterFull) {
  EventfdCounters counters;
  const CounterId counter = *counters.Create();
  const int fd = counters.Descriptor(counter);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> rounds{0};
  std::thread client([&] {
    while (!stop.load()) {
      uint64_t one = 0;
      iovec into{&one, sizeof one};
      [[maybe_unused]] const ssize_t got = preadv2(fd, &into, 1, -1, RWF_NOWAIT);
      // Non-blocking only during its own write, because the host shares the flag.
      fcntl(fd, F_SETFL, O_NONBLOCK);
      for (uint64_t room = UINT64_MAX - 1; room > 0; room /= 2) {
        [[maybe_unused]] const ssize_t written = write(fd, &room, sizeof room);
      }
      fcntl(fd, F_SETFL, 0);
      rounds++;
    }
  });
  while (rounds.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 100'000; i++) counters.Add(counter, 1);
  stop = true;
  client.join();
  pollfd readable{fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 1);
}

TEST(EventfdSignal, AddsAnyCountAndIsWhatThisSystemHas) {
  EventfdSignal signal;
  ASSERT_TRUE(signal.never_waits()) << "io_submit(2) is refused here";
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
  signal.Add(fd.get(), 0);
  EXPECT_FALSE(Readable(fd.get()));
  for (uint64_t count : {1u, 31u, 32u, 33u, 1000u}) {
    signal.Add(fd.get(), static_cast<uint32_t>(count));
    uint64_t value = 0;
    ASSERT_EQ(read(fd.get(), &value, sizeof value), 8);
    EXPECT_EQ(value, count);
  }
}

TEST(EventfdCounters, ForgetsWhatWasDestroyed) {
  EventfdCounters counters;
  const CounterId counter = *counters.Create();
  counters.Destroy(counter);
  EXPECT_EQ(counters.Descriptor(counter), -1);
  counters.Add(counter, 1);
  EXPECT_EQ(counters.Remove(counter, 1), 0u);
}

TEST(MemfdSegments, AreZeroedWholePagesSharedWithWhoMapsTheDescriptor) {
  MemfdSegments segments;
  const Result<Segment> segment = segments.CreateSegment(100);
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->bytes.size(), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(segment->bytes[99], std::byte{0});
  void* const client = mmap(nullptr, segment->bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED,
                            segments.Descriptor(segment->id), 0);
  ASSERT_NE(client, MAP_FAILED);
  static_cast<std::byte*>(client)[7] = std::byte{42};
  EXPECT_EQ(segment->bytes[7], std::byte{42});
  munmap(client, segment->bytes.size());
}

TEST(MemfdSegments, ClientsCannotTakePagesAwayFromTheHost) {
  MemfdSegments segments;
  const Result<Segment> segment = segments.CreateSegment(8192);
  ASSERT_TRUE(segment);
  const int fd = segments.Descriptor(segment->id);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(ftruncate(fd, 1 << 20), -1);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(MemfdSegments, TakeMemoryWhereTheyAreUsedAndGiveItBack) {
  MemfdSegments segments;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const Result<Segment> segment = segments.CreateSegment(size_t{3} << 30);
  ASSERT_TRUE(segment);
  const auto blocks = [&] {
    struct stat status;
    EXPECT_EQ(fstat(segments.Descriptor(segment->id), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  EXPECT_EQ(blocks(), 0u);
  std::memset(segment->bytes.data(), 0xff, 5 * page);
  EXPECT_EQ(blocks(), 5 * page);
  // All but the first and the last byte of the five pages.
  segments.Discard(segment->id, 1, 5 * page - 2);
  EXPECT_EQ(blocks(), 2 * page);
  EXPECT_EQ(segment->bytes[0], std::byte{0xff});
  EXPECT_EQ(segment->bytes[5 * page - 1], std::byte{0xff});
  for (size_t i = 1; i < 5 * page - 1; i++) ASSERT_EQ(segment->bytes[i], std::byte{0}) << i;
  // Within one page.
  segment->bytes[10] = std::byte{1};
  segments.Discard(segment->id, 10, 5);
  EXPECT_EQ(segment->bytes[10], std::byte{0});
  EXPECT_EQ(segment->bytes[0], std::byte{0xff});
  segments.Discard(segment->id, 0, page);  // whole pages
  EXPECT_EQ(segment->bytes[0], std::byte{0});
}

TEST(MemfdSegments, RefusesNothingAndTooMuchWithEnomem) {
  MemfdSegments segments;
  EXPECT_EQ(segments.CreateSegment(0).error(), Error{ENOMEM});
  EXPECT_EQ(segments.CreateSegment(MemfdSegments::kMaxTotalBytes + 1).error(), Error{ENOMEM});
}

}  // namespace
}  // namespace rdmaemu::runtime
