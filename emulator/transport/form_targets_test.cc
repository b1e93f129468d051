// WRITEs between two hosts whose payload the sender's program copies directly to the memory of the
// receiver's program.
#include "emulator/transport/form_targets.h"

#include "emulator/transport/copy_jobs_for_test.h"
#include "emulator/transport/copy_waits.h"
#include "emulator/transport/foreign_job.h"

namespace rdmaemu::transport::testing {
namespace {

constexpr uint32_t kSendingHost = 815, kOtherProgram = 4711;

class FormTargetsTest : public ::testing::Test {
 protected:
  FormTargetsTest() : world(/*local=*/false) {
    world.a.shared_memory.has_descriptors = true;
    for (Node* const node : {&world.a, &world.b()}) {
      EXPECT_TRUE(node->verbs.DoorbellSpan(kGroup));
      node->verbs.ProcessJoined(kGroup, kProcess);
    }
    world.a.memory.host_pid = kSendingHost;
    world.b().memory.pids[kProcess] = kOtherProgram;
    world.a.sends_forms = world.b().sends_forms = true;
    jobs = &world.a.verbs.Doorbells(kGroup).jobs;
  }
  void Make(uint32_t bytes, const Link& link = {}) {
    x = world.Make(world.a, IBV_QPT_RC, bytes);
    y = world.Make(world.b(), IBV_QPT_RC, bytes);
    world.Join(x, y, link);
    FillPattern(x.buffer, 1);
  }
  void Post(ibv_wr_opcode opcode, uint64_t wr_id, size_t at, uint32_t bytes) {
    jobs->polls++;
    x.Post(RdmaWr(opcode, wr_id, y, at), {x.Sge(at, bytes)});
    world.Ring(x);
    Work();
  }
  void Write(uint64_t wr_id, size_t at, uint32_t bytes) {
    Post(IBV_WR_RDMA_WRITE, wr_id, at, bytes);
  }
  void Work() {
    while (world.a.engine.Work(world.now)) {
    }
  }
  CopyJob& Job(uint32_t number) { return jobs->jobs[number % JobPage::kSlots]; }
  // The receiver looks at the form with this index in the network.
  bool Direct(size_t index) {
    const Datagram& datagram = world.a.out.at(index);
    Train train;
    EXPECT_TRUE(ParseForm(datagram.flow, datagram.bytes, train));
    const uint32_t number = world.a.referred.at(index).number;
    const JobReference reference{.slot = number % JobPage::kSlots, .number = number};
    // The page is the host's.
    const std::shared_ptr<JobPage> page(std::shared_ptr<JobPage>(), jobs);
    forms.push_back(std::make_shared<ForeignJob>(page, reference,
                                                 static_cast<uint8_t>(Datagram::Form::kPlaced)));
    const bool is_named = world.b().engine.Direct(train, forms.back()) == Naming::kNamed;
    if (!is_named) forms.back()->Decline();
    return is_named;
  }
  void Fail(Endpoint& end) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    world.Modify(end, attr, IBV_QP_STATE);
  }
  void Copy(uint32_t number) {
    CopyJob& job = Job(number);
    ASSERT_TRUE(job.Claim(CopyJob::kTaken));
    Move(job);
    job.Set(CopyJob::kDone);
  }
  // A thread takes the direct copy of a request whose ACK timeout is 1 ms.
  void TakeWithShortTimeout() {
    Link link;
    link.timeout = 8;
    Make(kSize, link);
    Write(1, 0, kSize);
    ASSERT_TRUE(Direct(0));
    ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  }
  void ExpireAfter(Duration elapsed) {
    world.now += elapsed;
    world.a.engine.Expire(world.now);
    world.Settle();
  }
  static void Move(const CopyJob& job) {
    std::memcpy(reinterpret_cast<void*>(job.other[0].address),
                reinterpret_cast<void*>(job.own[0].address), job.own[0].length);
    *reinterpret_cast<uint8_t*>(job.mark_address) = job.mark;
  }
  void ExpectSent(size_t count, ibv_wc_status status = IBV_WC_SUCCESS) {
    const auto sent = x.Sent();
    ASSERT_EQ(sent.size(), count);
    for (const auto& wc : sent) EXPECT_EQ(wc.status, uint32_t{status});
  }
  bool Arrived() const { return std::ranges::equal(x.buffer, y.buffer); }

  World world;
  JobPage* jobs;
  Endpoint x, y;
  std::vector<std::shared_ptr<ForeignJob>> forms;
};

// The READ brings the bytes from before the WRITE. Its host has the READ, and has not read them
// yet.
TEST_F(FormTargetsTest, AWriteBehindAReadWithoutItsResponseIsNotDirect) {
  Make(2 * kSize);
  FillPattern(y.buffer, 2);
  const std::vector<std::byte> before = y.buffer, written = x.buffer;
  x.Post(RdmaWr(IBV_WR_RDMA_READ, 1, y, 0), {x.Sge(kSize, kSize)});
  Write(2, 0, kSize);
  const Datagram asked = std::move(world.a.out.front());
  world.a.out.pop_front();
  Train read;
  ASSERT_TRUE(ParseForm(asked.flow, asked.bytes, read));
  const auto once = [&, first = true]() mutable {
    return std::exchange(first, false) ? &read : nullptr;
  };
  world.b().engine.ReceiveTrains(world.now, once, false);
  EXPECT_FALSE(Direct(0));
  world.Run();
  ExpectSent(2);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kSize, x.buffer.begin() + kSize));
  EXPECT_TRUE(std::equal(written.begin(), written.begin() + kSize, y.buffer.begin()));
}

TEST_F(FormTargetsTest, TheProgramCopiesToTheOtherProgram) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_EQ(Job(0).Now(), CopyJob::kAwaiting);
  ASSERT_TRUE(Direct(0));
  EXPECT_EQ(Job(0).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(0).pid, kOtherProgram);
  EXPECT_EQ(Job(0).mark_pid, kSendingHost);
  EXPECT_EQ(Job(0).other[0].address, reinterpret_cast<uint64_t>(y.buffer.data()));
  Copy(0);
  EXPECT_TRUE(Arrived()) << "before the receiver handles the form";
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived()) << "the form has no payload";
}

TEST_F(FormTargetsTest, AMessageOfSeveralFormsAndTheNextOneAreNamedBehindEachOther) {
  constexpr uint32_t kLong = kMaxFormPayloadBytes + kSize;
  Link link;
  link.mtu = IBV_MTU_4096;
  Make(kLong + kSize, link);
  Write(1, 0, kLong);
  Write(2, kLong, kSize);
  ASSERT_EQ(jobs->offered, 3u);
  for (size_t i = 0; i < 3; i++) ASSERT_TRUE(Direct(i)) << i;
  for (uint32_t i = 0; i < 3; i++) Copy(i);
  EXPECT_TRUE(Arrived());
  world.Run();
  ExpectSent(2);
  EXPECT_TRUE(Arrived());
}

TEST_F(FormTargetsTest, AFormThatIsNotNextIsNotNamed) {
  Make(2 * kSize);
  Write(1, 0, kSize);
  Write(2, kSize, kSize);
  EXPECT_FALSE(Direct(1));
  EXPECT_EQ(Job(1).pid, kSendingHost);
  EXPECT_EQ(Job(1).Now(), CopyJob::kOffered) << "the program copies to the form";
}

TEST_F(FormTargetsTest, OtherRequestsAwaitNobody) {
  Make(kSize);
  y.PostReceive(1, {y.Sge(0, kSize)});
  Post(IBV_WR_SEND, 1, 0, kSize);
  Post(IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, kSize);
  ASSERT_EQ(jobs->offered, 2u);
  EXPECT_EQ(Job(0).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(1).Now(), CopyJob::kOffered);
  EXPECT_TRUE(world.a.referred.empty());
}

TEST_F(FormTargetsTest, WithoutADescriptorNobodyIsAwaited) {
  Make(kSize);
  x.qp->share().jobs_place.fd = -1;
  Write(1, 0, kSize);
  EXPECT_EQ(Job(0).Now(), CopyJob::kOffered);
}

TEST_F(FormTargetsTest, AWrongKeyIsNotNamed) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(world.b().verbs.DeregMr(kGroup, y.mr->handle));
  EXPECT_FALSE(Direct(0));
  Copy(0);
  world.Run();
  ExpectSent(1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(FormTargetsTest, AProgramThatNobodyCanReachIsNotNamed) {
  world.b().memory.pids[kProcess] = 0;
  Make(kSize);
  Write(1, 0, kSize);
  EXPECT_FALSE(Direct(0));
}

TEST_F(FormTargetsTest, MemoryThatItsProgramGetsBackIsNotWritten) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(world.b().verbs.DeregMr(kGroup, y.mr->handle));
  const std::vector<std::byte> before(y.buffer.begin(), y.buffer.end());
  EXPECT_EQ(Job(0).pid, kSendingHost) << "the copy goes to the form";
  Copy(0);
  world.Run();
  ExpectSent(1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(std::ranges::equal(before, y.buffer));
}

TEST_F(FormTargetsTest, ACopyThatHasBegunIsAwaitedBeforeMemoryIsGivenBack) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  world.b().memory.meanwhile = [&] {
    Move(Job(0));
    Job(0).Set(CopyJob::kDone);
  };
  ASSERT_TRUE(world.b().verbs.DeregMr(kGroup, y.mr->handle));
  EXPECT_EQ(world.b().memory.moments_given, 1);
  world.Run();
  ExpectSent(1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(FormTargetsTest, AQpThatEndsTakesItsDestinationsBack) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  Fail(y);
  EXPECT_EQ(Job(0).pid, kSendingHost);
}

TEST_F(FormTargetsTest, AHostThatNamesNoDestinationIsNotAwaitedLong) {
  Make(kSize);
  Write(1, 0, kSize);
  world.now += kAwaitDestinationFor - Duration(1);
  Work();
  EXPECT_TRUE(world.a.engine.AwaitsForms());
  world.now += Duration(1);
  Work();
  EXPECT_FALSE(world.a.engine.AwaitsForms());
  EXPECT_FALSE(Direct(0)) << "it is too late";
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived());
}

// A thread that takes offers in their order must not copy a later payload before the host's copy
// of an earlier one arrives.
TEST_F(FormTargetsTest, OverdueOffersEndTogether) {
  Make(2 * kSize);
  Write(1, 0, kSize);
  Write(2, kSize, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(Direct(1));
  Work();
  world.now += OfferFor(kSize);
  Work();
  EXPECT_FALSE(Job(0).Claim(CopyJob::kTaken));
  EXPECT_FALSE(Job(1).Claim(CopyJob::kTaken));
  world.Run();
  ExpectSent(2);
  EXPECT_TRUE(Arrived());
}

TEST_F(FormTargetsTest, ACopyThatFailsIsTheHosts) {
  for (const CopyJob::State state : {CopyJob::kFailed, CopyJob::kRefused}) {
    const uint32_t number = jobs->offered;
    if (number == 0) Make(kSize);
    world.a.out.clear();
    world.a.referred.clear();
    Write(1, 0, kSize);
    ASSERT_TRUE(Direct(0));
    ASSERT_TRUE(Job(number).Claim(CopyJob::kTaken));
    Job(number).Set(state);
    world.Run();
    ExpectSent(1);
    EXPECT_TRUE(Arrived());
  }
  Write(1, 0, kSize);
  EXPECT_EQ(Job(2).Now(), CopyJob::kOffered) << "a refused program still copies to its host";
  EXPECT_EQ(world.a.referred.size(), 1u);
}

// The thread writes to the memory of the other program when it continues. So the request may not
// complete before.
TEST_F(FormTargetsTest, ARequestIsNotRepeatedWhileAStoppedThreadMayWrite) {
  TakeWithShortTimeout();
  for (int i = 0; i < 100; i++) ExpireAfter(kLongestFill);
  EXPECT_FALSE(world.a.engine.AwaitsForms()) << "what was sent later has arrived";
  EXPECT_TRUE(x.Sent().empty());
  Move(Job(0));
  Job(0).Set(CopyJob::kDone);
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived());
}

TEST_F(FormTargetsTest, ARightThatIsRevokedTakesDestinationsBack) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  world.Modify(y, attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(Job(0).pid, kSendingHost);
  Copy(0);
  world.Run();
  ExpectSent(1, IBV_WC_REM_INV_REQ_ERR);
}

// Its host has been killed with it, so nobody ends the job.
TEST_F(FormTargetsTest, AThreadThatNeverEndsIsAwaitedOnce) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  world.b().engine.StopCopies();
  const int waits = world.b().memory.moments_given;
  EXPECT_EQ(waits, kYieldsBeforeRecall + kMostLooks);
  EXPECT_EQ(world.b().memory.late_copies, 1);
  world.b().engine.StopCopies();
  EXPECT_EQ(world.b().memory.moments_given, waits);
}

TEST_F(FormTargetsTest, ATracedThreadIsAwaitedForAShorterTime) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  world.b().memory.threads = CopyState::kTraced;
  world.b().engine.StopCopies();
  EXPECT_EQ(world.b().memory.looked_at.size(), size_t{kMostLooks / kLooksAtTraced});
  EXPECT_EQ(world.b().memory.late_copies, 1);
}

TEST_F(FormTargetsTest, AThreadThatIsStoppedBeforeItsCopyWritesToTheFormOrNothing) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  ASSERT_TRUE(Job(0).Claim(CopyJob::kTaken));
  const uint32_t recalls = jobs->recalls;
  world.b().memory.threads = CopyState::kElsewhere;
  world.b().engine.StopCopies();
  EXPECT_NE(jobs->recalls, recalls);
  EXPECT_EQ(Job(0).Now(), CopyJob::kOffered);
  EXPECT_EQ(Job(0).pid, kSendingHost);
  Job(0).End(0, CopyJob::kFailed);
  EXPECT_EQ(Job(0).Now(), CopyJob::kOffered) << "the thread has the job no more";
  EXPECT_FALSE(Arrived());
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived());
}

// The timers of the request are shorter than the time for which the thread is stopped.
TEST_F(FormTargetsTest, AStoppedThreadDelaysItsRequestForMillisecondsOnly) {
  TakeWithShortTimeout();
  world.a.memory.threads = CopyState::kElsewhere;
  world.now += kLookAfter;
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived());
  EXPECT_EQ(Job(0).Now(), CopyJob::kFree);
}

TEST_F(FormTargetsTest, AHeldRequestIsSentAgainWhenItsThreadTurnsOutToBeStopped) {
  TakeWithShortTimeout();
  for (int i = 0; i < 3; i++) ExpireAfter(kLongestFill);
  EXPECT_TRUE(x.Sent().empty());
  world.a.memory.threads = CopyState::kElsewhere;
  world.now += kLongestFill;
  world.Run();
  ExpectSent(1);
  EXPECT_TRUE(Arrived());
}

TEST_F(FormTargetsTest, AQpInErrorDropsAPlacedForm) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  Copy(0);
  Fail(y);
  world.Settle();
  EXPECT_EQ(world.b().engine.counters().dropped_wrong_state, kSize / 1024);
}

TEST_F(FormTargetsTest, ThePayloadOfAPlacedFormCanBeRead) {
  Make(kSize);
  Write(1, 0, kSize);
  ASSERT_TRUE(Direct(0));
  Copy(0);
  Train train;
  ASSERT_TRUE(ParseForm(world.a.out.front().flow, world.a.out.front().bytes, train));
  std::vector<std::byte> payload(kSize);
  EXPECT_TRUE(world.b().engine.ReadPlaced(train, payload));
  EXPECT_TRUE(std::ranges::equal(payload, x.buffer));
  train.headers.psn++;
  EXPECT_FALSE(world.b().engine.ReadPlaced(train, payload));
}

}  // namespace
}  // namespace rdmaemu::transport::testing
