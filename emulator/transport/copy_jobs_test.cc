// Copies that a program's polling thread makes for its host. The tests check which program gets an
// offer, the order of effects, and copies that no thread makes.
#include "emulator/transport/copy_jobs.h"

#include "emulator/transport/copy_jobs_for_test.h"

namespace rdmaemu::transport::testing {
namespace {

TEST_F(CopyJobsTest, AWriteCompletesWhenTheProgramHasCopiedIt) {
  Poll();
  Write(1, 0);
  Work();
  ASSERT_EQ(jobs->offered, 1u);
  EXPECT_EQ(Job(0).pid, 4711u);
  EXPECT_FALSE(Arrived(0)) << "the host left it to the program";
  EXPECT_TRUE(world.a.engine.AwaitsCopies());
  Take(0);
  Work();
  ExpectSent({});
  Do(0);
  Work();
  ExpectSent({1});
  EXPECT_TRUE(Arrived(0));
  EXPECT_FALSE(world.a.engine.AwaitsCopies());
}

TEST_F(CopyJobsTest, AProgramThatDoesNotPollIsAskedForNothing) {
  Write(1, 0);
  Work();
  EXPECT_EQ(jobs->offered, 0u);
  ExpectSent({1});
  Poll();
  Write(2, 0);
  Work();
  EXPECT_EQ(jobs->offered, 1u);
  world.Run();
  world.now += kPollingWithin;
  Write(3, 0);
  Work();
  EXPECT_EQ(jobs->offered, 1u) << "its last look is too long ago";
}

TEST_F(CopyJobsTest, AnOfferThatNobodyTakesIsTheHosts) {
  Poll();
  Write(1, 0);
  Work();
  ExpectSent({});
  EXPECT_EQ(world.a.engine.NextDeadline(), world.now + OfferFor(kSize));
  world.now += OfferFor(kSize);
  Work();
  ExpectSent({1});
  EXPECT_TRUE(Arrived(0));
  EXPECT_FALSE(Job(0).Claim(CopyJob::kTaken)) << "it is too late to take it";
}

TEST_F(CopyJobsTest, ALargeCopyIsOfferedForLonger) {
  std::vector<Duration> limits;
  for (const uint32_t bytes : {uint32_t{kMinJobBytes}, 4 * kSize}) {
    Poll();
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, bytes, y, 0), {x.Sge(0, bytes)});
    world.Ring(x);
    Work();
    const auto deadline = world.a.engine.NextDeadline();
    ASSERT_TRUE(deadline);
    limits.push_back(*deadline - world.now);
    world.now = *deadline - Duration(1);
    Work();
    ExpectSent({});
    world.now += Duration(1);
    Work();
    ExpectSent({bytes});
  }
  EXPECT_GE(limits[1] - limits[0], std::chrono::microseconds(60));
}

TEST_F(CopyJobsTest, WritesAreOfferedTogetherAndCompleteInTheirOrder) {
  Poll();
  for (uint32_t i = 0; i < 3; i++) Write(i + 1, i * kSize);
  Work();
  ASSERT_EQ(jobs->offered, 3u);
  for (uint32_t i = 0; i < 3; i++) Take(i);
  Do(1);
  Do(2);
  Work();
  ExpectSent({});
  Do(0);
  Work();
  ExpectSent({1, 2, 3});
  for (uint32_t i = 0; i < 3; i++) EXPECT_TRUE(Arrived(i * kSize));
}

TEST_F(CopyJobsTest, WhatTheRowHasNoRoomForIsOfferedWhenItHas) {
  constexpr uint32_t kWrites = JobPage::kSlots + 8;
  constexpr uint32_t kBytes = 4096;
  std::vector<uint64_t> wr_ids;
  Poll();
  for (uint32_t i = 0; i < kWrites; i++) {
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, i, y, i * kBytes), {x.Sge(i * kBytes, kBytes)});
    wr_ids.push_back(i);
  }
  world.Ring(x);
  for (uint32_t done = 0; done < kWrites; done++) {
    Work();
    ASSERT_GT(jobs->offered, done);
    EXPECT_LE(jobs->offered - done, JobPage::kSlots);
    Take(done);
    Do(done);
  }
  Work();
  ExpectSent(wr_ids);
  EXPECT_TRUE(std::equal(x.buffer.begin(), x.buffer.begin() + kWrites * kBytes, y.buffer.begin()));
}

TEST_F(CopyJobsTest, WhatFollowsACopyWaitsForIt) {
  Poll();
  y.PostReceive(9, {y.Sge(3 * kSize, 64)});
  Write(1, 0);
  x.Post(SendWr(IBV_WR_SEND, 2), {x.Sge(0, 16)});
  world.Ring(x);
  Work();
  EXPECT_TRUE(y.Received().empty()) << "the SEND tells the peer that the WRITE is there";
  Take(0);
  Do(0);
  Work();
  EXPECT_EQ(y.Received().size(), 1u);
  ExpectSent({1, 2});
}

TEST_F(CopyJobsTest, SendsAndReadsAreCopiedTheSameWay) {
  Poll();
  y.PostReceive(9, {y.Sge(kSize, kSize)});
  x.Post(SendWr(IBV_WR_SEND, 1), {x.Sge(kSize, kSize)});
  world.Ring(x);
  Work();
  ASSERT_EQ(jobs->offered, 1u);
  Take(0);
  Do(0);
  Work();
  ExpectSent({1});
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, kSize);
  EXPECT_TRUE(Arrived(kSize));

  Poll();
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 2, y, 2 * kSize), {x.Sge(2 * kSize, kSize)});
  world.Ring(x);
  Work();
  ASSERT_EQ(jobs->offered, 2u);
  Take(1);
  Do(1);
  Work();
  ExpectSent({2});
  EXPECT_TRUE(Arrived(2 * kSize));
}

TEST_F(CopyJobsTest, SendsAreOfferedTogetherEachForItsReceive) {
  Poll();
  for (uint32_t i = 0; i < 3; i++) y.PostReceive(10 + i, {y.Sge(i * kSize, kSize)});
  for (uint32_t i = 0; i < 3; i++) x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(i * kSize, kSize)});
  world.Ring(x);
  Work();
  ASSERT_EQ(jobs->offered, 3u);
  for (uint32_t i = 0; i < 3; i++) Take(i);
  for (const uint32_t i : {2, 1, 0}) {
    EXPECT_TRUE(y.Received().empty());
    Do(i);
    if (i > 0) Work();
  }
  Work();
  ExpectSent({0, 1, 2});
  const auto received = y.Received();
  ASSERT_EQ(received.size(), 3u);
  for (uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(received[i].wr_id, 10 + i);
    EXPECT_TRUE(Arrived(i * kSize));
  }
}

// A SEND of several trains goes to one receive. A WRITE with immediate data takes the receive
// between two SENDs.
TEST_F(CopyJobsTest, LongSendsAndImmediatesAreCountedInTheReceives) {
  constexpr uint32_t kLong = kMaxTrainBytes + 2 * kSize;
  Endpoint from = world.Make(world.a, IBV_QPT_RC, 2 * kLong + kSize);
  Endpoint to = world.Make(world.a, IBV_QPT_RC, 2 * kLong + kSize);
  world.Join(from, to);
  FillBlocks(from.buffer);
  Poll();
  to.PostReceive(1, {to.Sge(0, kSize), to.Sge(kSize, kLong - kSize)});
  to.PostReceive(2, {});
  to.PostReceive(3, {to.Sge(kLong + kSize, kLong)});
  from.Post(SendWr(IBV_WR_SEND, 1), {from.Sge(0, kLong)});
  from.Post(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 2, to, kLong), {from.Sge(kLong, kSize)});
  from.Post(SendWr(IBV_WR_SEND, 3), {from.Sge(kLong + kSize, kLong)});
  world.Ring(from);
  Work();
  ASSERT_EQ(jobs->offered, 5u);
  // The first train has two ranges at the receiver, so the test leaves the copies to the host.
  world.Run();
  const auto received = to.Received();
  ASSERT_EQ(received.size(), 3u);
  for (uint32_t i = 0; i < 3; i++) EXPECT_EQ(received[i].wr_id, i + 1);
  EXPECT_EQ(received[2].byte_len, kLong);
  EXPECT_EQ(from.buffer, to.buffer);

  Poll();
  to.PostReceive(4, {to.Sge(0, 2 * kLong)});
  to.PostReceive(5, {to.Sge(2 * kLong, kSize)});
  std::ranges::fill(to.buffer, std::byte{});
  from.Post(SendWr(IBV_WR_SEND, 4), {from.Sge(0, 2 * kLong)});
  from.Post(SendWr(IBV_WR_SEND, 5), {from.Sge(2 * kLong, kSize)});
  world.Ring(from);
  for (uint32_t done = 5; done < 9; done++) CopyNext(done);
  Work();
  EXPECT_EQ(to.Received().size(), 2u);
  EXPECT_EQ(from.buffer, to.buffer);
}

TEST_F(CopyJobsTest, ASendWithoutAReceiveIsNotOffered) {
  Poll();
  y.PostReceive(9, {y.Sge(0, kSize)});
  for (uint32_t i = 0; i < 2; i++) x.Post(SendWr(IBV_WR_SEND, i), {x.Sge(i * kSize, kSize)});
  world.Ring(x);
  CopyNext(0);
  EXPECT_EQ(jobs->offered, 1u);
  Work();
  EXPECT_EQ(y.Received().size(), 1u);
  EXPECT_EQ(world.a.engine.counters().rnr_naks, 1u);
  y.PostReceive(10, {y.Sge(kSize, kSize)});
  world.Run();
  ExpectSent({0, 1});
  EXPECT_TRUE(Arrived(0));
  EXPECT_TRUE(Arrived(kSize));
}

// Another queue pair may take the receive that is next now.
TEST_F(CopyJobsTest, SendsToASharedQueueAreOfferedOneByOne) {
  SharedReceiveQueue* srq = *world.a.verbs.CreateSrq(kGroup, {world.a.pd->handle, 8, 1, 0, 4});
  Endpoint to = world.Make(world.a, IBV_QPT_RC, 2 * kSize, 63, 255, srq->handle);
  Endpoint from = world.Make(world.a, IBV_QPT_RC, 2 * kSize);
  world.Join(from, to);
  FillBlocks(from.buffer);
  Poll();
  for (uint32_t i = 0; i < 2; i++) {
    PostReceiveTo(srq->ring, i, {to.Sge(i * kSize, kSize)});
    from.Post(SendWr(IBV_WR_SEND, i), {from.Sge(i * kSize, kSize)});
  }
  world.Ring(from);
  for (uint32_t i = 0; i < 2; i++) {
    CopyNext(i);
    EXPECT_EQ(jobs->offered, i + 1);
  }
  Work();
  EXPECT_EQ(to.Received().size(), 2u);
  EXPECT_EQ(from.buffer, to.buffer);
}

TEST_F(CopyJobsTest, ReadsAreOfferedTogether) {
  Poll();
  for (uint32_t i = 0; i < 3; i++) {
    x.Post(RdmaWr(IBV_WR_RDMA_READ, i, y, i * kSize), {x.Sge(i * kSize, kSize)});
  }
  world.Ring(x);
  Work();
  ASSERT_EQ(jobs->offered, 3u);
  for (const uint32_t i : {0, 1, 2}) Take(i);
  for (const uint32_t i : {1, 2, 0}) Do(i);
  Work();
  ExpectSent({0, 1, 2});
  for (uint32_t i = 0; i < 3; i++) EXPECT_TRUE(Arrived(i * kSize));
}

// The next request may use the key that the SEND invalidates.
TEST_F(CopyJobsTest, NothingIsOfferedBehindAnInvalidation) {
  MemoryRegion* const region =
      *world.a.verbs.RegMr(kGroup, kProcess,
                           {world.a.pd->handle, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                            y.At(0), kSize, y.At(0)});
  Poll();
  y.PostReceive(9, {y.Sge(kSize, kSize)});
  rxe_send_wr send = SendWr(IBV_WR_SEND_WITH_INV, 1);
  send.ex.invalidate_rkey = region->rkey;
  x.Post(send, {x.Sge(kSize, kSize)});
  rxe_send_wr write = RdmaWr(IBV_WR_RDMA_WRITE, 2, y, 0);
  write.wr.rdma.rkey = region->rkey;
  x.Post(write, {x.Sge(0, kSize)});
  world.Ring(x);
  Work();
  ASSERT_EQ(jobs->offered, 1u);
  Take(0);
  Do(0);
  Work();
  EXPECT_EQ(jobs->offered, 1u);
  EXPECT_FALSE(Arrived(0));
}

// IBTA 9.5: the WRITE that was posted last is executed last.
TEST_F(CopyJobsTest, OfTwoWritesToTheSameBytesTheLastOneStays) {
  for (const CopyJob::State end : {CopyJob::kFailed, CopyJob::kOffered}) {
    SCOPED_TRACE(static_cast<int>(end));
    Poll();
    const uint32_t first = jobs->offered;
    for (uint32_t i = 0; i < 3; i++) {
      const size_t at = i == 2 ? 3 * kSize : 0;
      x.Post(RdmaWr(IBV_WR_RDMA_WRITE, i, y, at), {x.Sge(i * kSize, kSize)});
    }
    world.Ring(x);
    Work();
    ASSERT_EQ(jobs->offered, first + 3);
    if (end != CopyJob::kOffered) {
      Take(first);
      Job(first).Set(end);
    }
    // The thread skips the first copy, because the host makes that copy at the same time.
    Take(first + 1);
    Do(first + 1);
    Take(first + 2);
    Do(first + 2);
    world.now += OfferFor(kSize);
    Work();
    ExpectSent({0, 1, 2});
    EXPECT_TRUE(
        std::equal(x.buffer.begin() + kSize, x.buffer.begin() + 2 * kSize, y.buffer.begin()));
    std::ranges::fill(y.buffer, std::byte{});
  }
}

// A program that waits for the last byte of a WRITE expects the bytes before it. The host therefore
// makes no copy while a thread may make a later one.
TEST_F(CopyJobsTest, OffersBehindAnOverdueOneAreTakenBack) {
  Poll();
  Write(1, 0);
  Work();
  world.now += OfferFor(kSize) / 2;
  for (uint32_t i = 1; i < 3; i++) Write(i + 1, i * kSize);
  Work();
  ASSERT_EQ(jobs->offered, 3u);
  world.now += OfferFor(kSize) / 2;
  Work();
  for (uint32_t i = 0; i < 3; i++) EXPECT_FALSE(Job(i).Claim(CopyJob::kTaken)) << i;
  ExpectSent({1, 2, 3});
  for (uint32_t i = 0; i < 3; i++) EXPECT_TRUE(Arrived(i * kSize));
}

TEST_F(CopyJobsTest, TheHostWaitsForAThreadThatHasTakenALaterOffer) {
  Poll();
  for (uint32_t i = 0; i < 3; i++) Write(i + 1, i * kSize);
  Work();
  Take(0);
  Take(1);
  world.now += OfferFor(kSize);
  Work();
  ExpectSent({});
  Do(0);
  Do(1);
  Work();
  ExpectSent({1, 2});
  world.now += OfferFor(kSize) - Duration(1);
  Work();
  EXPECT_EQ(Job(2).Now(), CopyJob::kOffered) << "the thread has just ended other copies";
  world.now += Duration(1);
  Work();
  ExpectSent({3});
}

TEST_F(CopyJobsTest, ACopyThatFailedIsTheHostsToTryAgain) {
  Poll();
  Write(1, 0);
  Work();
  Take(0);
  Job(0).Set(CopyJob::kFailed);
  Work();
  ExpectSent({1});
  EXPECT_TRUE(Arrived(0));
  Write(2, kSize);
  Work();
  EXPECT_EQ(jobs->offered, 2u);
}

TEST_F(CopyJobsTest, AProgramThatMayNotReachOthersIsAskedOnce) {
  Poll();
  Write(1, 0);
  Work();
  Take(0);
  Job(0).Set(CopyJob::kRefused);
  Work();
  ExpectSent({1});
  Poll();
  Write(2, kSize);
  Work();
  EXPECT_EQ(jobs->offered, 1u);
  ExpectSent({2});
}

TEST_F(CopyJobsTest, ABadKeyIsFoundBeforeAnythingIsOffered) {
  Poll();
  rxe_send_wr wr = RdmaWr(IBV_WR_RDMA_WRITE, 1, y, 0);
  wr.wr.rdma.rkey ^= 0x100;
  x.Post(wr, {x.Sge(0, kSize)});
  world.Ring(x);
  Work();
  EXPECT_EQ(jobs->offered, 0u);
  ExpectSent({1}, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CopyJobsTest, WhatWaitsIsDroppedWithItsQp) {
  for (Endpoint* end : {&x, &y}) {
    SCOPED_TRACE(end == &x ? "sender" : "receiver");
    Poll();
    Write(1, 0);
    Write(2, kSize);
    Work();
    const uint32_t offered = jobs->offered;
    world.SetState(*end, IBV_QPS_ERR);
    EXPECT_FALSE(Job(offered - 2).Claim(CopyJob::kTaken));
    EXPECT_FALSE(Job(offered - 1).Claim(CopyJob::kTaken));
    Work();
    EXPECT_FALSE(world.a.engine.AwaitsCopies());
    world.Run();
    EXPECT_EQ(x.Sent().size(), 2u);
    EXPECT_FALSE(Arrived(0));
    for (Endpoint* each : {&x, &y}) world.SetState(*each, IBV_QPS_RESET);
    world.Join(x, y);
  }
}

TEST_F(CopyJobsTest, AGroupOfTwoProcessesCopiesNothing) {
  world.a.verbs.ProcessJoined(kGroup, ProcessId{2});
  Poll();
  Write(1, 0);
  Work();
  EXPECT_EQ(jobs->offered, 0u);
  ExpectSent({1});
}

TEST_F(CopyJobsTest, APacketThatWaitsForACopyIsReceivedOnce) {
  Poll();
  Write(1, 0);
  CopyNext(0);
  world.Run();
  ExpectSent({1});
  const PortCounters& device = x.qp->device->counters;
  EXPECT_EQ(device.rcvd_pkts, device.sent_pkts);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
