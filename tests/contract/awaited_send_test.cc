// SENDs of a program that awaits each completion before it posts the next request. An
// implementation may pass such a message in memory that both programs share, so that the receiver
// places it when it polls. Programs must see no difference. Each test begins with a conversation,
// because an implementation may learn from it. The other tests of such SENDs are
// awaited_send_*_test.cc.
#include <algorithm>
#include <iterator>
#include <random>

#include "tests/contract/support/conversation.h"

namespace rdma_contract {
namespace {

// The sizes beside the longest message that an implementation may pass in this way, and beside the
// path MTU.
constexpr uint32_t kSentSizes[] = {0, 1, 255, 256, 257, 8, 4096, 256, 4097, 64};

using AwaitedSend = testing::TestWithParam<Sides>;

// ---- one message

TEST_P(AwaitedSend, EverySizeArrivesWithItsFields) {
  TalkSpec spec;
  spec.qp.inline_bytes = 257;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const unsigned inlined : {0u, unsigned{IBV_SEND_INLINE}}) {
    for (const int pieces : {1, 2}) {
      for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
        for (const uint32_t size : kSentSizes) {
          SCOPED_TRACE(testing::Message() << size << " bytes, " << pieces << " pieces");
          if (inlined != 0 && size > spec.qp.inline_bytes) continue;
          ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = size,
                                                 .opcode = opcode,
                                                 .flags = IBV_SEND_SIGNALED | inlined,
                                                 .pieces = pieces}));
        }
      }
    }
  }
  EXPECT_TRUE(GuardsIntact());
}

TEST_P(AwaitedSend, UnsignaledMessagesArriveBeforeTheNextSignaledOne) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 10; i++) {
    for (const unsigned flags : {0u, 0u, 0u, unsigned{IBV_SEND_SIGNALED}}) {
      ASSERT_NO_FATAL_FAILURE(talk.Post({.size = kSentSizes[i], .flags = flags}));
    }
    ASSERT_NO_FATAL_FAILURE(talk.Await());
    EXPECT_FALSE(talk.local().Poll(talk.pair.local, Queue::kSend, 0).found);
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

TEST_P(AwaitedSend, BurstsAndAwaitedMessagesKeepTheirOrder) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 40; i++) {
    for (uint32_t k = 0; k < i % 6; k++) {
      ASSERT_NO_FATAL_FAILURE(talk.Post({.size = kSentSizes[(i + k) % std::size(kSentSizes)]}));
    }
    ASSERT_NO_FATAL_FAILURE(talk.AwaitAll());
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 16, .opcode = IBV_WR_SEND_WITH_IMM}));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
  }
}

// ---- several messages wait for the receiver's poll

TEST_P(AwaitedSend, WaitingMessagesOfAllSizesAreReceivedInOrder) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (const int at_once : {1, 10, 3, 1}) {
    for (const uint32_t size : kSentSizes) {
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
    }
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(at_once));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
  EXPECT_TRUE(GuardsIntact());
}

TEST_P(AwaitedSend, AsManyMessagesWaitAsThereAreReceives) {
  TalkSpec spec;
  spec.receives = 200;
  spec.qp.depth = 256;
  spec.qp.cqe = 512;
  for (const uint32_t size : {8u, 256u}) {
    Conversation talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    for (const int at_once : {1, 64, 200}) {
      for (uint32_t i = 0; i < spec.receives; i++) {
        ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
      }
      ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(at_once));
      talk.ExpectNothing();
      ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
    }
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = size}));
  }
}

TEST_P(AwaitedSend, AnyMixOfSendingAndReceivingKeepsTheOrder) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  std::mt19937 random(1);
  for (int step = 0; step < 600; step++) {
    const uint32_t choice = random() % 8;
    if (choice < 4 && talk.unpolled() < talk.posted_receives()) {
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = kSentSizes[random() % std::size(kSentSizes)]}));
    } else if (choice < 6 && talk.unpolled() > 0) {
      ASSERT_NO_FATAL_FAILURE(talk.Receive());
    } else if (talk.posted_receives() < talk.spec.receives) {
      ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    }
  }
  ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
}

// ---- order with other requests of the queue pair

TEST_P(AwaitedSend, AWriteAfterAnUnpolledMessageOverwritesIt) {
  constexpr uint32_t kWritten = 32;
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 8; i++) {
    const Buffer slot = talk.SlotOfNext();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 64}));
    FillPattern(talk.other.bytes(), 7 + i);
    WorkRequest write{.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_address = slot.address()};
    write.rkey = talk.to.rkey;
    ASSERT_NO_FATAL_FAILURE(
        talk.Execute(write.Add(talk.other.address(), kWritten, talk.other_region.lkey)));
    Arrived arrived;
    ASSERT_NO_FATAL_FAILURE(talk.Take(&arrived));
    EXPECT_EQ(FirstDifference(slot.bytes().first(kWritten), 7 + i), -1) << "the WRITE was last";
    EXPECT_EQ(
        FirstDifference(slot.bytes().subspan(kWritten, 64 - kWritten), arrived.seed, kWritten), -1);
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
  }
}

TEST_P(AwaitedSend, AMessageAfterAWriteOverwritesIt) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 8; i++) {
    WorkRequest write{
        .wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .remote_address = talk.SlotOfNext().address()};
    write.rkey = talk.to.rkey;
    ASSERT_NO_FATAL_FAILURE(
        talk.Execute(write.Add(talk.other.address(), 16, talk.other_region.lkey)));
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 16}));
  }
}

TEST_P(AwaitedSend, WritesWithImmediateUseReceivesInOrder) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 9, .opcode = IBV_WR_SEND_WITH_IMM}));
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 10, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM}));
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 11}));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(i % 2 == 0 ? 1 : 4));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

TEST_P(AwaitedSend, AReadReturnsAnUnpolledMessage) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    const Buffer slot = talk.SlotOfNext();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 200}));
    WorkRequest read{.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .remote_address = slot.address()};
    read.rkey = talk.to.rkey;
    ASSERT_NO_FATAL_FAILURE(
        talk.Execute(read.Add(talk.other.address(), 200, talk.other_region.lkey)));
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveAll());
    EXPECT_EQ(FirstDifference(talk.other.bytes().first(200), talk.last_seed()), -1);
  }
}

TEST_P(AwaitedSend, AnotherQueuePairReadsWhatWasPolled) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  const Pair second = ConnectPair(talk.local(), talk.remote());
  for (const uint32_t size : {1u, 256u, 8u, 4096u, 255u}) {
    const Buffer slot = talk.SlotOfNext();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
    ASSERT_NO_FATAL_FAILURE(talk.Receive());
    WorkRequest read{.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .remote_address = slot.address()};
    read.rkey = talk.to.rkey;
    read.Add(talk.other.address(), size, talk.other_region.lkey);
    ASSERT_EQ(talk.local().PostSend(second.local, read), 0);
    const Completion done = talk.local().Poll(second.local, Queue::kSend);
    ASSERT_EQ(done.wc.status, IBV_WC_SUCCESS) << Describe(done);
    EXPECT_EQ(FirstDifference(talk.other.bytes().first(size), talk.last_seed()), -1);
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
  }
}

TEST_P(AwaitedSend, AnAtomicActsOnAnUnpolledMessage) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    const Buffer slot = talk.SlotOfNext();
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    WorkRequest add{
        .wr_id = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .remote_address = slot.address()};
    add.rkey = talk.to.rkey;
    add.compare_add = 5;
    ASSERT_NO_FATAL_FAILURE(talk.Execute(add.Add(talk.other.address(), 8, talk.other_region.lkey)));
    Arrived arrived;
    ASSERT_NO_FATAL_FAILURE(talk.Take(&arrived));
    EXPECT_EQ(FirstDifference(talk.other.bytes().first(8), arrived.seed), -1);
    uint64_t before = 0, after = 0;
    memcpy(&before, talk.other.data, 8);
    memcpy(&after, slot.data, 8);
    EXPECT_EQ(after, before + 5);
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
  }
}

TEST_P(AwaitedSend, AFencedMessageHasTheBytesOfTheReadBefore) {
  Conversation talk(GetParam());
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 8; i++) {
    const uint32_t seed = 7 + i;
    FillPattern(talk.target.bytes(), seed);
    WorkRequest read{.wr_id = 1,
                     .opcode = IBV_WR_RDMA_READ,
                     .flags = 0,
                     .remote_address = talk.target.address()};
    read.rkey = talk.target_region.rkey;
    read.Add(talk.other.address(), 100, talk.other_region.lkey);
    WorkRequest send{.wr_id = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE};
    send.Add(talk.other.address(), 100, talk.other_region.lkey);
    const Buffer slot = talk.SlotOfNext();
    ASSERT_EQ(talk.local().PostSend(talk.pair.local, read), 0);
    ASSERT_NO_FATAL_FAILURE(talk.Execute(send));
    const Completion received = talk.remote().Poll(talk.pair.remote, Queue::kReceive);
    ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
    EXPECT_EQ(FirstDifference(slot.bytes().first(100), seed), -1);
    talk.ForgetReceive();
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
  }
}

// ---- no receive is posted

TEST_P(AwaitedSend, WithoutAReceiveTheRetriesAreExceeded) {
  TalkSpec spec;
  spec.receives = 4;
  spec.path.rnr_retry = 0;
  for (const uint32_t size : {0u, 8u, 256u}) {
    SCOPED_TRACE(size);
    Conversation talk(GetParam(), spec);
    ASSERT_NO_FATAL_FAILURE(talk.Begin());
    for (int i = 0; i < 4; i++) ASSERT_NO_FATAL_FAILURE(talk.Send({.size = size}));
    ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = size}, IBV_WC_RNR_RETRY_EXC_ERR));
    EXPECT_EQ(talk.remote().StateOf(talk.pair.remote), IBV_QPS_RTS);
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    talk.ExpectNothing();
  }
}

TEST_P(AwaitedSend, ALateReceiveGetsTheMessageThatWaitsForIt) {
  TalkSpec spec;
  spec.receives = 2;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (uint32_t i = 0; i < 10; i++) {
    // Half of the rounds have unpolled messages before the one that waits.
    while (talk.unpolled() < talk.posted_receives()) {
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    }
    if (i % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    }
    ASSERT_NO_FATAL_FAILURE(talk.Post({.size = kSentSizes[i]}));
    EXPECT_FALSE(talk.local().Poll(talk.pair.local, Queue::kSend, 0).found) << "no receive";
    ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    ASSERT_NO_FATAL_FAILURE(talk.Await());
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

TEST_P(AwaitedSend, SeveralMessagesWaitForLateReceives) {
  TalkSpec spec;
  spec.receives = 1;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  for (int i = 0; i < 8; i++) {
    ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
    for (uint32_t k = 0; k < 3; k++) ASSERT_NO_FATAL_FAILURE(talk.Post({.size = 16 * k}));
    ASSERT_NO_FATAL_FAILURE(talk.Receive());
    for (int k = 0; k < 3; k++) ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    ASSERT_NO_FATAL_FAILURE(talk.AwaitAll());
    ASSERT_NO_FATAL_FAILURE(talk.ReceiveInArrays(1));
    ASSERT_NO_FATAL_FAILURE(talk.PostReceives());
  }
}

// ---- the receive's memory

TEST_P(AwaitedSend, AMessageFillsTheReceivesPiecesInOrder) {
  TalkSpec spec;
  spec.receives = 1;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  ASSERT_NO_FATAL_FAILURE(talk.Exchange({.size = 8}));
  const Buffer first = Allocate(100), second = Allocate(156);
  const Region of_first = talk.remote().Register(first), of_second = talk.remote().Register(second);
  // Lengths of the first piece. The second piece has the other bytes of 256.
  for (const uint32_t length : {100u, 1u, 50u, 100u}) {
    for (const uint32_t size : {0u, 1u, 51u, 100u, 101u, length + 156}) {
      SCOPED_TRACE(testing::Message() << size << " bytes, first piece " << length);
      memset(first.data, kOwn, first.size);
      memset(second.data, kOwn, second.size);
      WorkRequest receive{.wr_id = 3};
      receive.Add(first.address(), length, of_first.lkey)
          .Add(second.address(), 156, of_second.lkey);
      // The conversation's own receive is used first.
      ASSERT_EQ(talk.remote().PostReceive(talk.pair.remote, receive), 0);
      ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
      ASSERT_NO_FATAL_FAILURE(talk.Execute(talk.MakeRequest({.size = size}, 77)));
      ASSERT_NO_FATAL_FAILURE(talk.Receive());
      const Completion received = talk.remote().Poll(talk.pair.remote, Queue::kReceive);
      ASSERT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
      EXPECT_EQ(received.wc.wr_id, 3u);
      EXPECT_EQ(received.wc.byte_len, size);
      const uint32_t in_first = std::min(size, length);
      EXPECT_EQ(FirstDifference(first.bytes().first(in_first), 77), -1);
      EXPECT_EQ(FirstDifference(second.bytes().first(size - in_first), 77, in_first), -1);
      EXPECT_TRUE(IsOwn(first.bytes().subspan(in_first)));
      EXPECT_TRUE(IsOwn(second.bytes().subspan(size - in_first)));
      ASSERT_NO_FATAL_FAILURE(talk.PostReceive());
    }
  }
  EXPECT_TRUE(GuardsIntact());
}

// Sends two messages that the receiver does not poll. The next receive cannot take the third
// message. Both sides get an error, and the two messages stay receivable.
void ExpectRefused(Sides sides, uint32_t size,
                   WorkRequest (*make_receive)(Conversation&, const Buffer&, uint32_t size)) {
  TalkSpec spec;
  spec.receives = 2;
  Conversation talk(sides, spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  const Buffer own = Allocate(8192);
  memset(own.data, kOwn, own.size);
  ASSERT_EQ(talk.remote().PostReceive(talk.pair.remote, make_receive(talk, own, size)), 0);
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 256}));
  ASSERT_NO_FATAL_FAILURE(talk.PostReceive());  // to be flushed
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFailure({.size = size}, IBV_WC_REM_OP_ERR));
  ASSERT_NO_FATAL_FAILURE(talk.Receive());
  ASSERT_NO_FATAL_FAILURE(talk.Receive());
  const Completion failed = talk.remote().Poll(talk.pair.remote, Queue::kReceive);
  ASSERT_TRUE(failed.found);
  EXPECT_EQ(failed.wc.status, IBV_WC_LOC_QP_OP_ERR) << Describe(failed);
  EXPECT_EQ(failed.wc.wr_id, 3u);
  ASSERT_NO_FATAL_FAILURE(talk.ExpectFlushed());
  EXPECT_EQ(talk.remote().StateOf(talk.pair.remote), IBV_QPS_ERR);
  EXPECT_TRUE(IsOwn(own.bytes().subspan(size == 0 ? 0 : size - 1)));
  EXPECT_TRUE(GuardsIntact());
}

TEST_P(AwaitedSend, AMessageLongerThanItsReceiveFailsBothSides) {
  for (const uint32_t size : {1u, 8u, 256u, 257u, 4097u}) {
    SCOPED_TRACE(size);
    ASSERT_NO_FATAL_FAILURE(
        ExpectRefused(GetParam(), size, [](Conversation& talk, const Buffer& own, uint32_t bytes) {
          WorkRequest receive{.wr_id = 3};
          const Region region = talk.remote().Register(own);
          return bytes == 1 ? receive : receive.Add(own.address(), bytes - 1, region.lkey);
        }));
  }
}

TEST_P(AwaitedSend, AReceiveWithAnotherKeyFailsBothSides) {
  for (const uint32_t size : {1u, 256u}) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectRefused(GetParam(), size, [](Conversation& talk, const Buffer& own, uint32_t bytes) {
          const Region region = talk.remote().Register(own);
          return WorkRequest{.wr_id = 3}.Add(own.address(), bytes, region.lkey ^ 0x00f0f000);
        }));
  }
}

TEST_P(AwaitedSend, AReceiveBeyondItsRegionFailsBothSides) {
  ASSERT_NO_FATAL_FAILURE(
      ExpectRefused(GetParam(), 100, [](Conversation& talk, const Buffer& own, uint32_t bytes) {
        const Region region =
            talk.remote().RegisterRange(own.address(), bytes - 1, IBV_ACCESS_LOCAL_WRITE);
        return WorkRequest{.wr_id = 3}.Add(own.address(), bytes, region.lkey);
      }));
}

TEST_P(AwaitedSend, AReceiveWithoutLocalWriteFailsBothSides) {
  ASSERT_NO_FATAL_FAILURE(
      ExpectRefused(GetParam(), 100, [](Conversation& talk, const Buffer& own, uint32_t bytes) {
        const Region region = talk.remote().Register(own, 0);
        return WorkRequest{.wr_id = 3}.Add(own.address(), bytes, region.lkey);
      }));
}

TEST_P(AwaitedSend, AReceiveOfADeregisteredRegionFailsBothSides) {
  ASSERT_NO_FATAL_FAILURE(
      ExpectRefused(GetParam(), 100, [](Conversation& talk, const Buffer& own, uint32_t bytes) {
        const Region region = talk.remote().Register(own);
        EXPECT_EQ(talk.remote().Deregister(region.index), 0);
        return WorkRequest{.wr_id = 3}.Add(own.address(), bytes, region.lkey);
      }));
}

// An empty message touches no memory, so that no key is checked.
TEST_P(AwaitedSend, AnEmptyMessageIgnoresTheReceivesKey) {
  TalkSpec spec;
  spec.receives = 1;
  Conversation talk(GetParam(), spec);
  ASSERT_NO_FATAL_FAILURE(talk.Begin());
  WorkRequest receive{.wr_id = 3};
  receive.Add(talk.target.address(), 64, talk.target_region.lkey ^ 0x00f0f000);
  ASSERT_EQ(talk.remote().PostReceive(talk.pair.remote, receive), 0);
  ASSERT_NO_FATAL_FAILURE(talk.Send({.size = 8}));
  ASSERT_NO_FATAL_FAILURE(talk.Execute(WorkRequest{.wr_id = 2}));
  ASSERT_NO_FATAL_FAILURE(talk.Receive());
  const Completion received = talk.remote().Poll(talk.pair.remote, Queue::kReceive);
  EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS) << Describe(received);
  EXPECT_EQ(received.wc.byte_len, 0u);
}

EACH_WAY_OF_SIDES(AwaitedSend);

}  // namespace
}  // namespace rdma_contract
