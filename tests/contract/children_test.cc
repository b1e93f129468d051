// A forked child's objects end with the child, whatever the parent did before the fork. They never
// become the parent's: port, connection, memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <tuple>

#include "tests/contract/support/command.h"
#include "tests/contract/support/side.h"

namespace rdma_contract {
namespace {

// The parent's use of the libraries before the fork.
enum class Before { kNothing, kListed, kOpened, kManagesConnections };
enum class End { kKilled, kExits };

constexpr size_t kMostBytes = 1 << 20;
constexpr int kAckTimeout = 12;  // 16.8 ms
constexpr uint8_t kRetries = 2;  // 7 means for ever on rxe

// A child's message to its parent when it is ready.
struct Ready {
  int error = -1;  // the failed step; 0: none
  uint16_t port = 0;
  uint32_t rkey = 0;
};

class Children : public testing::Test {
 protected:
  void SetUp() override {
    // The mapping is private, so that the child's bytes are not the parent's. Both have it at one
    // address.
    void* const bytes =
        mmap(nullptr, kMostBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(bytes, MAP_FAILED);
    own = {static_cast<uint8_t*>(bytes), kMostBytes};
    ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(from_child, O_CLOEXEC), 0);
    source = Allocate(kMostBytes);
    FillPattern(source.bytes(), 3);
  }
  void TearDown() override {
    if (child > 0) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
    munmap(own.data, own.size);
  }

  void Prepare(Before before) {
    if (before == Before::kListed) {
      ibv_device** const list = ibv_get_device_list(nullptr);
      ASSERT_NE(list, nullptr);
      ibv_free_device_list(list);
    }
    if (before == Before::kOpened) {
      ASSERT_EQ(here.Open(), 0);
    }
    if (before == Before::kManagesConnections) {
      const int id = here.CreateId();
      ASSERT_EQ(here.Bind(id, here.address(), 0), 0);
      ASSERT_GE(here.CreateCmQp(id), 0);
    }
  }

  // Forks a child that runs `body` and then waits until EndChild.
  void StartChild(const std::function<Ready()>& body) {
    child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) return;
    alarm(120);  // a hang is a failure, not a time-out of the whole run
    const Ready made = body();
    char go;
    if (write(from_child[1], &made, sizeof made) != sizeof made) _exit(1);
    _exit(read(to_child[0], &go, 1) == 1 ? 0 : 1);
  }
  // Reads the result of `body`.
  void AwaitChild() {
    ASSERT_EQ(read(from_child[0], &ready, sizeof ready), static_cast<ssize_t>(sizeof ready));
    ASSERT_EQ(ready.error, 0);
  }
  void EndChild(End end) {
    if (end == End::kKilled) {
      ASSERT_EQ(kill(child, SIGKILL), 0);
    } else {
      ASSERT_EQ(write(to_child[1], "x", 1), 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    child = -1;
    EXPECT_TRUE(end == End::kKilled ? WIFSIGNALED(status) : status == 0) << status;
  }

  void ListenAtPeer() {
    const int listener = peer.CreateId();
    ASSERT_EQ(peer.Bind(listener, peer.address(), 0), 0);
    ASSERT_EQ(peer.Listen(listener), 0);
    peer_port = static_cast<uint16_t>(peer.PortOf(listener));
  }
  // Runs in the child: creates a listener, and a connection to the peer with a region of `bytes`.
  Ready ConnectChild(size_t bytes) {
    Side me(Place::kThisProcess);
    Ready made;
    const auto failed = [](int step) { return Ready{step}; };
    const int listener = me.CreateId();
    if (me.Bind(listener, me.address(), 0) != 0 || me.Listen(listener) != 0) return failed(1);
    made.port = static_cast<uint16_t>(me.PortOf(listener));
    const int id = me.CreateId();
    // Short time-outs of both ends' queue pairs detect a dead peer early.
    if (me.SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, kAckTimeout, 1) != 0) {
      return failed(10);
    }
    if (me.ResolveAddr(id, peer.address(), peer_port) != 0) return failed(2);
    if (me.NextEvent().event != RDMA_CM_EVENT_ADDR_RESOLVED) return failed(3);
    if (me.ResolveRoute(id) != 0) return failed(4);
    if (me.NextEvent().event != RDMA_CM_EVENT_ROUTE_RESOLVED) return failed(5);
    if (me.CreateCmQp(id) < 0) return failed(6);
    const Region mine = me.RegisterRange(own.address(), bytes, kAllAccess);
    if (mine.error != 0) return failed(7);
    made.rkey = mine.rkey;
    ConnectSpec spec;
    spec.retry_count = kRetries;
    if (me.CmConnect(id, spec) != 0) return failed(8);
    const EventCopy answer = me.NextEvent();
    if (!answer.found || answer.event != RDMA_CM_EVENT_ESTABLISHED) return failed(9);
    made.error = 0;
    static Side* const kept = new Side(std::move(me));  // exists as long as the child
    (void)kept;
    return made;
  }
  // Runs at the peer while the child connects.
  void Accept() {
    const EventCopy request = peer.NextEvent();
    ASSERT_EQ(request.event, RDMA_CM_EVENT_CONNECT_REQUEST) << Describe(request);
    peer_qp = peer.CreateCmQp(request.id);
    ASSERT_GE(peer_qp, 0);
    region = peer.Register(source);
    ASSERT_EQ(region.error, 0);
    ASSERT_EQ(peer.Accept(request.id, {}), 0);
  }
  Completion WriteToChild(size_t bytes) {
    WorkRequest write = WriteTo(7, {source.data, bytes}, region, own.address(), ready.rkey);
    EXPECT_EQ(peer.PostSend(peer_qp, write), 0);
    return peer.Poll(peer_qp, Queue::kSend);
  }
  bool OwnMemoryIsUntouched() {
    for (const uint8_t byte : own.bytes()) {
      if (byte != 0) return false;
    }
    return true;
  }
  // Binds to the port of this side. Retries until the port is free or the time limit ends. Returns
  // the errno.
  int BindOnceFree(uint16_t port) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
    for (;;) {
      const int id = here.CreateId();
      const int error = here.Bind(id, here.address(), port);
      here.DestroyId(id);
      if (error == 0 || std::chrono::steady_clock::now() >= until) return error;
      sched_yield();
    }
  }

  Side peer{Place::kPeersMachine}, here{Place::kThisProcess};
  Buffer own, source;
  Region region;
  int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
  pid_t child = -1;
  Ready ready;
  uint16_t peer_port = 0;
  int peer_qp = -1;
};

class ChildrenEnd : public Children,
                    public testing::WithParamInterface<std::tuple<Before, End, size_t>> {};

TEST_P(ChildrenEnd, TheirConnectionsPortsAndMemoryEndWithThem) {
  const auto [before, end, bytes] = GetParam();
  ASSERT_NO_FATAL_FAILURE(Prepare(before));
  ASSERT_NO_FATAL_FAILURE(ListenAtPeer());
  ASSERT_NO_FATAL_FAILURE(StartChild([&, bytes = bytes] { return ConnectChild(bytes); }));
  ASSERT_NO_FATAL_FAILURE(Accept());
  ASSERT_NO_FATAL_FAILURE(AwaitChild());
  ASSERT_EQ(peer.NextEvent().event, RDMA_CM_EVENT_ESTABLISHED);

  EXPECT_EQ(WriteToChild(bytes).wc.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(OwnMemoryIsUntouched());
  EXPECT_EQ(here.Bind(here.CreateId(), here.address(), ready.port), EADDRINUSE);

  ASSERT_NO_FATAL_FAILURE(EndChild(end));
  const EventCopy gone = peer.NextEvent();
  ASSERT_TRUE(gone.found);
  EXPECT_EQ(gone.event, RDMA_CM_EVENT_DISCONNECTED) << Describe(gone);
  EXPECT_EQ(BindOnceFree(ready.port), 0);
  const Completion late = WriteToChild(bytes);
  ASSERT_TRUE(late.found) << "a WRITE to a region of a process that has ended hangs";
  // Measured: rdma_rxe may still execute the WRITE, into pinned pages that no process uses.
  if (OnTheEmulator()) {
    EXPECT_NE(late.wc.status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(OwnMemoryIsUntouched());
}

INSTANTIATE_TEST_SUITE_P(Sizes, ChildrenEnd,
                         testing::Combine(testing::Values(Before::kListed),
                                          testing::Values(End::kKilled, End::kExits),
                                          testing::Values<size_t>(1, 256, 257, 4096, kMostBytes)));
INSTANTIATE_TEST_SUITE_P(Parents, ChildrenEnd,
                         testing::Combine(testing::Values(Before::kNothing, Before::kOpened,
                                                          Before::kManagesConnections),
                                          testing::Values(End::kKilled, End::kExits),
                                          testing::Values<size_t>(256, 4096)));

}  // namespace
}  // namespace rdma_contract
