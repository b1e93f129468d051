// The libraries use descriptors of their own. ThreadSanitizer follows descriptors too: a use that
// it sees needs an end that it sees, or the next thread that gets the number seems to race.
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

// Opens so many files that the numbers which the libraries have closed are among them. For
// ThreadSanitizer memfd_create(2) makes no descriptor: only the close that follows is an access.
constexpr int kMaxOpened = 64;

void OpenFiles() {
  std::vector<int> opened;
  for (int i = 0; i < kMaxOpened; i++) opened.push_back(memfd_create("other", MFD_CLOEXEC));
  for (const int fd : opened) close(fd);
}

// Calls `first` here and then opens files in another thread. To ThreadSanitizer the two threads are
// not ordered.
void OpenFilesElsewhereAfter(const std::function<void()>& first) {
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    while (!is_done.load(std::memory_order_relaxed)) std::this_thread::yield();
    OpenFiles();
  });
  first();
  is_done.store(true, std::memory_order_relaxed);
  other.join();
}

TEST(Descriptors, OfAnOpenedHostAreNumbersForOtherThreads) {
  OpenFilesElsewhereAfter([] { ASSERT_EQ(rdmaemu_open(nullptr), 0); });
  EXPECT_EQ(rdmaemu_close(), 0);
}

class ChannelDescriptors : public rdmaemu::testing::EmbeddedTest {};

TEST_F(ChannelDescriptors, OfADestroyedChannelAreNumbersForOtherThreads) {
  ibv_device** const devices = ibv_get_device_list(nullptr);
  ASSERT_NE(devices, nullptr);
  ibv_context* const context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  ASSERT_NE(context, nullptr);
  OpenFilesElsewhereAfter([&] {
    ibv_comp_channel* const channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    pollfd poll_at{channel->fd, POLLIN, 0};
    EXPECT_EQ(poll(&poll_at, 1, 0), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    rdma_event_channel* const events = rdma_create_event_channel();
    ASSERT_NE(events, nullptr);
    poll_at.fd = events->fd;
    EXPECT_EQ(poll(&poll_at, 1, 0), 0);
    rdma_destroy_event_channel(events);
  });
  ibv_close_device(context);
}

}  // namespace
}  // namespace rdmaemu_test
