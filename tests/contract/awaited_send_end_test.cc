// Messages of awaited SENDs that the receiver has not polled when one side ends or changes its
// objects. See awaited_send_test.cc.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/contract/support/conversation.h"

namespace rdma_contract {
namespace {

using AwaitedSendEnd = testing::TestWithParam<Sides>;

constexpr uint32_t kUnpolledSizes[] = {8, 256, 0, 257, 255};
constexpr uint32_t kUnpolled = std::size(kUnpolledSizes);

// rdma_rxe repeats a request without an answer forever when `retry` is 7. The retries take half a
// second, so that they are not exceeded on a busy machine.
constexpr PathSpec kFewRetries{.mtu = IBV_MTU_4096, .timeout = 15, .retry = 3};

void LeaveUnpolled(Conversation& talk) {
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const uint32_t size : kUnpolledSizes) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
  }
}
int MoveTo(Side& side, int qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return side.Modify(qp, attr, IBV_QP_STATE);
}

// ---- the receiver's queue pair

TEST_P(AwaitedSendEnd, MessagesPrecedeTheFlushesOfAReceiverInError) {
  TalkSpec spec;
  spec.path = kFewRetries;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
  ASSERT_EQ(MoveTo(talk.remote(), talk.pair.remote, IBV_QPS_ERR), 0);
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = 8}, IBV_WC_RETRY_EXC_ERR));
  ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFlushed());
}

// Polls what a queue pair has left behind that was reset or destroyed. rdma_rxe keeps the
// completions. Libraries of RNICs remove them. The program's memory stays as it is.
void ExpectNothingWritten(Conversation& talk, const std::vector<Buffer>& slots) {
  for (const Buffer& slot : slots) memset(slot.data, kOwn, slot.size);
  uint32_t kept = 0;
  for (;;) {
    const Completion one = talk.remote().Poll(talk.pair.remote, Queue::kReceive, 0);
    if (!one.found) break;
    ASSERT_LT(kept, kUnpolled);
    EXPECT_EQ(one.wc.status, IBV_WC_SUCCESS) << Describe(one);
    EXPECT_EQ(one.wc.byte_len, kUnpolledSizes[kept++]);
  }
  EXPECT_TRUE(kept == 0 || kept == kUnpolled) << kept;
  for (const Buffer& slot : slots) EXPECT_TRUE(IsOwn(slot.bytes()));
}
// Returns the slots of all receives that are posted.
std::vector<Buffer> SlotsOfUnpolled(Conversation& talk) {
  std::vector<Buffer> slots;
  for (size_t i = 0; i < talk.posted_receives(); i++) slots.push_back(talk.SlotOf(i));
  return slots;
}

TEST_P(AwaitedSendEnd, AfterAResetNoMessageIsWritten) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
  ASSERT_EQ(MoveTo(talk.remote(), talk.pair.remote, IBV_QPS_RESET), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectNothingWritten(talk, SlotsOfUnpolled(talk)));
}

TEST_P(AwaitedSendEnd, ResetQueuePairsBeginANewConversation) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 4; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 64}));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    ASSERT_EQ(MoveTo(talk.remote(), talk.pair.remote, IBV_QPS_RESET), 0);
    ASSERT_EQ(MoveTo(talk.local(), talk.pair.local, IBV_QPS_RESET), 0);
    ASSERT_NO_FATAL_FAILURE(talk.ConnectAndExchange());
  }
}

TEST_P(AwaitedSendEnd, AfterTheReceiversEndNoMessageIsWritten) {
  TalkSpec spec;
  spec.path = kFewRetries;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
  ASSERT_EQ(talk.remote().DestroyQp(talk.pair.remote), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectNothingWritten(talk, SlotsOfUnpolled(talk)));
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = 8}, IBV_WC_RETRY_EXC_ERR));
}

TEST_P(AwaitedSendEnd, ASendToAKilledReceiverExceedsTheRetries) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the sender would end, too";
  TalkSpec spec;
  spec.path = kFewRetries;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
  talk.remote().worker().Kill();
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = 8}, IBV_WC_RETRY_EXC_ERR));
}

struct PsnOrder {
  int qp;
  bool sends;
};
struct StateAndPsn {
  int state = -1;
  uint32_t psn = 0;  // the next one that is sent or awaited
};
StateAndPsn QueryPsnStep(State& state, const PsnOrder& order) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN;
  if (ibv_query_qp(state.qps[static_cast<size_t>(order.qp)].qp, &attr, mask, &init) != 0) return {};
  return {attr.qp_state, order.sends ? attr.sq_psn : attr.rq_psn};
}

TEST_P(AwaitedSendEnd, AQueryLeavesMessagesInTheirPlace) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  const auto query = [&](Side& side, int qp, bool sends) {
    const StateAndPsn got = side.worker().Call(&QueryPsnStep, PsnOrder{qp, sends});
    EXPECT_EQ(got.state, IBV_QPS_RTS);
    return got.psn;
  };
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 3; k++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    EXPECT_EQ(query(talk.remote(), talk.pair.remote, false),
              query(talk.local(), talk.pair.local, true));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

// ---- the receiver's completion queue and memory

int ResizeReceives(Conversation& talk, int entries) {
  return talk.remote().worker().Call(&ResizeStep,
                                     ResizeOrder{talk.pair.remote, entries, Queue::kReceive});
}

TEST_P(AwaitedSendEnd, AResizedQueueKeepsMessages) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const int entries : {1000, 15, 100}) {
    for (int i = 0; i < 10; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 64}));
    ASSERT_EQ(ResizeReceives(talk, entries), 0);
    for (int i = 0; i < 5; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSendEnd, AQueueIsNotResizedBelowItsMessages) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 10; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 64}));
  EXPECT_EQ(ResizeReceives(talk, 7), EINVAL);
  EXPECT_EQ(ResizeReceives(talk, 10), 0);
  ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  EXPECT_EQ(ResizeReceives(talk, 1), 0);
}

// The message was received into the region before it was deregistered. The program may then use the
// memory for other bytes.
TEST_P(AwaitedSendEnd, AMessageOutlivesTheRegionOfItsReceive) {
  for (const uint32_t size : {8u, 256u, 257u}) {
    SCOPED_TRACE(size);
    TalkSpec spec;
    spec.receives = 1;
    Conversation talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    const Buffer own = Allocate(size);
    for (const bool reuses : {false, true}) {
      const Region region = talk.remote().Register(own);
      ASSERT_EQ(talk.remote().PostReceive(talk.pair.remote, ReceiveInto(3, own, region)), 0);
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
      ASSERT_NO_FATAL_FAILURE(talk.Execute(talk.MakeRequest({.size = size}, 77)));
      ASSERT_EQ(talk.remote().Deregister(region.index), 0);
      if (reuses) memset(own.data, kOwn, own.size);
      ASSERT_NO_FATAL_FAILURE(talk.Receive());
      const Completion received = talk.remote().Poll(talk.pair.remote, Queue::kReceive);
      ASSERT_TRUE(received.found);
      EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
      EXPECT_EQ(received.wc.byte_len, size);
      if (reuses) {
        EXPECT_TRUE(IsOwn(own.bytes()));
      } else {
        EXPECT_EQ(FirstDifference(own.bytes(), 77), -1);
      }
      ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    }
  }
}

// ---- events

// Returns whether the receive queue's channel has had one event, of that queue.
int TakeOneEventStep(State& state, const int& qp) {
  ibv_cq* const cq = ReceiveCqOf(state, qp);
  pollfd waiting{cq->channel->fd, POLLIN, 0};
  ibv_cq* raised = nullptr;
  void* user = nullptr;
  if (poll(&waiting, 1, kPatience_ms) != 1 || ibv_get_cq_event(cq->channel, &raised, &user) != 0) {
    return 0;
  }
  ibv_ack_cq_events(raised, 1);
  return raised == cq && poll(&waiting, 1, 0) == 0 ? 1 : 0;
}
int ArmReceiveQueueStep(State& state, const int& qp) {
  return ibv_req_notify_cq(ReceiveCqOf(state, qp), 0);
}

TalkSpec WithSleepingReceiver() {
  TalkSpec spec;
  spec.create_receiver = [](Side& side, QpSpec qp) {
    qp.sleeps = true;
    return side.CreateQp(qp);
  };
  return spec;
}
// The first arming ends what an implementation may have learned from a queue without events.
void ConverseWithEvents(Conversation& talk) {
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < Conversation::kFirstMessages; i++) {
    ASSERT_EQ(talk.remote().worker().Call(&ArmReceiveQueueStep, talk.pair.remote), 0);
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_EQ(talk.remote().worker().Call(&TakeOneEventStep, talk.pair.remote), 1);
    ASSERT_NO_FATAL_FAILURE(talk.Receive());
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
  }
}

TEST_P(AwaitedSendEnd, AnEventOutlivesTheReceiversQueuePair) {
  Conversation talk(GetParam(), WithSleepingReceiver());
  ASSERT_NO_FATAL_FAILURE(ConverseWithEvents(talk));
  ASSERT_EQ(talk.remote().worker().Call(&ArmReceiveQueueStep, talk.pair.remote), 0);
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  ASSERT_EQ(talk.remote().DestroyQp(talk.pair.remote), 0);
  EXPECT_EQ(talk.remote().worker().Call(&TakeOneEventStep, talk.pair.remote), 1);
}

TEST_P(AwaitedSendEnd, AMessageOfAKilledSenderHasItsEvent) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the receiver would end, too";
  TalkSpec spec = WithSleepingReceiver();
  spec.where = PayloadPair::Where::kNewProcess;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(ConverseWithEvents(talk));
  ASSERT_EQ(talk.remote().worker().Call(&ArmReceiveQueueStep, talk.pair.remote), 0);
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  talk.local().worker().Kill();
  talk.CloseSender();
  EXPECT_EQ(talk.remote().worker().Call(&TakeOneEventStep, talk.pair.remote), 1);
  ASSERT_NO_FATAL_FAILURE(talk.Receive());
}

// Closes the eventfds that an implementation has opened, and posts.
struct CloseOrder {
  int qp;
  WorkRequest request;
};
int CloseCountersAndPostStep(State& state, const CloseOrder& order) {
  for (int fd = 3; fd < 1024; fd++) {
    char target[64] = {};
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
    if (strcmp(target, "anon_inode:[eventfd]") == 0) close(fd);
  }
  ibv_sge piece = order.request.piece[0];
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = order.request.wr_id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return ibv_post_send(state.qps[static_cast<size_t>(order.qp)].qp, &wr, &bad);
}

// The program may lose its device. If the message arrives nevertheless, it raises the event.
TEST_P(AwaitedSendEnd, AMessageOfAProgramThatClosesAllDescriptorsHasItsEvent) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the receiver would lose its own";
  TalkSpec spec = WithSleepingReceiver();
  spec.where = PayloadPair::Where::kNewProcess;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(ConverseWithEvents(talk));
  ASSERT_EQ(talk.remote().worker().Call(&ArmReceiveQueueStep, talk.pair.remote), 0);
  (void)talk.local().worker().Call(&CloseCountersAndPostStep,
                                   CloseOrder{talk.pair.local, talk.MakeRequest({.size = 8}, 77)});
  talk.local().worker().Kill();
  talk.CloseSender();
  const Polled polled = talk.remote().worker().Call(
      &PollManyStep, PollManyOrder{.qp = talk.pair.remote, .entries = 1, .limit_ms = 200});
  if (polled.count == 1) {
    EXPECT_EQ(talk.remote().worker().Call(&TakeOneEventStep, talk.pair.remote), 1);
  }
}

// ---- the sender's end

TEST_P(AwaitedSendEnd, MessagesOutliveTheSendersQueuePair) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
  ASSERT_EQ(talk.local().DestroyQp(talk.pair.local), 0);
  ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
  talk.ExpectNothing();
}

TEST_P(AwaitedSendEnd, MessagesOutliveTheSendersErrorAndReset) {
  for (const ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET}) {
    Conversation talk(GetParam());
    ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
    ASSERT_EQ(MoveTo(talk.local(), talk.pair.local, state), 0);
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    talk.ExpectNothing();
  }
}

TEST_P(AwaitedSendEnd, MessagesOutliveTheSendersProcess) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "the receiver would end, too";
  for (const bool killed : {false, true}) {
    TalkSpec spec;
    spec.where = PayloadPair::Where::kNewProcess;
    Conversation talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(LeaveUnpolled(talk));
    if (killed) talk.local().worker().Kill();
    talk.CloseSender();
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    talk.ExpectNothing();
  }
}

// ---- fork

struct PrivateBytes {
  uint64_t address;
  size_t bytes;
};
uint64_t MapOwnStep(State&, const size_t& bytes) {
  void* const made =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return 0;
  memset(made, kOwn, bytes);
  return reinterpret_cast<uint64_t>(made);
}
int UnmapOwnStep(State&, const PrivateBytes& order) {
  return munmap(reinterpret_cast<void*>(order.address), order.bytes);
}
struct ForkAndCompareOrder {
  PrivateBytes memory;
  uint32_t seed;
};
// Returns whether a child has the bytes, -1 when no child ended orderly.
int ForkAndCompareStep(State&, const ForkAndCompareOrder& order) {
  const std::span bytes{reinterpret_cast<uint8_t*>(order.memory.address), order.memory.bytes};
  const pid_t pid = fork();
  if (pid == 0) _exit(FirstDifference(bytes, order.seed) == -1 ? 1 : 0);
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}
// Returns the bytes from `memory` on, by way of the result.
struct Copied {
  uint8_t bytes[256] = {};
};
Copied CopyStep(State&, const PrivateBytes& memory) {
  Copied copied;
  memcpy(copied.bytes, reinterpret_cast<void*>(memory.address), memory.bytes);
  return copied;
}

// A forked child has a copy of its parent's memory, with the messages that had arrived.
TEST_P(AwaitedSendEnd, AForkedChildHasTheBytesOfUnpolledMessages) {
  for (const uint32_t size : {8u, 255u, 256u}) {
    SCOPED_TRACE(size);
    TalkSpec spec;
    spec.receives = 1;
    spec.where = PayloadPair::Where::kNewProcess;
    Conversation talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    const PrivateBytes memory{talk.remote().worker().Call(&MapOwnStep, size_t{size}), size};
    ASSERT_NE(memory.address, 0u);
    const Region region = talk.remote().RegisterRange(memory.address, size, kAllAccess);
    for (uint32_t seed = 70; seed < 73; seed++) {
      WorkRequest receive{.wr_id = 3};
      ASSERT_EQ(talk.remote().PostReceive(talk.pair.remote,
                                          receive.Add(memory.address, size, region.lkey)),
                0);
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
      ASSERT_NO_FATAL_FAILURE(talk.Execute(talk.MakeRequest({.size = size}, seed)));
      EXPECT_EQ(talk.remote().worker().Call(&ForkAndCompareStep, ForkAndCompareOrder{memory, seed}),
                1);
      ASSERT_NO_FATAL_FAILURE(talk.Receive());
      EXPECT_EQ(talk.remote().Poll(talk.pair.remote, Queue::kReceive).wc.byte_len, size);
      Copied copied = talk.remote().worker().Call(&CopyStep, memory);
      EXPECT_EQ(FirstDifference({copied.bytes, size}, seed), -1);
      ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    }
    ASSERT_EQ(talk.remote().Deregister(region.index), 0);
    ASSERT_EQ(talk.remote().worker().Call(&UnmapOwnStep, memory), 0);
  }
}

EACH_WAY_OF_SIDES(AwaitedSendEnd);

}  // namespace
}  // namespace rdma_contract
