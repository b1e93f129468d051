// Two hosts that send each other forms of trains. A program's thread copies the payload of a form.
#include "emulator/transport/form_fills.h"

#include "emulator/transport/copy_jobs_for_test.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kHostPid = 815;

class FormFillsTest : public ::testing::Test {
 protected:
  FormFillsTest() : world(/*local=*/false) {
    EXPECT_TRUE(world.a.verbs.DoorbellSpan(kGroup));
    world.a.verbs.ProcessJoined(kGroup, kProcess);
    world.a.memory.host_pid = kHostPid;
    world.a.sends_forms = world.b().sends_forms = true;
    jobs = &world.a.verbs.Doorbells(kGroup).jobs;
    x = world.Make(world.a, IBV_QPT_RC, 4 * kSize);
    y = world.Make(world.b(), IBV_QPT_RC, 4 * kSize);
    world.Join(x, y);
    FillPattern(x.buffer, 1);
  }
  void Write(uint64_t wr_id, size_t at, uint32_t bytes) {
    x.Post(RdmaWr(IBV_WR_RDMA_WRITE, wr_id, y, at), {x.Sge(at, bytes)});
    world.Ring(x);
  }
  void Poll() { jobs->polls++; }
  // Does the host's work. Time does not advance.
  void Work() {
    while (world.a.engine.Work(world.now)) {
    }
  }
  CopyJob& Job(uint32_t number) { return jobs->jobs[number % JobPage::kSlots]; }
  void Do(uint32_t number) {
    CopyJob& job = Job(number);
    ASSERT_TRUE(job.Claim(CopyJob::kTaken));
    ASSERT_EQ(job.pid, kHostPid);
    ASSERT_EQ(job.pull, 0u);
    ASSERT_EQ(job.own[0].length, job.other[0].length);
    Copy(job);
    job.Set(CopyJob::kDone);
  }
  static void Copy(const CopyJob& job) {
    std::memcpy(reinterpret_cast<void*>(job.other[0].address),
                reinterpret_cast<void*>(job.own[0].address), job.own[0].length);
    *reinterpret_cast<uint8_t*>(job.mark_address) = job.mark;
  }
  bool Arrived(size_t at, size_t bytes) const {
    return std::equal(x.buffer.begin() + static_cast<long>(at),
                      x.buffer.begin() + static_cast<long>(at + bytes),
                      y.buffer.begin() + static_cast<long>(at));
  }
  void ExpectSent(size_t count, ibv_wc_status status = IBV_WC_SUCCESS) {
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), count);
    for (const auto& wc : sent) EXPECT_EQ(wc.status, uint32_t{status});
  }

  World world;
  JobPage* jobs;
  Endpoint x, y;
};

TEST_F(FormFillsTest, AProgramThatPollsFillsTheForm) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_EQ(jobs->offered, 1u);
  EXPECT_TRUE(world.a.engine.AwaitsForms());
  EXPECT_FALSE(world.a.engine.HasFilledForms());
  Do(0);
  EXPECT_TRUE(world.a.engine.HasFilledForms());
  world.Run();
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  ExpectSent(1);
  EXPECT_TRUE(Arrived(0, kSize));
}

TEST_F(FormFillsTest, TheReceiverSeesAMarkedFormBeforeItsHostDoes) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  Copy(Job(0));
  world.Settle();
  EXPECT_TRUE(Arrived(0, kSize));
  EXPECT_TRUE(world.a.engine.AwaitsForms());
  Job(0).Set(CopyJob::kDone);
  world.Run();
  ExpectSent(1);
}

// The receiver has read the form, so its memory may be in use again.
TEST_F(FormFillsTest, AMarkedFormIsNotWrittenAgain) {
  for (const CopyJob::State state : {CopyJob::kFailed, CopyJob::kTaken}) {
    const uint32_t number = jobs->offered;
    Poll();
    Write(1, 0, kSize);
    Work();
    ASSERT_EQ(jobs->offered, number + 1);
    ASSERT_TRUE(Job(number).Claim(CopyJob::kTaken));
    Copy(Job(number));
    world.Settle();
    Job(number).Set(state);
    world.a.engine.FinishForms();
    EXPECT_FALSE(world.a.engine.AwaitsForms());
    world.Run();
    ExpectSent(1);
    EXPECT_TRUE(Arrived(0, kSize));
  }
}

TEST_F(FormFillsTest, SmallPayloadsAreTheHosts) {
  for (const uint32_t bytes : {uint32_t{kMinJobBytes} - 1, uint32_t{kMinJobBytes}}) {
    const uint32_t before = jobs->offered;
    Poll();
    Write(1, 0, bytes);
    Work();
    EXPECT_EQ(jobs->offered - before, bytes < kMinJobBytes ? 0u : 1u);
    if (jobs->offered != before) Do(before);
    world.Run();
    ExpectSent(1);
  }
}

TEST_F(FormFillsTest, AnOfferThatNobodyTakesIsTheHosts) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_EQ(jobs->offered, 1u);
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived(0, kSize));
  EXPECT_NE(Job(0).Now(), CopyJob::kOffered);
}

TEST_F(FormFillsTest, ABusyProgramHasMoreTime) {
  Poll();
  jobs->busy = 1;
  Write(1, 0, kSize);
  Work();
  world.now += 2 * OfferFor(kSize);
  Work();
  EXPECT_TRUE(world.a.engine.AwaitsForms());
  world.now += kOfferWhileBusyFor;
  Work();
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  world.Run();
  ExpectSent(1);
}

TEST_F(FormFillsTest, MemoryThatMayChangeIsCopiedFirst) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_TRUE(world.a.engine.AwaitsForms());
  ASSERT_TRUE(world.a.verbs.DeregMr(kGroup, x.mr->handle));
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  const std::vector<std::byte> posted = x.buffer;
  std::ranges::fill(x.buffer, std::byte{0});
  world.Run();
  EXPECT_TRUE(std::equal(posted.begin(), posted.begin() + kSize, y.buffer.begin()));
}

TEST_F(FormFillsTest, AQpThatFailsHasSentItsForms) {
  Poll();
  Write(1, 0, kSize);
  Work();
  world.SetState(x, IBV_QPS_ERR);
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  const std::vector<std::byte> posted = x.buffer;
  std::ranges::fill(x.buffer, std::byte{0});
  world.Run();
  EXPECT_TRUE(std::equal(posted.begin(), posted.begin() + kSize, y.buffer.begin()));
  ExpectSent(1, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(FormFillsTest, WorkBeforeADestroyIsSentAtOnce) {
  Poll();
  Write(1, 0, kSize);
  world.a.engine.SendPosted(world.now, kGroup);
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  EXPECT_EQ(jobs->offered, 0u);
  world.Run();
  EXPECT_TRUE(Arrived(0, kSize));
}

TEST_F(FormFillsTest, ARepeatedRequestIsTheHosts) {
  Poll();
  int drops = 1;
  world.fate = [&](const wire::Packet& packet) {
    return packet.headers.info().first && drops-- > 0 ? Fate::kDrop : Fate::kDeliver;
  };
  Write(1, 0, kSize);
  Work();
  Do(0);
  Poll();
  world.Run();
  EXPECT_EQ(jobs->offered, 1u);
  ExpectSent(1);
  EXPECT_TRUE(Arrived(0, kSize));
}

TEST_F(FormFillsTest, MissingMemoryFailsTheRequest) {
  Poll();
  Write(1, 0, kSize);
  Work();
  world.a.memory.holes.push_back({{x.At(0), 1}});
  world.Run();
  ExpectSent(1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(FormFillsTest, AFullNetworkDelaysForms) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_TRUE(world.a.engine.AwaitsForms());
  world.a.is_full = true;
  const uint64_t sent_before = world.a.verbs.devices()[0]->counters.sent_pkts;
  Write(2, kSize, kSize);
  (void)world.a.engine.Work(world.now);
  EXPECT_EQ(world.a.verbs.devices()[0]->counters.sent_pkts, sent_before);
  EXPECT_EQ(jobs->offered, 1u);
  world.a.is_full = false;
  world.Run();
  ExpectSent(2);
  EXPECT_TRUE(Arrived(0, 2 * kSize));
}

// The QPs have no timers (timeout 0), so only the host can send the request again.
TEST_F(FormFillsTest, WhatAStoppedThreadKeepsIsSentAgain) {
  Poll();
  Endpoint from = world.Make(world.a, IBV_QPT_RC, kSize);
  Endpoint to = world.Make(world.b(), IBV_QPT_RC, kSize);
  Link link;
  link.timeout = 0;
  world.Join(from, to, link);
  FillPattern(from.buffer, 3);
  from.Post(RdmaWr(IBV_WR_RDMA_WRITE, 1, to, 0), {from.Sge(0, kSize)});
  world.Ring(from);
  Work();
  ASSERT_TRUE(world.a.engine.AwaitsForms());
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  world.a.engine.FinishForms();
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  world.Run();
  // The thread continues later, and harms nobody.
  std::memset(reinterpret_cast<void*>(Job(0).other[0].address), 1, Job(0).other[0].length);
  world.Run();
  EXPECT_EQ(from.Sent().size(), 1u);
  EXPECT_TRUE(std::ranges::equal(from.buffer, to.buffer));
}

TEST_F(FormFillsTest, AThreadThatTakesTooLongIsNotAwaited) {
  Poll();
  Write(1, 0, kSize);
  Work();
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  world.now += kLongestFill - Duration(1);
  Work();
  EXPECT_TRUE(world.a.engine.AwaitsForms());
  world.now += Duration(1);
  Work();
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived(0, kSize));
}

}  // namespace
}  // namespace rdmaemu::transport::testing
