// The clock of a ConnectX device, as the profile mlx5-roce has it: raw timestamps of completions
// and ibv_query_rt_values_ex are ticks of one clock. No test depends on how long anything takes.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "tests/contract/support/loopback.h"

namespace rdma_contract {
namespace {

constexpr uint64_t kBothClocks =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kKhz = 1000000;  // hca_core_clock of the profile: a tick is 1 ns
constexpr uint64_t kMask = 0x7fffffffffffffff;

class Mlx5Timestamps : public LoopbackTest {
 protected:
  ibv_cq_ex* MakeExtended(uint64_t fields) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 64;
    init.wc_flags = IBV_WC_STANDARD_FLAGS | fields;
    return ibv_create_cq_ex(context.get(), &init);
  }
  // Connects two QPs. All their work completes on `timed`.
  void ConnectOver(ibv_cq_ex* extended) {
    ASSERT_NE(timed = extended, nullptr);
    send_cq.reset(ibv_cq_ex_to_cq(timed));
    data = Allocate(4096);
    mr.reset(ibv_reg_mr(pd.get(), data.data, data.size, kAllAccess));
    a = Make(IBV_QPT_RC, {32, 32, 4, 4, 0}, nullptr, send_cq.get());
    b = Make(IBV_QPT_RC, {32, 32, 4, 4, 0}, nullptr, send_cq.get());
    ASSERT_TRUE(mr && a && b);
    ASSERT_EQ(Join(a.get(), b.get()), 0);
    ASSERT_EQ(Join(b.get(), a.get()), 0);
  }
  uint64_t Clock() {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), 0);
    EXPECT_EQ(values.comp_mask, uint32_t{IBV_VALUES_MASK_RAW_CLOCK});
    EXPECT_EQ(values.raw_clock.tv_sec, 0);
    return static_cast<uint64_t>(values.raw_clock.tv_nsec);
  }
  // Waits for the next completion. The poll stays open.
  void StartPoll() {
    ibv_poll_cq_attr attr{};
    int result = ENOENT;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience_ms);
    while ((result = ibv_start_poll(timed, &attr)) == ENOENT &&
           std::chrono::steady_clock::now() < until)
      sched_yield();
    ASSERT_EQ(result, 0);
  }

  ibv_cq_ex* timed = nullptr;
};

TEST_F(Mlx5Timestamps, TheDeviceReportsItsClock) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.hca_core_clock, kKhz);
  EXPECT_EQ(attr.completion_timestamp_mask, kMask);
}

TEST_F(Mlx5Timestamps, ACompletionIsBetweenTwoReadsOfTheClock) {
  ASSERT_NO_FATAL_FAILURE(ConnectOver(MakeExtended(kBothClocks)));
  uint64_t latest = Clock();
  // A tick is 1 ns.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t offset = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 - latest;
  constexpr uint64_t kTolerance = 3'600'000'000'000;  // other clocks of the host run at other rates
  for (uint64_t i = 0; i < 16; i++) {
    ASSERT_EQ(PostReceive(b.get(), 100 + i), 0);
    ASSERT_EQ(PostSend(a.get(), i, IBV_SEND_SIGNALED), 0);
    uint64_t in_queue = latest;
    for (int one = 0; one < 2; one++) {  // the receive and the send
      ASSERT_NO_FATAL_FAILURE(StartPoll());
      EXPECT_EQ(timed->status, IBV_WC_SUCCESS);
      const uint64_t ticks = ibv_wc_read_completion_ts(timed);
      EXPECT_GE(ticks, in_queue);
      const uint64_t wallclock = ibv_wc_read_completion_wallclock_ns(timed);
      EXPECT_LT(wallclock - ticks - offset + kTolerance, 2 * kTolerance);
      in_queue = ticks;
      ibv_end_poll(timed);
    }
    latest = Clock();
    EXPECT_GE(latest, in_queue);
  }
}

TEST_F(Mlx5Timestamps, AFlushedCompletionHasATimestamp) {
  ASSERT_NO_FATAL_FAILURE(ConnectOver(MakeExtended(kBothClocks)));
  const uint64_t before = Clock();
  ASSERT_EQ(PostReceive(b.get(), 1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(b.get(), &attr, IBV_QP_STATE), 0);
  ASSERT_NO_FATAL_FAILURE(StartPoll());
  EXPECT_EQ(timed->status, IBV_WC_WR_FLUSH_ERR);
  const uint64_t ticks = ibv_wc_read_completion_ts(timed);
  ibv_end_poll(timed);
  EXPECT_GE(ticks, before);
  EXPECT_LE(ticks, Clock());
}

// As mlx5_query_rt_values of libmlx5.
TEST_F(Mlx5Timestamps, AnUnknownValueIsInvalidAndNoValueIsNone) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), EINVAL);
  values.comp_mask = 0;
  values.raw_clock.tv_nsec = 77;
  EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), 0);
  EXPECT_EQ(values.comp_mask, 0u);
  EXPECT_EQ(values.raw_clock.tv_nsec, 77);
  EXPECT_NE(Clock(), 0u);
}

TEST_F(Mlx5Timestamps, ACqHasOnlyTheClocksThatItAskedFor) {
  for (const uint64_t fields : {uint64_t{0}, uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP},
                                uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}}) {
    ibv_cq_ex* const cq = MakeExtended(fields);
    ASSERT_NE(cq, nullptr);
    const Cq owner(ibv_cq_ex_to_cq(cq));
    EXPECT_EQ(cq->read_completion_ts != nullptr,
              (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0);
    EXPECT_EQ(cq->read_completion_wallclock_ns != nullptr,
              (fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0);
  }
  EXPECT_EQ(MakeExtended(IBV_WC_EX_WITH_TM_INFO), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdma_contract
