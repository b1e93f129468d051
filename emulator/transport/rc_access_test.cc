// Keys, bounds and rights on both sides. Each operation with each fault fails at the requester with
// its status, and later requests are flushed. Memory does not change, and the responder's QP fails
// (IBTA 9.7.4.1.5, 9.9.2.4, 9.9.3; statuses as measured on rxe).
#include <tuple>

#include "emulator/transport/harness.h"

namespace rdmaemu::transport::testing {
namespace {

enum class Fault { kKey, kBounds, kWraps, kMrRight, kQpRight, kGone, kOtherPd };
constexpr const char* kFaultNames[] = {"WrongKey", "OutOfBounds",   "AddressThatWraps", "MrRight",
                                       "QpRight",  "KeyThatIsGone", "KeyOfAnotherPd"};

class RcAccess : public ::testing::TestWithParam<std::tuple<bool, ibv_wr_opcode, Fault>> {
 protected:
  static constexpr int kAll =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

  RcAccess() : world(std::get<0>(GetParam())) {
    x = world.Make(world.a, IBV_QPT_RC, 16384);
    y = world.Make(world.b(), IBV_QPT_RC, 16384);
    FillPattern(x.buffer, 1);
    FillPattern(y.buffer, 2);
  }
  bool is_atomic() const {
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  }
  int Right() const {
    if (is_atomic()) return IBV_ACCESS_REMOTE_ATOMIC;
    return opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  }
  // Returns the remote address and the key of the request.
  std::pair<uint64_t, uint32_t> Target() {
    Verbs& verbs = y.node->verbs;
    switch (fault) {
      case Fault::kKey:
        return {y.At(0), y.mr->rkey ^ 0x300};
      case Fault::kBounds:
        return {y.At(16384 - (is_atomic() ? 0 : 2000)), y.mr->rkey};
      case Fault::kWraps:
        return {~0ull - 7, y.mr->rkey};
      case Fault::kMrRight:
        return {y.At(0),
                (*verbs.RegMr(kGroup, kProcess,
                              {y.node->pd->handle, IBV_ACCESS_LOCAL_WRITE | (kAll & ~Right()),
                               y.At(0), 16384, y.At(0)}))
                    ->rkey};
      case Fault::kQpRight:
        return {y.At(0), y.mr->rkey};
      case Fault::kGone: {
        const MemoryRegion* region = *verbs.RegMr(
            kGroup, kProcess,
            {y.node->pd->handle, IBV_ACCESS_LOCAL_WRITE | kAll, y.At(0), 16384, y.At(0)});
        const uint32_t rkey = region->rkey;
        EXPECT_TRUE(verbs.DeregMr(kGroup, region->handle).has_value());
        return {y.At(0), rkey};
      }
      case Fault::kOtherPd: {
        ProtectionDomain* pd = *verbs.AllocPd(kGroup, y.node->context->handle);
        return {y.At(0),
                (*verbs.RegMr(kGroup, kProcess,
                              {pd->handle, IBV_ACCESS_LOCAL_WRITE | kAll, y.At(0), 16384, y.At(0)}))
                    ->rkey};
      }
    }
    return {};
  }

  const ibv_wr_opcode opcode = std::get<1>(GetParam());
  const Fault fault = std::get<2>(GetParam());
  World world;
  Endpoint x, y;
};

TEST_P(RcAccess, EndsWithAStatusOnBothSides) {
  Link link;
  if (fault == Fault::kQpRight) link.access = kAll & ~Right();
  world.Join(x, y, link);
  const auto [address, rkey] = Target();
  const uint32_t length = is_atomic() ? 8 : 3000;
  y.PostReceive(200, {y.Sge(8192, 64)});
  y.PostReceive(201, {y.Sge(8192, 64)});
  x.PostReceive(300, {x.Sge(8192, 64)});
  // One request before succeeds, one request behind is flushed.
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(0, 16)});
  rxe_send_wr wr = SendWr(opcode, 2, 0);
  if (is_atomic()) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = wr.wr.atomic.swap = 5;
  } else {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
  }
  x.Post(wr, {x.Sge(0, length)});
  x.Post(SendWr(IBV_WR_SEND, 3, 0), {x.Sge(0, 16)});
  const std::vector<std::byte> x_before = x.buffer;
  std::vector<std::byte> y_after = y.buffer;
  std::copy_n(x.buffer.begin(), 16, y_after.begin() + 8192);
  world.Ring(x);
  world.Run();

  const ibv_wc_status status =
      fault == Fault::kQpRight ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR;
  const auto sent = x.Sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].status, uint32_t{IBV_WC_SUCCESS});
  EXPECT_EQ(sent[1].wr_id, 2u);
  EXPECT_EQ(sent[1].status, uint32_t{status});
  EXPECT_EQ(sent[2].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(x.Received().at(0).status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(x.qp->state(), IBV_QPS_ERR);

  const auto received = y.Received();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].status, uint32_t{IBV_WC_SUCCESS});
  // A WRITE with immediate takes its receive with its last packet, and fails at its first one.
  EXPECT_EQ(received[1].status, uint32_t{IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(y.qp->state(), IBV_QPS_ERR);
  EXPECT_EQ(y.node->engine.counters().naks, 1u);
  EXPECT_TRUE(x.buffer == x_before) << "the requester's memory has changed";
  EXPECT_TRUE(y.buffer == y_after) << "the responder's memory has changed";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RcAccess,
    ::testing::Combine(::testing::Bool(),
                       ::testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                         IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                         IBV_WR_ATOMIC_CMP_AND_SWP),
                       ::testing::Values(Fault::kKey, Fault::kBounds, Fault::kWraps,
                                         Fault::kMrRight, Fault::kQpRight, Fault::kGone,
                                         Fault::kOtherPd)),
    [](const auto& info) {
      const auto name = [](ibv_wr_opcode opcode) -> std::string {
        switch (opcode) {
          case IBV_WR_RDMA_WRITE:
            return "Write";
          case IBV_WR_RDMA_WRITE_WITH_IMM:
            return "WriteWithImm";
          case IBV_WR_RDMA_READ:
            return "Read";
          case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return "FetchAdd";
          default:
            return "CompareSwap";
        }
      };
      return name(std::get<1>(info.param)) + "With" +
             kFaultNames[static_cast<int>(std::get<2>(info.param))] +
             (std::get<0>(info.param) ? "InOneHost" : "OverTheWire");
    });

}  // namespace
}  // namespace rdmaemu::transport::testing
