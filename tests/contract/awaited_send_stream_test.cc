// Streams of awaited SENDs: threads of both sides post, poll, sleep and post receives at the same
// time. See awaited_send_test.cc.
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "tests/contract/support/conversation.h"
#include "tests/contract/support/yield.h"

namespace rdma_contract {
namespace {

using AwaitedSendStream = testing::TestWithParam<Sides>;

constexpr uint32_t kStreamSizes[] = {8, 256, 64, 300, 255, 4, 128};
constexpr uint32_t kStream = 1500;  // messages
constexpr uint32_t kReceiveBytes = 512;

struct StreamOrder {
  int qp;
  uint64_t source;  // of the sender, kReceiveBytes
  uint32_t source_key, receive_key;
  uint64_t received;    // address of a word in shared memory: how many messages were received
  uint32_t window = 1;  // how many messages may be sent and not received
  bool sleeps = false;  // the receiver blocks in ibv_get_cq_event
  bool begins = false;  // of a pair that takes turns
};
uint32_t SizeOfMessage(uint32_t message) { return kStreamSizes[message % std::size(kStreamSizes)]; }
std::atomic_ref<uint32_t> ReceivedOf(const StreamOrder& order) {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(order.received));
}

bool PostStreamMessage(State& state, const StreamOrder& order, uint32_t message) {
  auto* const bytes = reinterpret_cast<uint8_t*>(order.source);
  memset(bytes, static_cast<uint8_t>(message), kReceiveBytes);
  memcpy(bytes, &message, sizeof message);
  ibv_sge piece{order.source, SizeOfMessage(message), order.source_key};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = message;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  return ibv_post_send(state.qps[static_cast<size_t>(order.qp)].qp, &wr, &bad) == 0;
}
// The receive's wr_id has its address in the lower 48 bits.
bool PostStreamReceive(State& state, const StreamOrder& order, uint64_t wr_id) {
  ibv_sge piece{wr_id << 16 >> 16, kReceiveBytes, order.receive_key};
  ibv_recv_wr wr{wr_id, nullptr, &piece, 1}, *bad = nullptr;
  return ibv_post_recv(state.qps[static_cast<size_t>(order.qp)].qp, &wr, &bad) == 0;
}
// Returns the number of the message, kStream when its completion or bytes are wrong.
uint32_t MessageOf(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV) return kStream;
  const auto* bytes = reinterpret_cast<const uint8_t*>(wc.wr_id << 16 >> 16);
  uint32_t message = 0;
  memcpy(&message, bytes, sizeof message);
  if (message >= kStream || wc.byte_len != SizeOfMessage(message)) return kStream;
  for (uint32_t i = sizeof message; i < wc.byte_len; i++) {
    if (bytes[i] != static_cast<uint8_t>(message)) return kStream;
  }
  return message;
}
// Returns a completion of the queue, waiting in the way of `sleeps`. False: none.
bool NextStreamCompletion(ibv_cq* cq, bool sleeps, ibv_wc* wc) {
  int got = 0;
  if (!sleeps) return YieldUntil([&] { return (got = ibv_poll_cq(cq, 1, wc)) != 0; }) && got == 1;
  for (;;) {
    if ((got = ibv_poll_cq(cq, 1, wc)) != 0) return got == 1;
    if (ibv_req_notify_cq(cq, 0) != 0) return false;
    if ((got = ibv_poll_cq(cq, 1, wc)) != 0) return got == 1;
    pollfd waiting{cq->channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, kPatience_ms) != 1) return false;
    ibv_cq* raised = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(cq->channel, &raised, &user) != 0) return false;
    ibv_ack_cq_events(raised, 1);
  }
}

// The steps return how many messages were good, kStream when all were.
uint32_t SendStreamStep(State& state, const StreamOrder& order) {
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_wc wc{};
    if (!YieldUntil([&] { return ReceivedOf(order) + order.window > i; })) return i;
    if (!PostStreamMessage(state, order, i)) return i;
    ibv_cq* const cq = state.qps[static_cast<size_t>(order.qp)].send_cq;
    if (!NextStreamCompletion(cq, false, &wc)) return i;
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i) return i;
  }
  return kStream;
}
uint32_t ReceiveStreamStep(State& state, const StreamOrder& order) {
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_wc wc{};
    if (!NextStreamCompletion(ReceiveCqOf(state, order.qp), order.sleeps, &wc)) return i;
    if (MessageOf(wc) != i || !PostStreamReceive(state, order, wc.wr_id)) return i;
    ReceivedOf(order) = i + 1;
  }
  return kStream;
}

// As SendStreamStep, with a thread that posts and one that polls.
uint32_t SendByTwoThreadsStep(State& state, const StreamOrder& order) {
  std::atomic<uint32_t> completed = 0;
  std::thread poster([&] {
    for (uint32_t i = 0; i < kStream; i++) {
      if (!YieldUntil([&] { return completed == i && ReceivedOf(order) + order.window > i; }))
        break;
      if (!PostStreamMessage(state, order, i)) break;
    }
  });
  ibv_cq* const cq = state.qps[static_cast<size_t>(order.qp)].send_cq;
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_wc wc{};
    if (!NextStreamCompletion(cq, false, &wc)) break;
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i) break;
    completed = i + 1;
  }
  poster.join();
  return completed;
}
// As ReceiveStreamStep, with a thread that polls and one that posts receives.
uint32_t ReceiveByTwoThreadsStep(State& state, const StreamOrder& order) {
  std::vector<uint64_t> polled(kStream);
  std::atomic<uint32_t> good = 0;
  std::thread poster([&] {
    for (uint32_t i = 0; i < kStream; i++) {
      if (!YieldUntil([&] { return good > i; })) return;
      if (!PostStreamReceive(state, order, polled[i])) return;
    }
  });
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_wc wc{};
    if (!NextStreamCompletion(ReceiveCqOf(state, order.qp), false, &wc)) break;
    if (MessageOf(wc) != i) break;
    polled[i] = wc.wr_id;
    good = i + 1;
    ReceivedOf(order) = i + 1;
  }
  poster.join();
  return good;
}
// Two threads poll and post receives. Each message is polled once.
uint32_t ReceiveByTwoPollersStep(State& state, const StreamOrder& order) {
  std::vector<std::atomic<uint8_t>> times(kStream);
  std::atomic<uint32_t> total = 0, good = 0;
  const auto receive = [&] {
    ibv_wc wc{};
    int got = 0;
    ibv_cq* const cq = ReceiveCqOf(state, order.qp);
    while (YieldUntil([&] { return total == kStream || (got = ibv_poll_cq(cq, 1, &wc)) != 0; })) {
      if (got != 1) return;
      const uint32_t message = MessageOf(wc);
      if (message < kStream && times[message]++ == 0) good++;
      PostStreamReceive(state, order, wc.wr_id);
      ReceivedOf(order)++;
      total++;
      got = 0;
    }
  };
  std::thread other(receive);
  receive();
  other.join();
  return good;
}
uint32_t ExchangeStreamsStep(State& state, const std::array<StreamOrder, 2>& orders) {
  uint32_t sent = 0;
  std::thread sender([&] { sent = SendStreamStep(state, orders[0]); });
  const uint32_t received = ReceiveStreamStep(state, orders[1]);
  sender.join();
  return std::min(sent, received);
}
// The sides take turns. Each side has one queue for both kinds of completions.
uint32_t TakeTurnsStep(State& state, const StreamOrder& order) {
  uint32_t sent = 0, completed = 0, received = 0;
  if (order.begins && !PostStreamMessage(state, order, sent++)) return 0;
  while (received < kStream || completed < kStream) {
    ibv_wc wc{};
    if (!NextStreamCompletion(ReceiveCqOf(state, order.qp), order.sleeps, &wc)) break;
    if (wc.opcode == IBV_WC_SEND) {
      if (wc.status != IBV_WC_SUCCESS || wc.wr_id != completed++) break;
      continue;
    }
    if (MessageOf(wc) != received || !PostStreamReceive(state, order, wc.wr_id)) break;
    received++;
    // The peer has received the message before, so its bytes can be overwritten.
    if (sent < kStream && !PostStreamMessage(state, order, sent++)) break;
  }
  return std::min(received, completed);
}

// The sides take turns. Each side has a queue for each kind of completion. An answer follows the
// acknowledgement of what it answers, so that the message has completed when its answer is polled.
uint32_t AnswerStep(State& state, const StreamOrder& order) {
  ibv_cq* const send_cq = state.qps[static_cast<size_t>(order.qp)].send_cq;
  ibv_cq* const receive_cq = ReceiveCqOf(state, order.qp);
  if (order.begins && !PostStreamMessage(state, order, 0)) return 0;
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_wc wc{};
    if (!NextStreamCompletion(receive_cq, order.sleeps, &wc)) return i;
    if (MessageOf(wc) != i || !PostStreamReceive(state, order, wc.wr_id)) return i;
    const bool has_sent = order.begins || i > 0;
    if (has_sent && ibv_poll_cq(send_cq, 1, &wc) != 1) return i;
    if (has_sent && wc.status != IBV_WC_SUCCESS) return i;
    const uint32_t next = order.begins ? i + 1 : i;
    if (next < kStream && !PostStreamMessage(state, order, next)) return i;
  }
  return kStream;
}

// As AnswerStep, but the side looks for the completion of its message after the event of the
// answer, and before it polls the answer (ib_send_lat -e). Both sides have armed their receive
// queues.
uint32_t AnswerAfterEventStep(State& state, const StreamOrder& order) {
  ibv_cq* const send_cq = state.qps[static_cast<size_t>(order.qp)].send_cq;
  ibv_cq* const receive_cq = ReceiveCqOf(state, order.qp);
  if (order.begins && !PostStreamMessage(state, order, 0)) return 0;
  for (uint32_t i = 0; i < kStream; i++) {
    ibv_cq* raised = nullptr;
    void* user = nullptr;
    pollfd waiting{receive_cq->channel->fd, POLLIN, 0};
    if (poll(&waiting, 1, kPatience_ms) != 1) return i;
    if (ibv_get_cq_event(receive_cq->channel, &raised, &user) != 0) return i;
    ibv_ack_cq_events(raised, 1);
    if (ibv_req_notify_cq(receive_cq, 0) != 0) return i;
    ibv_wc wc{};
    const bool has_sent = order.begins || i > 0;
    if (has_sent && (ibv_poll_cq(send_cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS)) return i;
    if (ibv_poll_cq(receive_cq, 1, &wc) != 1) return i;
    if (MessageOf(wc) != i || !PostStreamReceive(state, order, wc.wr_id)) return i;
    const uint32_t next = order.begins ? i + 1 : i;
    if (next < kStream && !PostStreamMessage(state, order, next)) return i;
  }
  return kStream;
}

int ArmReceiveQueueOfStep(State& state, const StreamOrder& order) {
  return ibv_req_notify_cq(ReceiveCqOf(state, order.qp), 0);
}

// As AnswerStep, while a timer's handler arms the receive queue.
ibv_cq* armed_by_handler = nullptr;
uint32_t AnswerBesideHandlerStep(State& state, const StreamOrder& order) {
  armed_by_handler = ReceiveCqOf(state, order.qp);
  struct sigaction arms {};
  arms.sa_handler = [](int) { ibv_req_notify_cq(armed_by_handler, 1); };
  arms.sa_flags = SA_RESTART;
  struct sigaction before {};
  sigaction(SIGALRM, &arms, &before);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 137},
                        .it_value = {.tv_sec = 0, .tv_usec = 137}};
  setitimer(ITIMER_REAL, &often, nullptr);
  const uint32_t good = AnswerStep(state, order);
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  return good;
}

// Posts `count` receives of kReceiveBytes.
struct ReceivesOrder {
  StreamOrder stream;
  uint64_t address;
  uint32_t count;
};
int PostReceivesStep(State& state, const ReceivesOrder& order) {
  for (uint64_t i = 0; i < order.count; i++) {
    if (!PostStreamReceive(state, order.stream, i << 48 | (order.address + i * kReceiveBytes))) {
      return EINVAL;
    }
  }
  return 0;
}

// Both sides have a queue for each kind of completion, with channels if they sleep.
TalkSpec WithChannels(bool sleeps) {
  TalkSpec spec;
  spec.qp.sleeps = sleeps;
  spec.create_receiver = [sleeps](Side& side, QpSpec qp) {
    qp.sleeps = sleeps;
    return side.CreateQp(qp);
  };
  return spec;
}

// A conversation that continues as a stream.
class Streams : public Conversation {
 public:
  Streams(Sides sides, const TalkSpec& wanted) : Conversation(sides, wanted) {}
  void Begin() {
    ASSERT_NO_FATAL_FAILURE(Conversation::Begin());
    counters_ = Allocate(2 * sizeof(uint64_t));
    forth = {pair.local, other.address(), other_region.lkey, to.lkey, counters_.address()};
  }
  // Prepares a stream of messages from the remote side.
  void BeginBack() {
    constexpr uint32_t kReceives = 16;
    const Buffer buffer = Allocate(size_t{kReceives} * kReceiveBytes);
    const Region region = local().Register(buffer);
    back = {pair.remote, target.address(), target_region.lkey, region.lkey,
            counters_.address() + sizeof(uint64_t)};
    ASSERT_EQ(local().worker().Call(&PostReceivesStep,
                                    ReceivesOrder{AtLocal(back), buffer.address(), kReceives}),
              0);
  }
  void Run(uint32_t (*send)(State&, const StreamOrder&),
           uint32_t (*receive)(State&, const StreamOrder&)) {
    remote().worker().Begin(receive, AtRemote(forth));
    EXPECT_EQ(local().worker().Call(send, forth), kStream);
    EXPECT_EQ(remote().worker().Finish<uint32_t>(), kStream);
  }
  // Connects the sides, which then answer each other. The local side begins. If they sleep, both
  // have armed their receive queues before.
  void TakeTurns(uint32_t (*local_step)(State&, const StreamOrder&),
                 uint32_t (*remote_step)(State&, const StreamOrder&), bool sleeps) {
    ASSERT_NO_FATAL_FAILURE(Begin());
    ASSERT_NO_FATAL_FAILURE(BeginBack());
    StreamOrder at_local = forth, at_remote = back;
    std::swap(at_local.receive_key, at_remote.receive_key);
    at_local.begins = true;
    at_local.sleeps = at_remote.sleeps = sleeps;
    if (sleeps) {
      ASSERT_EQ(remote().worker().Call(&ArmReceiveQueueOfStep, at_remote), 0);
      ASSERT_EQ(local().worker().Call(&ArmReceiveQueueOfStep, at_local), 0);
    }
    remote().worker().Begin(remote_step, at_remote);
    EXPECT_EQ(local().worker().Call(local_step, at_local), kStream);
    EXPECT_EQ(remote().worker().Finish<uint32_t>(), kStream);
  }
  StreamOrder AtRemote(StreamOrder order) const {
    order.qp = pair.remote;
    return order;
  }
  StreamOrder AtLocal(StreamOrder order) const {
    order.qp = pair.local;
    return order;
  }
  StreamOrder forth, back;

 private:
  Buffer counters_;
};

TEST_P(AwaitedSendStream, AThreadThatSleepsMissesNoMessage) {
  for (const uint32_t window : {1u, 4u}) {
    TalkSpec spec;
    spec.create_receiver = [](Side& side, QpSpec qp) {
      qp.sleeps = true;
      return side.CreateQp(qp);
    };
    Streams talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    talk.forth.window = window;
    talk.forth.sleeps = true;
    talk.Run(&SendStreamStep, &ReceiveStreamStep);
  }
}

TEST_P(AwaitedSendStream, AThreadThatPollsMissesNoMessage) {
  for (const uint32_t window : {1u, 12u}) {
    Streams talk(GetParam(), {});
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    talk.forth.window = window;
    talk.Run(&SendStreamStep, &ReceiveStreamStep);
  }
}

TEST_P(AwaitedSendStream, ThreadsPostPollAndPostReceivesOnOneQueuePair) {
  for (const uint32_t window : {1u, 12u}) {
    Streams talk(GetParam(), {});
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    talk.forth.window = window;
    talk.Run(&SendByTwoThreadsStep, &ReceiveByTwoThreadsStep);
  }
}

TEST_P(AwaitedSendStream, TwoThreadsThatPollReceiveEachMessageOnce) {
  Streams talk(GetParam(), {});
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  talk.forth.window = 6;
  talk.Run(&SendStreamStep, &ReceiveByTwoPollersStep);
}

// The sender has more messages on the way than the receiver has receives, so that some wait for
// one.
TEST_P(AwaitedSendStream, ASenderThatIsFasterThanTheReceiverLosesNothing) {
  TalkSpec spec;
  spec.receives = 3;
  Streams talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  talk.forth.window = kStream;
  talk.Run(&SendStreamStep, &ReceiveByTwoThreadsStep);
}

TEST_P(AwaitedSendStream, BothSidesSendAtOnce) {
  Streams talk(GetParam(), {});
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  ASSERT_NO_FATAL_FAILURE(talk.BeginBack());
  talk.forth.window = talk.back.window = 4;
  talk.remote().worker().Begin(&ExchangeStreamsStep,
                               std::array{talk.back, talk.AtRemote(talk.forth)});
  EXPECT_EQ(talk.local().worker().Call(&ExchangeStreamsStep,
                                       std::array{talk.forth, talk.AtLocal(talk.back)}),
            kStream);
  EXPECT_EQ(talk.remote().worker().Finish<uint32_t>(), kStream);
}

TEST_P(AwaitedSendStream, SidesWithOneQueueEachTakeTurns) {
  for (const bool sleeps : {false, true}) {
    TalkSpec spec;
    spec.qp.one_cq = true;
    spec.qp.sleeps = sleeps;
    Streams talk(GetParam(), spec);
    talk.TakeTurns(&TakeTurnsStep, &TakeTurnsStep, sleeps);
  }
}

TEST_P(AwaitedSendStream, AMessageHasCompletedWhenItsAnswerIsPolled) {
  for (const bool sleeps : {false, true}) {
    Streams talk(GetParam(), WithChannels(sleeps));
    talk.TakeTurns(&AnswerStep, &AnswerStep, sleeps);
  }
}

TEST_P(AwaitedSendStream, AMessageHasCompletedAtTheEventOfItsAnswer) {
  Streams talk(GetParam(), WithChannels(true));
  talk.TakeTurns(&AnswerAfterEventStep, &AnswerAfterEventStep, true);
}

// ibv_req_notify_cq is a system call of the kernel's drivers, so a handler may make it at any time.
TEST_P(AwaitedSendStream, AHandlerArmsTheQueueDuringPostsAndPolls) {
  if (GetParam() == Sides::kOneProcess) GTEST_SKIP() << "two threads would share the handler";
  Streams talk(GetParam(), WithChannels(true));
  talk.TakeTurns(&AnswerStep, &AnswerBesideHandlerStep, false);
}

EACH_WAY_OF_SIDES(AwaitedSendStream);

}  // namespace
}  // namespace rdma_contract
