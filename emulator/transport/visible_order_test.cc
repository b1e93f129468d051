// Checks the order in which a program sees effects of its messages, while the engine handles many
// messages at once.
#include "emulator/transport/core.h"
#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

class VisibleOrder : public ::testing::TestWithParam<bool> {
 protected:
  VisibleOrder() {
    x = world.Make(world.a, IBV_QPT_RC, 4096);
    y = world.Make(world.b(), IBV_QPT_RC, 4096);
    world.Join(x, y);
    world.Run();
  }
  World world{GetParam()};
  Endpoint x, y;
};
INSTANTIATE_TEST_SUITE_P(Hosts, VisibleOrder, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "One" : "Two"; });

// A program that polls memory for a flag finds the completions of earlier messages.
TEST_P(VisibleOrder, ACompletionIsVisibleBeforeALaterWrite) {
  for (uint64_t i = 0; i < 3; i++) y.PostReceive(i, {});
  for (uint64_t i = 0; i < 3; i++) x.Post(SendWr(IBV_WR_SEND, i), {});
  x.Post(RdmaWr(IBV_WR_RDMA_WRITE, 3, y, 0), {x.Sge(0, 8)});
  size_t writes = 0, visible = 0;
  world.b().memory.before_write = [&] {
    writes++;
    visible = y.recv_cq->ring.Count();
  };
  world.Ring(x);
  world.Run();
  EXPECT_EQ(writes, 1u);
  EXPECT_EQ(visible, 3u);
}

// The engine has delivered as much as the batch holds back, and more.
TEST_P(VisibleOrder, AllCompletionsAreVisibleAfterEachStep) {
  constexpr uint32_t kMessages = 3 * CompletionBatch::kMostUnpublished + 1;
  for (uint64_t i = 0; i < kMessages; i++) y.PostReceive(i, {});
  for (uint64_t i = 0; i < kMessages; i++) x.Post(SendWr(IBV_WR_SEND, i), {});
  world.Ring(x);
  world.Run();
  EXPECT_EQ(y.recv_cq->ring.Producer(), y.recv_cq->producer);
  EXPECT_EQ(x.send_cq->ring.Producer(), x.send_cq->producer);
  EXPECT_EQ(y.Received().size(), kMessages);
}

// The requester fills trains that have carried other messages.
TEST_P(VisibleOrder, AnAddressedTrainHasNothingOfItsLastMessage) {
  const QpContext context(*x.qp);
  Train train;
  train.placed = train.source_failed = true;
  train.origin = train.answerer = x.qp->handle;
  train.epoch = 5;
  train.is_bytes = true;
  train.headers.rkey = 7;
  train.pieces.Add({kProcess, {x.At(0), 8}});
  AddressRc(context, wire::Operation::kSendOnly, train);
  EXPECT_FALSE(train.placed || train.source_failed || train.is_bytes);
  EXPECT_EQ(train.origin + train.answerer + train.epoch + train.headers.rkey, 0u);
  EXPECT_TRUE(train.pieces.empty());
  EXPECT_EQ(train.sender_qpn, x.qp->qpn);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
