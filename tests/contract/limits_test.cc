// A program can use the limits that ibv_query_device reports: the deepest queues, and tens of
// thousands of queue pairs in one process. A queue uses memory only for its used parts.
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class Limits : public DeviceTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DeviceTest::SetUp());
    ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  }
  uint32_t depth() const { return static_cast<uint32_t>(device.max_qp_wr); }
  uint32_t pieces() const { return static_cast<uint32_t>(device.max_sge); }
  ibv_device_attr device{};
};

TEST_F(Limits, AQueuePairMayHaveMaxQpWrRequestsOfMaxSgePieces) {
  const Cq cq = MakeCq();
  const Qp sender = MakeQp(IBV_QPT_RC, cq.get(), nullptr, {depth(), 1, pieces(), 1, 0});
  EXPECT_TRUE(sender) << strerror(errno);
  const Qp receiver = MakeQp(IBV_QPT_RC, cq.get(), nullptr, {1, depth(), 1, pieces(), 0});
  EXPECT_TRUE(receiver) << strerror(errno);
  const Qp both = MakeQp(IBV_QPT_UD, cq.get(), nullptr, {depth(), depth(), pieces(), pieces(), 0});
  EXPECT_TRUE(both) << strerror(errno);
}

TEST_F(Limits, DeepQueuesComeAndGo) {
  const Cq cq = MakeCq();
  for (int i = 0; i < 50; ++i) {
    const Qp qp = MakeQp(IBV_QPT_RC, cq.get(), nullptr, {depth(), depth(), pieces(), pieces(), 0});
    ASSERT_TRUE(qp) << i << ": " << strerror(errno);
  }
}

TEST_F(Limits, ASharedReceiveQueueMayHaveMaxSrqWrRequestsOfMaxSrqSgePieces) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = static_cast<uint32_t>(device.max_srq_wr);
  init.attr.max_sge = static_cast<uint32_t>(device.max_srq_sge);
  const Srq srq(ibv_create_srq(pd.get(), &init));
  EXPECT_TRUE(srq) << strerror(errno);
}

TEST_F(Limits, ACompletionQueueMayHaveMaxCqeEntries) {
  const Cq cq = MakeCq(device.max_cqe);
  ASSERT_TRUE(cq) << strerror(errno);
  EXPECT_EQ(cq->cqe, device.max_cqe);
}

// 60 GiB of queues, of which the process and its host use only the first pages. A process may have
// 65,536 queue pairs (DoorbellPage::kMaxQueues), fewer than the max_qp of the device.
TEST_F(Limits, ThirtyThousandQueuePairsOfDepth1024) {
  std::vector<Cq> cqs;
  std::vector<Qp> qps;
  for (int i = 0; i < 30000; ++i) {
    cqs.push_back(MakeCq(1024));
    ASSERT_TRUE(cqs.back()) << i << ": " << strerror(errno);
    qps.push_back(MakeQp(IBV_QPT_RC, cqs.back().get(), nullptr, {1024, 1024, 1, 1, 0}));
    ASSERT_TRUE(qps.back()) << i << ": " << strerror(errno);
  }
  qps.clear();
}

}  // namespace
}  // namespace rdma_contract
