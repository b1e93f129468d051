// A forked child can use the device that its parent opened, but not its connection ids.
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <span>

#include "tests/contract/support/command.h"
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

// A child of _Fork(3) shares its parent's connection, so a device reads and writes the parent's
// memory.
class UnderscoreFork : public Fork {
 protected:
  static constexpr size_t kTarget = 1024, kBytes = 16;

  // The region is private memory, unlike LoopbackTest's.
  void Connect() {
    LoopbackTest::Connect();
    own = static_cast<uint8_t*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(own, MAP_FAILED);
    own_mr.reset(ibv_reg_mr(pd.get(), own, 4096, kAllAccess));
    ASSERT_TRUE(own_mr);
  }
  void TearDown() override {
    own_mr.reset();
    if (own != nullptr) munmap(own, 4096);
    Fork::TearDown();
  }
  std::span<uint8_t> Bytes(size_t at) { return {own + at, kBytes}; }
  ibv_sge PieceAt(size_t at) {
    return {reinterpret_cast<uint64_t>(own + at), kBytes, own_mr->lkey};
  }
  int SendAndAwait(ibv_wr_opcode opcode) {
    ibv_sge piece = PieceAt(0);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {PieceAt(kTarget).addr, own_mr->rkey};
    if (const int error = ibv_post_send(a.get(), &wr, &bad); error != 0) return error;
    const Completion done = PollOne(send_cq.get());
    return done.found && done.wc.status == IBV_WC_SUCCESS ? 0 : EIO;
  }
  int PostReceiveAt(size_t at) {
    ibv_sge piece = PieceAt(at);
    ibv_recv_wr receive{5, nullptr, &piece, 1}, *bad = nullptr;
    return ibv_post_recv(b.get(), &receive, &bad);
  }
  // Runs `body` in a child whose copy of the region has other bytes.
  int InChildWithOtherBytes(const std::function<int()>& body) {
    const pid_t pid = _Fork();
    if (pid == 0) {
      alarm(60);
      memset(own, 0, 4096);
      _exit(body());
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 255;
    return WEXITSTATUS(status);
  }

  uint8_t* own = nullptr;
  Mr own_mr;
};

TEST_F(UnderscoreFork, AChildSendsAndWritesTheBytesOfItsParent) {
  if (!OnTheEmulator()) GTEST_SKIP() << "ibv_fork_init keeps the regions from children";
  ASSERT_NO_FATAL_FAILURE(Connect());
  for (int i = 0; i < 8; i++) ASSERT_EQ(SendAndAwait(IBV_WR_RDMA_WRITE), 0);
  FillPattern(Bytes(0), 9);
  EXPECT_EQ(InChildWithOtherBytes([&] {
              for (int i = 0; i < 8; i++) {
                if (SendAndAwait(IBV_WR_RDMA_WRITE) != 0) return 1;
              }
              return 0;
            }),
            0);
  EXPECT_EQ(FirstDifference(Bytes(kTarget), 9), -1);

  ASSERT_EQ(PostReceiveAt(kTarget), 0);
  FillPattern(Bytes(0), 11);
  EXPECT_EQ(InChildWithOtherBytes([&] { return SendAndAwait(IBV_WR_SEND); }), 0);
  ASSERT_TRUE(PollOne(receive_cq.get()).found);
  EXPECT_EQ(FirstDifference(Bytes(kTarget), 11), -1);
  EXPECT_EQ(SendAndAwait(IBV_WR_RDMA_WRITE), 0) << "the parent continues";
}

TEST_F(UnderscoreFork, AChildReceivesIntoTheMemoryOfItsParent) {
  if (!OnTheEmulator()) GTEST_SKIP() << "ibv_fork_init keeps the regions from children";
  ASSERT_NO_FATAL_FAILURE(Connect());
  ASSERT_EQ(PostReceiveAt(kTarget), 0);
  FillPattern(Bytes(0), 9);
  ASSERT_EQ(SendAndAwait(IBV_WR_SEND), 0);
  constexpr int kDenied = 77;
  const int result = InChildWithOtherBytes([&] {
    char byte;
    const iovec into{&byte, 1}, parents{own, 1};
    if (process_vm_readv(getppid(), &into, 1, &parents, 1, 0) != 1) return kDenied;
    return PollOne(receive_cq.get()).found ? 0 : 1;
  });
  if (result == kDenied) GTEST_SKIP() << "the system denies a child its parent's memory (Yama)";
  ASSERT_EQ(result, 0);
  EXPECT_EQ(FirstDifference(Bytes(kTarget), 9), -1);
}

}  // namespace
}  // namespace rdma_contract
