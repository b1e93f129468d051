// When a host process dies, its clients get events and errors, and no call blocks for ever. This is
// one test, because no host exists afterwards.
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tests/contract/support/command.h"
#include "tests/contract/support/loopback.h"
#include "tests/contract/support/newer_verbs.h"

namespace rdma_contract {
namespace {

class HostDeath : public LoopbackTest {};

// Memory of ibv_alloc_buf(3), which stays the program's, also in a forked child.
class KeptBuffer {
 public:
  explicit KeptBuffer(ibv_pd* pd) {
    if (verbs_.Find()) bytes_ = static_cast<char*>(verbs_.alloc_buf(pd, kBytes, &buffer_));
    if (bytes_ != nullptr) std::fill_n(bytes_, kBytes, 'a');
  }
  bool Works() {
    if (bytes_ == nullptr) return !verbs_.Find();
    const pid_t child = fork();
    if (child == 0) {
      const bool kept = std::count(bytes_, bytes_ + kBytes, 'a') == kBytes;
      std::fill_n(bytes_, kBytes, 'b');
      _exit(kept ? 0 : 1);
    }
    int status = -1;
    const bool kept = waitpid(child, &status, 0) == child && status == 0 &&
                      std::count(bytes_, bytes_ + kBytes, 'a') == kBytes;
    verbs_.free_buf(buffer_);
    return kept;
  }

 private:
  static constexpr int kBytes = 10000;
  newer::Library verbs_;
  newer::Buffer* buffer_ = nullptr;
  char* bytes_ = nullptr;
};

TEST_F(HostDeath, IsADeviceFatalEventAndErrorsNeverAHang) {
  if (!OnTheEmulator()) GTEST_SKIP() << "only the emulator's host can die";
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(PostReceive(b.get(), i), 0);
  rdma_event_channel* cm_channel = rdma_create_event_channel();
  ASSERT_NE(cm_channel, nullptr);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(cm_channel, &id, nullptr, RDMA_PS_TCP), 0);
  const Channel cq_channel(ibv_create_comp_channel(context.get()));
  ASSERT_TRUE(cq_channel);

  // Three threads wait for events that will never arrive.
  ibv_async_event event{};
  int async_result = -2, cm_result = -2, cq_result = -2;
  std::thread async_waiter([&] { async_result = ibv_get_async_event(context.get(), &event); });
  std::thread cm_waiter([&] {
    rdma_cm_event* unused = nullptr;
    cm_result = rdma_get_cm_event(cm_channel, &unused);
  });
  std::thread cq_waiter([&] {
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    cq_result = ibv_get_cq_event(cq_channel.get(), &cq, &user);
  });
  KeptBuffer kept(pd.get());
  const pid_t host = ProcessOfHost("a");
  ASSERT_GT(host, 1) << HostsJson();
  ASSERT_EQ(kill(host, SIGKILL), 0);
  async_waiter.join();
  cm_waiter.join();
  cq_waiter.join();
  ASSERT_EQ(async_result, 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  EXPECT_EQ(cm_result, -1);
  EXPECT_EQ(cq_result, -1);

  ibv_port_attr port{};
  EXPECT_NE(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);
  EXPECT_EQ(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess), nullptr);
  EXPECT_TRUE(kept.Works());
  // Posted work may still be queued, but it never succeeds.
  (void)PostSend(a.get(), 1, IBV_SEND_SIGNALED);
  for (ibv_cq* cq : {send_cq.get(), receive_cq.get()}) {
    const Completion completion = PollOne(cq, kQuiet_ms);
    EXPECT_TRUE(!completion.found || completion.wc.status != IBV_WC_SUCCESS);
  }
  sockaddr_in address = SocketAddress(LocalAddress(), 0);
  EXPECT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), -1);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(cm_channel);
  // The fixture destroys and closes all objects, and these calls return as well.
}

}  // namespace
}  // namespace rdma_contract
