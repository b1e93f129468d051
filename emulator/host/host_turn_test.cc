// Threads of programs that wait until the host has used their common processor.
#include "emulator/abi/host_turn.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "emulator/host/testing/world.h"

namespace rdmaemu {
namespace {

using testing::Client;
using testing::kAllAccess;
using testing::Verb;
using testing::World;

// A message between two programs, and the objects that it needs.
struct Message {
  Message(Client& sender, Client& receiver) : a(sender), b(receiver) {
    a.ConnectRc(aq, "127.0.1.1", bq.made.qpn);
    b.ConnectRc(bq, "127.0.1.1", aq.made.qpn);
  }
  void Send(uint32_t flags) {
    b.PostRecv(bq, 1, to.data(), to.size(), to_mr.lkey);
    a.PostSend(aq, 2, IBV_WR_SEND, from.data(), from.size(), from_mr.lkey,
               [flags](testing::PlainSend& wqe) { wqe.wr.send_flags = flags; });
  }

  Verb a, b;
  Verb::Qp aq = a.CreateQp(IBV_QPT_RC), bq = b.CreateQp(IBV_QPT_RC);
  std::array<uint8_t, 8> from{}, to{};
  MrOut from_mr = a.Register(from.data(), from.size(), kAllAccess);
  MrOut to_mr = b.Register(to.data(), to.size(), kAllAccess);
};

class HostTurnTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kProcessor = 3;
  DoorbellPage& PageOf(Client& client) {
    return *reinterpret_cast<DoorbellPage*>(client.At(client.hello.doorbells));
  }
  // Returns true if a thread on that processor may wait.
  bool Await(Client& client, uint32_t processor = kProcessor) {
    DoorbellPage& page = PageOf(client);
    uint32_t turn = 0;
    const bool may = MayAwaitTurn(page.turn, page.host_asleep, processor, turn);
    EXPECT_TRUE(!may || turn == page.turn.ended);
    return may;
  }
  // Announces the wait of a thread on another processor. Returns true if the thread may block.
  bool AwaitElsewhere(Client& client) {
    DoorbellPage& page = PageOf(client);
    uint32_t turn = 0;
    return IsTurnOpenToAll(page.turn) &&
           AnnounceTurnWait(page.turn, page.host_asleep, HostTurn::kAwaitedElsewhere, turn);
  }
  // Ends the turn. Returns the futexes that the host wakes.
  std::vector<uint32_t*> End(TurnEnd end) {
    std::vector<uint32_t*> woken;
    host.EndTurn(end, [&](uint32_t& futex) { woken.push_back(&futex); });
    return woken;
  }

  World world;
  Host& host = world.AddHost("a", "127.0.1.1");
  Client first{world, host}, second{world, host};
};

TEST_F(HostTurnTest, ThreadsOnTheHostsProcessorRunFirst) {
  host.ShowProcessor(kProcessor);
  host.OpenTurnToAll(true);
  for (const bool first_is_here : {true, false}) {
    Client &here = first_is_here ? first : second, &elsewhere = first_is_here ? second : first;
    ASSERT_TRUE(AwaitElsewhere(elsewhere));
    ASSERT_TRUE(Await(here));
    EXPECT_EQ(End(TurnEnd::kAll),
              (std::vector<uint32_t*>{&PageOf(here).turn.ended, &PageOf(elsewhere).turn.ended}));
  }
}

TEST_F(HostTurnTest, AThreadWaitsOnlyOnTheProcessorOfItsHost) {
  EXPECT_FALSE(Await(first)) << "the processor is unknown";
  host.ShowProcessor(kProcessor);
  EXPECT_TRUE(Await(first));
  EXPECT_FALSE(Await(first, kProcessor + 1));
  EXPECT_FALSE(Await(first, kProcessor - 1));
  Client late(world, host);
  EXPECT_TRUE(Await(late)) << "a new program knows the processor, too";
  host.ShowProcessor(std::nullopt);
  EXPECT_FALSE(Await(first));
}

TEST_F(HostTurnTest, AThreadElsewhereWaitsOnlyWhileTheTurnIsOpenToAll) {
  host.ShowProcessor(kProcessor);
  EXPECT_FALSE(AwaitElsewhere(first));
  host.OpenTurnToAll(true);
  EXPECT_TRUE(AwaitElsewhere(first));
  Client late(world, host);
  EXPECT_TRUE(AwaitElsewhere(late)) << "a new program sees this, too";
  host.ShowProcessor(kProcessor + 1);
  EXPECT_TRUE(AwaitElsewhere(second)) << "wherever the host runs";
  host.OpenTurnToAll(false);
  EXPECT_FALSE(AwaitElsewhere(first));
  EXPECT_FALSE(AwaitElsewhere(late));
  host.OpenTurnToAll(true);
  host.PrepareSleep(true);
  EXPECT_FALSE(AwaitElsewhere(first)) << "the host sleeps";
}

TEST_F(HostTurnTest, TheHostDistinguishesWhereThreadsWait) {
  host.ShowProcessor(kProcessor);
  host.OpenTurnToAll(true);
  (void)host.PollDoorbells(world.now);
  EXPECT_EQ(host.groups_awaiting_turn(), 0u);
  ASSERT_TRUE(AwaitElsewhere(first));
  (void)host.PollDoorbells(world.now);
  EXPECT_TRUE(host.IsTurnAwaited());
  EXPECT_FALSE(host.IsTurnAwaitedHere());
  EXPECT_EQ(host.groups_awaiting_turn(), 1u);
  ASSERT_TRUE(Await(first));
  ASSERT_TRUE(AwaitElsewhere(first)) << "does not hide the thread on the host's processor";
  ASSERT_TRUE(AwaitElsewhere(second));
  (void)host.PollDoorbells(world.now);
  EXPECT_TRUE(host.IsTurnAwaitedHere());
  EXPECT_EQ(host.groups_awaiting_turn(), 2u);
  EXPECT_EQ(End(TurnEnd::kAll).size(), 2u);
  (void)host.PollDoorbells(world.now);
  EXPECT_FALSE(host.IsTurnAwaited());
  EXPECT_EQ(host.groups_awaiting_turn(), 0u);
}

TEST_F(HostTurnTest, NoThreadWaitsForASleepingHost) {
  host.ShowProcessor(kProcessor);
  host.PrepareSleep(true);
  EXPECT_FALSE(Await(first));
  // The thread does not block. The host sees its word and looks for work once more.
  (void)host.PollDoorbells(world.now);
  EXPECT_TRUE(host.IsTurnAwaited());
}

TEST_F(HostTurnTest, TheEndOfATurnWakesTheThreadsThatWait) {
  host.ShowProcessor(kProcessor);
  (void)host.PollDoorbells(world.now);
  EXPECT_FALSE(host.IsTurnAwaited());
  EXPECT_TRUE(End(TurnEnd::kAll).empty());
  ASSERT_TRUE(Await(second));
  (void)host.PollDoorbells(world.now);
  EXPECT_TRUE(host.IsTurnAwaited());
  const uint32_t before = PageOf(second).turn.ended;
  EXPECT_EQ(End(TurnEnd::kAll), std::vector{&PageOf(second).turn.ended});
  EXPECT_NE(PageOf(second).turn.ended, before) << "a thread that has not blocked yet does not";
  EXPECT_TRUE(End(TurnEnd::kAll).empty());
  (void)host.PollDoorbells(world.now);
  EXPECT_FALSE(host.IsTurnAwaited());
}

TEST_F(HostTurnTest, ATurnEndsEarlyForProgramsWithNewCompletions) {
  Message message(first, second);
  host.ShowProcessor(kProcessor);
  message.Send(/*flags=*/0);
  ASSERT_TRUE(Await(first));
  ASSERT_TRUE(Await(second));
  EXPECT_TRUE(End(TurnEnd::kWithNews).empty());
  world.Settle();
  EXPECT_EQ(End(TurnEnd::kWithNews), std::vector{&PageOf(second).turn.ended})
      << "the send has no completion";
  ASSERT_TRUE(Await(second));
  EXPECT_TRUE(End(TurnEnd::kWithNews).empty()) << "nothing new";
  EXPECT_EQ(End(TurnEnd::kAll).size(), 2u);
}

TEST_F(HostTurnTest, ATurnEndsEarlyForProgramsWithOffers) {
  host.ShowProcessor(kProcessor);
  ASSERT_TRUE(Await(first));
  ASSERT_TRUE(Await(second));
  EXPECT_TRUE(End(TurnEnd::kWithOffers).empty());
  JobPage& jobs = PageOf(second).jobs;
  jobs.offered += 2;
  EXPECT_TRUE(End(TurnEnd::kWithNews).empty());
  EXPECT_EQ(End(TurnEnd::kWithOffers), std::vector{&PageOf(second).turn.ended});
  ASSERT_TRUE(Await(second));
  jobs.next++;
  EXPECT_EQ(End(TurnEnd::kWithOffers).size(), 1u) << "a thread has examined one of two";
  ASSERT_TRUE(Await(second));
  jobs.next++;
  EXPECT_TRUE(End(TurnEnd::kWithOffers).empty());
  EXPECT_EQ(End(TurnEnd::kAll).size(), 2u);
}

TEST_F(HostTurnTest, TheEndForOffersKeepsTheNewsOfOthers) {
  Message message(first, second);
  host.ShowProcessor(kProcessor);
  message.Send(IBV_SEND_SIGNALED);
  ASSERT_TRUE(Await(second));
  world.Settle();
  EXPECT_TRUE(End(TurnEnd::kWithOffers).empty());
  EXPECT_EQ(End(TurnEnd::kWithNews), std::vector{&PageOf(second).turn.ended});
}

TEST_F(HostTurnTest, TheHostSeesHowThreadsHaveWaited) {
  ProgramPlace& place = PageOf(second).place;
  NotePlace(place, &ProgramPlace::calls, kProcessor);
  NotePlace(place, &ProgramPlace::vain_polls, kProcessor);
  for (int i = 0; i < 3; i++) NotePlace(place, &ProgramPlace::copies, kProcessor);
  NotePlace(place, &ProgramPlace::vain_polls, kProcessor + 1);
  const std::vector<GroupWaits> waits = host.WaitsOfGroups();
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].processor, 0u) << "this group has not waited";
  EXPECT_EQ(waits[1].processor, kProcessor + 2);
  EXPECT_EQ(waits[1].calls, 1u);
  EXPECT_EQ(waits[1].vain_polls, 2u);
  EXPECT_EQ(waits[1].copies, 3u);
}

TEST_F(HostTurnTest, TheHostLooksAtALimitedNumberOfGroups) {
  std::deque<Client> more;
  while (more.size() + 2 < Host::kMaxGroupWaits) more.emplace_back(world, host);
  EXPECT_EQ(host.WaitsOfGroups().size(), Host::kMaxGroupWaits);
  more.emplace_back(world, host);
  EXPECT_EQ(host.WaitsOfGroups().size(), Host::kMaxGroupWaits);
}

}  // namespace
}  // namespace rdmaemu
