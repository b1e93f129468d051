// A forked child can use the device that its parent opened, but not its connection ids.
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

// Runs `body` in a forked child and returns its result; 255 when the child did not exit by itself.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);  // a hang is a failure, not a time-out of the whole run
    _exit(body());
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 255;
  return WEXITSTATUS(status);
}

class Fork : public LoopbackTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(ibv_fork_init(), 0);
    ASSERT_NO_FATAL_FAILURE(DeviceTest::SetUp());
  }
};

TEST_F(Fork, ChildQueriesTheDeviceItsParentOpened) {
  EXPECT_EQ(InChild([&] {
              ibv_port_attr port{};
              return ibv_query_port(context.get(), 1, &port);
            }),
            0);
}

TEST_F(Fork, ChildSendsOnItsParentsQp) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_EQ(PostReceive(b.get(), 5), 0);
  EXPECT_EQ(InChild([&] {
              FillPattern(data.bytes(), 9);
              if (PostSend(a.get(), 6, IBV_SEND_SIGNALED) != 0) return 1;
              const Completion sent = PollOne(send_cq.get());
              return sent.found && sent.wc.status == IBV_WC_SUCCESS ? 0 : 2;
            }),
            0);
  const Completion received = PollOne(receive_cq.get());
  ASSERT_TRUE(received.found);
  EXPECT_EQ(received.wc.wr_id, 5u);
  EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS);
}

TEST_F(Fork, ParentGoesOnAfterItsChildEnded) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  EXPECT_EQ(InChild([&] {
              ibv_port_attr port{};
              return ibv_query_port(context.get(), 1, &port);
            }),
            0);
  ASSERT_EQ(PostReceive(b.get(), 1), 0);
  ASSERT_EQ(PostSend(a.get(), 2, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(PollOne(receive_cq.get()).found);
}

TEST_F(Fork, ChildThatOnlyExitsTakesNothingAlong) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  EXPECT_EQ(InChild([] { return 7; }), 7);
  EXPECT_EQ(StateOf(a.get()), IBV_QPS_RTS);
}

// A child that uses nothing and forks itself. Messages that its parent has received and not polled
// yet remain the parent's.
TEST_F(Fork, AnUnusedChildTakesNothingOfWhatItsParentReceived) {
  ASSERT_NO_FATAL_FAILURE(Connect());
  void* const own = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(own, MAP_FAILED);
  const Mr own_mr(ibv_reg_mr(pd.get(), own, 4096, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_TRUE(own_mr);
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    if (read(go[0], &byte, 1) != 1) _exit(1);
    _exit(InChild([] { return 0; }));
  }
  ibv_sge piece{reinterpret_cast<uint64_t>(own), 16, own_mr->lkey};
  ibv_recv_wr receive{5, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(b.get(), &receive, &bad), 0);
  FillPattern(data.bytes(), 9);
  ASSERT_EQ(PostSend(a.get(), 6, IBV_SEND_SIGNALED), 0);
  ASSERT_EQ(PollOne(send_cq.get()).wc.status, IBV_WC_SUCCESS);
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(PollOne(receive_cq.get()).found);
  EXPECT_EQ(FirstDifference({static_cast<uint8_t*>(own), 16}, 9), -1);
  munmap(own, 4096);
  close(go[0]);
  close(go[1]);
}

TEST_F(Fork, ChildMakesObjectsOfItsOwn) {
  EXPECT_EQ(InChild([&] {
              ibv_pd* own = ibv_alloc_pd(context.get());
              if (own == nullptr) return 1;
              ibv_cq* cq = ibv_create_cq(context.get(), 4, nullptr, nullptr, 0);
              if (cq == nullptr) return 2;
              return ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(own) != 0 ? 3 : 0;
            }),
            0);
}

TEST_F(Fork, ChildOpensTheDeviceAnew) {
  EXPECT_EQ(InChild([] {
              ibv_context* own = OpenTestDevice();
              return own == nullptr || ibv_close_device(own) != 0 ? 1 : 0;
            }),
            0);
}

TEST_F(Fork, InheritedConnectionIdsAreRefused) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in address = SocketAddress(LocalAddress(), 0);
  EXPECT_EQ(InChild([&] {
              return rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == 0 ? 0 : errno;
            }),
            EACCES);
  EXPECT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), 0);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

}  // namespace
}  // namespace rdma_contract
