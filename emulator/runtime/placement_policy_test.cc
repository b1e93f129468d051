#include "emulator/runtime/placement_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace rdmaemu::runtime {
namespace {

constexpr uint32_t kMany = PlacementPolicy::kActive;
constexpr uint32_t kFew = kMany - 1;

class PlacementPolicyTest : public ::testing::Test {
 protected:
  // Lets groups wait, and returns what the policy decides after one interval.
  uint32_t Decide(uint64_t new_bytes = 0, Duration elapsed = PlacementPolicy::kInterval) {
    now_ += elapsed;
    received_ += new_bytes / 2;
    sent_ += new_bytes - new_bytes / 2;
    return policy_.Sample(now_, groups_, own_, other_, sent_, received_, peers_poller_);
  }
  void Add(uint32_t group, uint32_t processor) {
    groups_.push_back({GroupId{group}, processor, 0, 0, 0});
  }
  // Adds a group on each processor.
  void AddTwo() {
    Add(1, 1);
    Add(2, 2);
    Decide();
  }
  void Call(size_t index, uint32_t count) { groups_[index].calls += count; }
  void Poll(size_t index, uint32_t count) { groups_[index].vain_polls += count; }

  void Copy(size_t index, uint32_t count) { groups_[index].copies += count; }

  PlacementPolicy policy_;
  uint32_t own_ = 1, other_ = 2, peers_poller_ = 0;
  std::vector<GroupWaits> groups_;
  uint64_t sent_ = 0, received_ = 0;
  Time now_{std::chrono::seconds(1)};
};

TEST_F(PlacementPolicyTest, ASampleIsDueAfterAnInterval) {
  Decide();
  EXPECT_FALSE(policy_.IsSampleDue(now_ + PlacementPolicy::kInterval - Duration(1)));
  EXPECT_TRUE(policy_.IsSampleDue(now_ + PlacementPolicy::kInterval));
}

TEST_F(PlacementPolicyTest, AHostWithPeersGoesToTheGroupThatCallsLeast) {
  AddTwo();
  Call(0, 3 * kMany);
  Call(1, 2 * kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 2u);
  Call(0, 2 * kMany);
  Call(1, 3 * kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 1u);
  Call(0, 2 * kMany);
  Call(1, 3 * kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers - 1), 0u) << "without peers the kernel decides";
}

TEST_F(PlacementPolicyTest, AGroupThatHardlyCallsDoesNotCount) {
  AddTwo();
  Call(0, kMany);
  Call(1, kFew);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 1u);
  Call(0, PlacementPolicy::kCallsOfOne - 1);
  EXPECT_EQ(Decide(), 0u);
}

TEST_F(PlacementPolicyTest, TheHostLeavesTheProcessorOfTheOnlyGroupThatCalls) {
  AddTwo();
  Call(0, PlacementPolicy::kCallsOfOne);
  EXPECT_EQ(Decide(), 2u);
  own_ = 2, other_ = 1;
  Call(0, PlacementPolicy::kCallsOfOne);
  EXPECT_EQ(Decide(), 2u) << "it stays";
  other_ = 0;  // the host may not run on two processors
  Call(1, PlacementPolicy::kCallsOfOne);
  EXPECT_EQ(Decide(), 0u);
  other_ = 1;
  Call(0, PlacementPolicy::kCallsOfOne);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 0u) << "for other hosts, too";
}

TEST_F(PlacementPolicyTest, ANewGroupCountsFromItsSecondSample) {
  Add(1, 1);
  Call(0, kMany);
  EXPECT_EQ(Decide(), 0u);
  Call(0, kMany);
  EXPECT_EQ(Decide(), 2u);
}

TEST_F(PlacementPolicyTest, FewBytesMeanThatTheHostHasNoPeers) {
  Decide(PlacementPolicy::kWorksForPeers);
  EXPECT_TRUE(policy_.works_for_peers());
  Decide(PlacementPolicy::kWorksForPeers - 1);
  EXPECT_FALSE(policy_.works_for_peers());
}

TEST_F(PlacementPolicyTest, AHostWithPeersGoesToItsProgramThatPolls) {
  Add(1, 2);
  Decide();
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 2u);
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers - 1), 0u) << "no peer";
  Poll(0, kFew);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 0u) << "hardly polls";
}

// Both hosts then are beside the other's program.
TEST_F(PlacementPolicyTest, InAConversationAHostGoesToItsPeersProgramThatPolls) {
  Add(1, 2);
  Decide();
  peers_poller_ = 1;
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kConversation - 1), 1u);
  EXPECT_FALSE(policy_.exceeds_conversation());
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kConversation), 2u) << "many messages";
  EXPECT_TRUE(policy_.exceeds_conversation());
  const uint64_t most = 1000 * PlacementPolicy::kConversationRatio;
  for (const bool sends : {false, true}) {
    for (const uint64_t more : {most, most + 1}) {
      sent_ += sends ? more : 1000;
      received_ += sends ? 1000 : more;
      Poll(0, kMany);
      EXPECT_EQ(Decide(), more == most ? 1u : 2u) << "one direction only: " << sends;
    }
  }
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers - 1), 0u) << "no peer";
  Poll(0, kFew);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 0u) << "the own program hardly polls";
  peers_poller_ = 2;
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 2u) << "the kernel moves a program away";
}

TEST_F(PlacementPolicyTest, TheHostShowsItsPeersWhereItsOneProgramPolls) {
  AddTwo();
  Poll(1, kMany);
  Decide(PlacementPolicy::kWorksForPeers);
  EXPECT_EQ(policy_.poller(), 2u);
  Poll(1, kMany);
  Decide(PlacementPolicy::kWorksForPeers - 1);
  EXPECT_EQ(policy_.poller(), 0u) << "no peer";
  Poll(0, kMany);
  Poll(1, kMany);
  Decide(PlacementPolicy::kWorksForPeers);
  EXPECT_EQ(policy_.poller(), 0u) << "several programs";
}

TEST_F(PlacementPolicyTest, AHostWithPeersGoesToItsProgramThatCopies) {
  Add(1, 2);
  Decide();
  peers_poller_ = 1;
  Copy(0, PlacementPolicy::kCopies);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 2u);
  Copy(0, PlacementPolicy::kCopies);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers - 1), 0u) << "no peer";
  Copy(0, PlacementPolicy::kCopies);
  EXPECT_EQ(Decide(PlacementPolicy::kStream), 0u) << "a stream";
  Add(2, 1);
  Decide();
  Copy(0, PlacementPolicy::kCopies);
  Copy(1, PlacementPolicy::kCopies);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 0u) << "several programs copy";
}

TEST_F(PlacementPolicyTest, TheKernelDecidesForSeveralProgramsThatPoll) {
  AddTwo();
  Poll(0, kMany);
  Poll(1, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kWorksForPeers), 0u);
}

TEST_F(PlacementPolicyTest, TheHostLeavesAProgramThatCopies) {
  AddTwo();
  Copy(0, PlacementPolicy::kCopies);
  Poll(0, kMany);
  Poll(1, kMany);
  EXPECT_EQ(Decide(), 2u);
  Copy(0, PlacementPolicy::kCopies - 1);
  Poll(0, kMany);
  Poll(1, kMany);
  EXPECT_EQ(Decide(), 0u) << "hardly copies";
  own_ = 2;
  Copy(0, PlacementPolicy::kCopies);
  Poll(1, kMany);
  EXPECT_EQ(Decide(), 0u) << "has left already";
  own_ = 1;
  Copy(0, PlacementPolicy::kCopies);
  Poll(1, kFew);
  EXPECT_EQ(Decide(), 0u) << "no program that only polls";
}

TEST_F(PlacementPolicyTest, TheKernelDecidesDuringAStream) {
  Add(1, 2);
  Decide();
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kStream - 1), 2u);
  Poll(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kStream), 0u);
  Call(0, kMany);
  EXPECT_EQ(Decide(PlacementPolicy::kStream), 0u);
}

// Counts of a longer time than an interval say nothing about the present.
TEST_F(PlacementPolicyTest, TheKernelDecidesAfterTheHostHasSlept) {
  Add(1, 1);
  Decide();
  Call(0, kMany);
  EXPECT_EQ(Decide(0, 2 * PlacementPolicy::kInterval), 0u);
  Call(0, kMany);
  EXPECT_EQ(Decide(0, 2 * PlacementPolicy::kInterval - Duration(1)), 2u);
}

// The counts are a program's, so they may wrap, go back, or name any processor.
TEST_F(PlacementPolicyTest, CountsWrap) {
  Add(1, 1);
  groups_[0].calls = UINT32_MAX;
  Decide();
  Call(0, kMany);
  EXPECT_EQ(Decide(), 2u);
}

}  // namespace
}  // namespace rdmaemu::runtime
