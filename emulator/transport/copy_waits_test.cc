// Threads that have taken copies, and do not make them: they are slow, stopped or held.
#include "emulator/transport/copy_waits.h"

#include "emulator/transport/copy_jobs_for_test.h"

namespace rdmaemu::transport::testing {
namespace {

using HeldCopiesTest = CopyJobsTest;

TEST_F(HeldCopiesTest, AThreadThatDoesNotEndItsCopiesKeepsTheHostWaitingOnce) {
  Poll();
  for (uint64_t i = 0; i < 3; i++) Write(i + 1, 0);
  Work();
  ASSERT_EQ(jobs->offered, 3u);
  for (uint32_t i = 0; i < 3; i++) Take(i);
  world.SetState(x, IBV_QPS_ERR);
  EXPECT_LT(world.a.memory.moments_given, 3 * kYieldsBeforeRecall + kMostLooks + 3);
  EXPECT_EQ(world.a.memory.late_copies, 1) << "the host logs late copies once";
}

TEST_F(HeldCopiesTest, AThreadThatIsStoppedBeforeItsCopyMakesItNoMore) {
  Poll();
  for (uint64_t i = 0; i < 2; i++) Write(i + 1, i * kSize);
  Work();
  ASSERT_EQ(jobs->offered, 2u);
  jobs->busy = 4712;
  const uint32_t recalls = jobs->recalls;
  for (uint32_t i = 0; i < 2; i++) Take(i);
  world.a.memory.threads = CopyState::kElsewhere;
  world.SetState(x, IBV_QPS_ERR);
  EXPECT_NE(jobs->recalls, recalls);
  EXPECT_EQ(world.a.memory.looked_at, std::vector<uint32_t>(2, 4712));
  EXPECT_EQ(world.a.memory.late_copies, 0);
  // The thread continues, and finds that the jobs are no longer its own.
  for (uint32_t i = 0; i < 2; i++) {
    Job(i).End(i, CopyJob::kDone);
    EXPECT_EQ(Job(i).Now(), CopyJob::kFree);
  }
  // The program gets offers again.
  for (Endpoint* each : {&x, &y}) world.SetState(*each, IBV_QPS_RESET);
  world.Join(x, y);
  x.Sent();
  Poll();
  Write(3, 0);
  CopyNext(2);
  world.Run();
  ExpectSent({3});
}

TEST_F(HeldCopiesTest, ARecalledThreadMayEndItsCopy) {
  Poll();
  Write(1, 0);
  Work();
  Take(0);
  EXPECT_TRUE(jobs->Recall(Job(0), 0));
  Do(0);
  EXPECT_EQ(Job(0).Now(), CopyJob::kDone);
  EXPECT_FALSE(jobs->Recall(Job(0), 0));
  world.Run();
  ExpectSent({1});
  EXPECT_TRUE(Arrived(0));
}

// The request would otherwise wait until the thread continues.
TEST_F(HeldCopiesTest, TheHostMakesTheCopyOfAStoppedThread) {
  Poll();
  Write(1, 0);
  Work();
  Take(0);
  world.a.memory.threads = CopyState::kElsewhere;
  world.now += kLookAfter - Duration(1);
  Work();
  EXPECT_FALSE(Arrived(0));
  EXPECT_TRUE(world.a.memory.looked_at.empty());
  world.now += Duration(1);
  Work();
  EXPECT_TRUE(Arrived(0));
  world.Run();
  ExpectSent({1});
}

TEST_F(HeldCopiesTest, ASlowCopyIsNoLostPacket) {
  Poll();
  Write(1, 0);
  Work();
  Take(0);
  // The ACK timeout is 67 ms with three retries.
  world.Run(std::chrono::seconds(5));
  ExpectSent({});
  EXPECT_EQ(world.a.engine.counters().retransmissions, 0u);
  Do(0);
  world.Run();
  ExpectSent({1});
}

}  // namespace
}  // namespace rdmaemu::transport::testing
