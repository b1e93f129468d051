// What a client holds a descriptor of, it can misuse; the host must not feel it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

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

TEST(EventfdCounters, AddDoesNotBlockOnACounterThatTheClientFilled) {
  EventfdCounters counters;
  const CounterId counter = *counters.Create();
  const uint64_t most = UINT64_MAX - 1;
  ASSERT_EQ(write(counters.Descriptor(counter), &most, sizeof most), 8);
  counters.Add(counter, 1);
  EXPECT_TRUE(Readable(counters.Descriptor(counter)));
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

TEST(MemfdSegments, RefusesNothingAndTooMuchWithEnomem) {
  MemfdSegments segments;
  EXPECT_EQ(segments.CreateSegment(0).error(), Error{ENOMEM});
  EXPECT_EQ(segments.CreateSegment(MemfdSegments::kMaxTotalBytes + 1).error(), Error{ENOMEM});
}

}  // namespace
}  // namespace rdmaemu::runtime
