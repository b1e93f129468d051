// The bytes of a message are those in the program's memory when the device may fetch them. They are
// in the receiver's memory when its completion is polled, for every size.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "tests/contract/support/payload.h"

namespace rdma_contract {
namespace {

using Payload = PayloadTest;

struct ListOrder {
  int qp;
  uint32_t count;
  std::array<WorkRequest, 3> requests;  // SEND, READ, WRITE or fetch-and-add, of one piece
};
// Posts all requests as one list. The device has not executed the first when the last is posted.
int PostListStep(State& state, const ListOrder& order) {
  std::array<ibv_send_wr, 3> list{};
  std::array<ibv_sge, 3> pieces{};
  for (size_t i = 0; i < order.count; i++) {
    const WorkRequest& request = order.requests[i];
    ibv_send_wr& wr = list[i];
    pieces[i] = request.piece[0];
    wr.wr_id = request.wr_id;
    wr.sg_list = &pieces[i];
    wr.num_sge = request.pieces;
    wr.opcode = request.opcode;
    wr.send_flags = request.flags;
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic = {request.remote_address, request.compare_add, 0, request.rkey};
    } else {
      wr.wr.rdma = {request.remote_address, request.rkey};
    }
    if (i + 1 < order.count) wr.next = &list[i + 1];
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(state.qps[static_cast<size_t>(order.qp)].qp, list.data(), &bad);
}

// Reads (or fetches) into `middle`, then writes `middle` twice: by a fenced request, and by one
// after the fence.
void RunFenced(PayloadPair& p, ibv_wr_opcode first, const Buffer& source, const Buffer& middle,
               const Buffer& fenced, const Buffer& behind) {
  const Region near = p.local.Register(middle), far = p.remote.Register(source);
  const Region far_fenced = p.remote.Register(fenced), far_behind = p.remote.Register(behind);
  const auto request = [&](uint64_t wr_id, ibv_wr_opcode opcode, unsigned flags,
                           const Buffer& there, uint32_t rkey) {
    WorkRequest made{.wr_id = wr_id, .opcode = opcode, .flags = flags};
    made.remote_address = there.address();
    made.rkey = rkey;
    made.compare_add = 1;
    return made.Add(middle.address(), p.size, near.lkey);
  };
  const ListOrder order{
      p.pair.local,
      3,
      {request(1, first, 0, source, far.rkey),
       request(2, IBV_WR_RDMA_WRITE, IBV_SEND_FENCE, fenced, far_fenced.rkey),
       request(3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, behind, far_behind.rkey)}};
  ASSERT_EQ(p.local.worker().Call(&PostListStep, order), 0);
  const Completion done = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(done.found);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(done.wc.wr_id, 3u);
}

TEST_P(Payload, FencedWriteSendsWhatTheReadBeforeItBrought) {
  EachSize([](PayloadPair& p) {
    const Buffer middle = Allocate(p.room()), fenced = Allocate(p.room()),
                 behind = Allocate(p.room());
    FillPattern(middle.bytes(), 3);
    ASSERT_NO_FATAL_FAILURE(RunFenced(p, IBV_WR_RDMA_READ, p.there, middle, fenced, behind));
    for (const Buffer& one : {middle, fenced, behind}) {
      EXPECT_EQ(FirstDifference(one.bytes().first(p.size), 2), -1);
    }
  });
}

TEST_P(Payload, FencedWriteSendsWhatTheAtomicBeforeItBrought) {
  PayloadPair p(GetParam(), 8);
  const Buffer middle = Allocate(8), fenced = Allocate(8), behind = Allocate(8);
  uint64_t before = 41, after = 0;
  memcpy(p.there.data, &before, 8);
  ASSERT_NO_FATAL_FAILURE(
      RunFenced(p, IBV_WR_ATOMIC_FETCH_AND_ADD, p.there, middle, fenced, behind));
  for (const Buffer& one : {middle, fenced, behind}) EXPECT_EQ(memcmp(one.data, &before, 8), 0);
  memcpy(&after, p.there.data, 8);
  EXPECT_EQ(after, 42u);
}

// Posts `first`, which brings bytes into `middle`, and a fenced SEND of the pair's size from there.
void RunFencedSend(PayloadPair& p, const WorkRequest& first, const Buffer& middle,
                   const Region& near) {
  const Buffer received = Allocate(p.room());
  const Region far = p.remote.Register(received);
  ASSERT_EQ(p.remote.PostReceive(p.pair.remote,
                                 WorkRequest{.wr_id = 1}.Add(received.address(), p.size, far.lkey)),
            0);
  WorkRequest send{.wr_id = 2, .flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED};
  send.Add(middle.address(), p.size, near.lkey);
  ASSERT_EQ(p.local.worker().Call(&PostListStep, ListOrder{p.pair.local, 2, {first, send}}), 0);
  const Completion done = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(done.found);
  ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
  EXPECT_EQ(done.wc.wr_id, 2u);
  ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
  EXPECT_EQ(memcmp(received.data, middle.data, p.size), 0) << "sent before the fence";
}

TEST_P(Payload, FencedSendSendsWhatTheReadBeforeItBrought) {
  EachSize([](PayloadPair& p) {
    const Buffer middle = Allocate(p.room());
    FillPattern(middle.bytes(), 3);
    const Region near = p.local.Register(middle);
    WorkRequest read = ReadFrom(0, middle, near, p.there.address(), p.to.rkey);
    read.piece[0].length = p.size;
    read.flags = 0;
    ASSERT_NO_FATAL_FAILURE(RunFencedSend(p, read, middle, near));
    EXPECT_EQ(FirstDifference(middle.bytes().first(p.size), 2), -1);
  });
}

// The fetched word is at the end of the message, or at its beginning when the message is shorter.
TEST_P(Payload, FencedSendSendsWhatTheAtomicBeforeItBrought) {
  EachSize([](PayloadPair& p) {
    const uint32_t at = p.size < 8 ? 0 : (p.size - 8) & ~7u;
    const Buffer middle = Allocate(std::max(8u, p.size)), word = Allocate(8);
    FillPattern(middle.bytes(), 3);
    const uint64_t before = 0x0807060504030201;
    memcpy(word.data, &before, 8);
    const Region near = p.local.Register(middle), far = p.remote.Register(word);
    WorkRequest add{.wr_id = 0, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .flags = 0};
    add.remote_address = word.address();
    add.rkey = far.rkey;
    add.compare_add = 1;
    add.Add(middle.address() + at, 8, near.lkey);
    ASSERT_NO_FATAL_FAILURE(RunFencedSend(p, add, middle, near));
    EXPECT_EQ(memcmp(middle.data + at, &before, 8), 0);
  });
}

TEST_P(Payload, InlineBytesAreTakenWhenTheyArePosted) {
  constexpr uint32_t kInline = 256;
  EachSize(
      [](PayloadPair& p) {
        if (p.size > kInline) return;
        WorkRequest write = p.Post(IBV_WR_RDMA_WRITE, p.to.rkey);
        write.flags |= IBV_SEND_INLINE;
        ASSERT_EQ(p.local.PostSend(p.pair.local, write), 0);
        memset(p.here.data, 0, p.here.size);
        const Completion sent = p.local.Poll(p.pair.local, Queue::kSend);
        ASSERT_TRUE(sent.found);
        EXPECT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
        EXPECT_TRUE(p.Arrived());
      },
      {.inline_bytes = kInline});
}

TEST_P(Payload, SeveralPiecesArriveInOrder) {
  EachSize(
      [](PayloadPair& p) {
        const uint32_t first = p.size / 3, second = p.size / 2 - p.size / 3;
        const std::vector<uint32_t> gather{first, second, p.size - first - second};
        const std::vector<uint32_t> scatter{p.size - p.size / 5, p.size / 5};
        WorkRequest receive{.wr_id = 1}, send{.wr_id = 2};
        AddPieces(receive, p.there, p.to.lkey, scatter);
        AddPieces(send, p.here, p.from.lkey, gather);
        ASSERT_EQ(p.remote.PostReceive(p.pair.remote, receive), 0);
        ASSERT_EQ(p.local.PostSend(p.pair.local, send), 0);
        ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
        EXPECT_TRUE(p.Arrived());
      },
      {.pieces = 4});
}

struct BuilderOrder {
  int qp;
  ibv_wr_opcode opcode;
  ibv_sge piece;
  uint64_t remote_address;
  uint32_t rkey;
  uint32_t seed;  // of the bytes that the program writes before ibv_wr_complete
};
int BuildStep(State& state, const BuilderOrder& order) {
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(state.qps[static_cast<size_t>(order.qp)].qp);
  ibv_wr_start(ex);
  ex->wr_id = 2;
  ex->wr_flags = IBV_SEND_SIGNALED;
  if (order.opcode == IBV_WR_SEND) {
    ibv_wr_send(ex);
  } else {
    ibv_wr_rdma_write(ex, order.rkey, order.remote_address);
  }
  ibv_wr_set_sge(ex, order.piece.lkey, order.piece.addr, order.piece.length);
  FillPattern({reinterpret_cast<uint8_t*>(order.piece.addr), order.piece.length}, order.seed);
  return ibv_wr_complete(ex);
}

TEST_P(Payload, BytesWrittenBeforeWrCompleteAreSent) {
  const QpSpec spec{.extended_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
  EachSize(
      [](PayloadPair& p) {
        uint32_t seed = 10;
        for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND}) {
          seed++;
          if (opcode == IBV_WR_SEND) {
            ASSERT_EQ(
                p.remote.PostReceive(p.pair.remote, WorkRequest{.wr_id = 1}.Add(p.there.address(),
                                                                                p.size, p.to.lkey)),
                0);
          }
          const BuilderOrder order{
              p.pair.local,      opcode,    {p.here.address(), p.size, p.from.lkey},
              p.there.address(), p.to.rkey, seed};
          ASSERT_EQ(p.local.worker().Call(&BuildStep, order), 0);
          const Completion sent = p.local.Poll(p.pair.local, Queue::kSend);
          ASSERT_TRUE(sent.found);
          ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
          if (opcode == IBV_WR_SEND) {
            ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
          }
          EXPECT_EQ(FirstDifference(p.there.bytes().first(p.size), seed), -1);
        }
      },
      spec);
}

TEST_P(Payload, WhatWaitsMovesWithAResizedQueue) {
  EachSize([](PayloadPair& p) {
    ASSERT_NO_FATAL_FAILURE(p.DeliverUnpolled());
    ASSERT_EQ(
        p.remote.worker().Call(&ResizeStep, ResizeOrder{p.pair.remote, 1000, Queue::kReceive}), 0);
    ASSERT_NO_FATAL_FAILURE(p.ExpectReceived());
    EXPECT_TRUE(p.Arrived());
  });
}

// A queue of this size has exactly this many entries, because sizes round up to 2^n - 1.
constexpr int kSends = 15;

void PostSends(PayloadPair& p) {
  for (uint64_t i = 0; i < kSends; i++) {
    const WorkRequest receive = WorkRequest{.wr_id = i}.Add(p.there.address(), p.size, p.to.lkey);
    ASSERT_EQ(p.remote.PostReceive(p.pair.remote, receive), 0) << i;
  }
  for (uint64_t i = 0; i < kSends; i++) {
    WorkRequest send = p.Post(IBV_WR_SEND);
    send.wr_id = i;
    ASSERT_EQ(p.local.PostSend(p.pair.local, send), 0) << i;
  }
}
void ExpectSends(Side& side, int qp, Queue queue) {
  for (uint64_t i = 0; i < kSends; i++) {
    const Completion one = side.Poll(qp, queue);
    ASSERT_TRUE(one.found) << i;
    EXPECT_EQ(one.wc.status, IBV_WC_SUCCESS) << Describe(one);
    EXPECT_EQ(one.wc.wr_id, i);
  }
}

TEST_P(Payload, AQueueThatIsResizedToItsPostedSendsKeepsThem) {
  EachSize([](PayloadPair& p) {
    ASSERT_NO_FATAL_FAILURE(PostSends(p));
    EXPECT_EQ(p.local.worker().Call(&ResizeStep, ResizeOrder{p.pair.local, kSends, Queue::kSend}),
              0);
    EXPECT_EQ(
        p.remote.worker().Call(&ResizeStep, ResizeOrder{p.pair.remote, kSends, Queue::kReceive}),
        0);
    ASSERT_NO_FATAL_FAILURE(ExpectSends(p.local, p.pair.local, Queue::kSend));
    ASSERT_NO_FATAL_FAILURE(ExpectSends(p.remote, p.pair.remote, Queue::kReceive));
    EXPECT_TRUE(p.Arrived());
  });
}

// Asks for one entry less than kSends until the queue holds so many completions that the device
// refuses it. Returns the last result. The queue keeps kSends entries meanwhile.
int ShrinkUntilRefusedStep(State& state, const ResizeOrder& order) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
  int result = 0;
  while (result == 0 && std::chrono::steady_clock::now() < until) {
    result = ResizeStep(state, order);
    if (result == 0) sched_yield();
  }
  return result;
}

TEST_P(Payload, AQueueIsNotResizedBelowTheCompletionsOfPostedSends) {
  EachSize([](PayloadPair& p) {
    ASSERT_NO_FATAL_FAILURE(PostSends(p));
    const ResizeOrder below{p.pair.local, kSends - 1, Queue::kSend};
    EXPECT_EQ(p.local.worker().Call(&ShrinkUntilRefusedStep, below), EINVAL);
    ASSERT_NO_FATAL_FAILURE(ExpectSends(p.local, p.pair.local, Queue::kSend));
    EXPECT_EQ(p.local.worker().Call(&ResizeStep, ResizeOrder{p.pair.local, 1, Queue::kSend}), 0);
    ASSERT_NO_FATAL_FAILURE(ExpectSends(p.remote, p.pair.remote, Queue::kReceive));
    EXPECT_TRUE(p.Arrived());
  });
}

// ---- fork

struct ForkOrder {
  int qp;
  uint64_t address;  // private memory of the process that forks
  uint32_t bytes;
  uint32_t seed;
  bool poll_first;  // the parent polls and then forks
};
enum class ForkResult { kGood = 0, kNoCompletion = 1, kBadStatus = 2, kWrongBytes = 3, kNoChild };

ForkResult PollAndCompare(ibv_cq* cq, const ForkOrder& order, bool poll) {
  if (poll) {
    ibv_wc wc{};
    alarm(60);  // a hang is a failure, not a time-out of the whole run
    int got = 0;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) sched_yield();
    alarm(0);
    if (got < 0) return ForkResult::kNoCompletion;
    if (wc.status != IBV_WC_SUCCESS || wc.byte_len != order.bytes) return ForkResult::kBadStatus;
  }
  const auto* memory = reinterpret_cast<const uint8_t*>(order.address);
  return FirstDifference({memory, order.bytes}, order.seed) == -1 ? ForkResult::kGood
                                                                  : ForkResult::kWrongBytes;
}

ForkResult ForkStep(State& state, const ForkOrder& order) {
  ibv_cq* const cq = state.qps[static_cast<size_t>(order.qp)].receive_cq;
  if (order.poll_first) {
    const ForkResult polled = PollAndCompare(cq, order, true);
    if (polled != ForkResult::kGood) return polled;
  }
  const pid_t pid = fork();
  if (pid == 0) _exit(static_cast<int>(PollAndCompare(cq, order, !order.poll_first)));
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return ForkResult::kNoChild;
  if (WEXITSTATUS(status) != 0) return static_cast<ForkResult>(WEXITSTATUS(status));
  // The parent's memory has the bytes as well, whichever process polled.
  return PollAndCompare(cq, order, false);
}

uint64_t MapPrivateStep(State&, const size_t& bytes) {
  void* const made =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return 0;
  memset(made, 'o', bytes);
  return reinterpret_cast<uint64_t>(made);
}
struct Unmapping {
  uint64_t address;
  size_t bytes;
};
int UnmapStep(State&, const Unmapping& order) {
  return munmap(reinterpret_cast<void*>(order.address), order.bytes);
}

void ReceiveAndFork(PayloadPair& p, bool poll_first) {
  const size_t bytes = p.room();
  const uint64_t memory = p.remote.worker().Call(&MapPrivateStep, bytes);
  ASSERT_NE(memory, 0u);
  const Region region = p.remote.RegisterRange(memory, bytes, kAllAccess);
  ASSERT_EQ(region.error, 0);
  ASSERT_EQ(
      p.remote.PostReceive(p.pair.remote, WorkRequest{.wr_id = 1}.Add(memory, p.size, region.lkey)),
      0);
  ASSERT_EQ(p.local.PostSend(p.pair.local, p.Post(IBV_WR_SEND)), 0);
  const Completion sent = p.local.Poll(p.pair.local, Queue::kSend);
  ASSERT_TRUE(sent.found);
  ASSERT_EQ(sent.wc.status, IBV_WC_SUCCESS) << Describe(sent);
  EXPECT_EQ(
      p.remote.worker().Call(&ForkStep, ForkOrder{p.pair.remote, memory, p.size, 1, poll_first}),
      ForkResult::kGood);
  EXPECT_EQ(p.remote.Deregister(region.index), 0);
  EXPECT_EQ(p.remote.worker().Call(&UnmapStep, Unmapping{memory, bytes}), 0);
}

TEST_P(Payload, ChildOfAForkPollsWhatArrivedBeforeIt) {
  EachSize([](PayloadPair& p) { ReceiveAndFork(p, /*poll_first=*/false); }, {},
           PayloadPair::Where::kNewProcess);
}

TEST_P(Payload, ChildOfAForkHasWhatItsParentPolled) {
  EachSize([](PayloadPair& p) { ReceiveAndFork(p, /*poll_first=*/true); }, {},
           PayloadPair::Where::kNewProcess);
}

EACH_WAY_OF_SIDES(Payload);

}  // namespace
}  // namespace rdma_contract
