#include "emulator/fault/rules.h"

#include <gtest/gtest.h>

namespace rdmaemu::fault {
namespace {

using std::chrono::milliseconds;

Rule DropRule(std::string name, Frequency often = {}) {
  return {std::move(name), Point::kCmMessage, {}, often, Drop{}};
}
Moment MessageMoment(std::string_view subject = "req", Time now = {}) {
  Moment moment{};
  moment.point = Point::kCmMessage;
  moment.now = now;
  moment.subject = subject;
  return moment;
}

// Returns which of the first twelve moments a rule fires at.
std::vector<int> Firings(const Frequency& often, uint64_t seed = 1) {
  Rules rules(seed);
  EXPECT_TRUE(rules.Add(DropRule("r", often)));
  std::vector<int> fired;
  for (int i = 1; i <= 12; i++) {
    if (rules.Decide(MessageMoment()) != nullptr) fired.push_back(i);
  }
  return fired;
}

TEST(Rules, FrequenciesCountTheMomentsThatMatch) {
  EXPECT_EQ(Firings({.nth = 3}), (std::vector<int>{3}));
  EXPECT_EQ(Firings({.nth = 8, .onward = true}), (std::vector<int>{8, 9, 10, 11, 12}));
  EXPECT_EQ(Firings({.every = 5}), (std::vector<int>{5, 10}));
  EXPECT_EQ(Firings({.first = 2}), (std::vector<int>{1, 2}));
  EXPECT_EQ(Firings({.every = 2, .times = 3}), (std::vector<int>{2, 4, 6}));
}

TEST(Rules, TheFirstThatFiresDecidesAndThoseBehindStillCount) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add(DropRule("a", {.nth = 2})));
  ASSERT_TRUE(rules.Add(DropRule("b")));
  EXPECT_EQ(rules.Decide(MessageMoment())->name, "b");
  EXPECT_EQ(rules.Decide(MessageMoment())->name, "a");
  EXPECT_EQ(rules.all()[1].matched, 2u);
  EXPECT_EQ(rules.all()[1].fired, 1u);
}

TEST(Rules, AWitnessCountsAndLetsThoseBehindItDecide) {
  Rules rules(1);
  Rule witness = DropRule("witness", {.nth = 2});
  witness.action = Pass{};
  ASSERT_TRUE(rules.Add(witness));
  Rule drops = DropRule("drops");
  drops.match.after = "witness";
  ASSERT_TRUE(rules.Add(drops));
  EXPECT_EQ(rules.Decide(MessageMoment()), nullptr);
  EXPECT_TRUE(rules.witnesses().empty());
  EXPECT_EQ(rules.Decide(MessageMoment())->name, "drops");
  ASSERT_EQ(rules.witnesses().size(), 1u);
  EXPECT_EQ(rules.witnesses()[0]->name, "witness");
  EXPECT_EQ(rules.Find("witness")->matched, 2u);
  EXPECT_EQ(rules.Find("witness")->fired, 1u);
}

TEST(Rules, AFieldThatAPointDoesNotKnowMatchesNoRuleThatAsksForIt) {
  Rules rules(1);
  Rule rule = DropRule("r");
  rule.match.service_port = 7471;
  ASSERT_TRUE(rules.Add(rule));
  Moment moment = MessageMoment();
  EXPECT_EQ(rules.Decide(moment), nullptr);
  moment.service_port = 7472;
  EXPECT_EQ(rules.Decide(moment), nullptr);
  moment.service_port = 7471;
  EXPECT_NE(rules.Decide(moment), nullptr);
}

TEST(Rules, EachFieldOfAMatchIsLookedAt) {
  Moment moment = MessageMoment();
  moment.direction = Direction::kSend;
  moment.program = "rping";
  moment.local = NetAddress::Parse("127.0.0.1");
  moment.remote = NetAddress::Parse("127.0.0.2");
  const auto matches = [&](auto set) {
    Rules rules(1);
    Rule rule = DropRule("r");
    set(rule.match);
    EXPECT_TRUE(rules.Add(rule));
    return rules.Decide(moment) != nullptr;
  };
  EXPECT_TRUE(matches([](Match& m) { m.subjects = {"req"}; }));
  EXPECT_FALSE(matches([](Match& m) { m.subjects = {"rep"}; }));
  EXPECT_FALSE(matches([](Match& m) { m.direction = Direction::kReceive; }));
  EXPECT_FALSE(matches([](Match& m) { m.program = "ucmatose"; }));
  EXPECT_FALSE(matches([](Match& m) { m.local = NetPrefix::Parse("127.0.0.2"); }));
  EXPECT_FALSE(matches([](Match& m) { m.remote = NetPrefix::Parse("127.0.0.1"); }));
}

TEST(Rules, AWindowOfTimeCountsFromTheFirstMomentAndExcludesItsEnd) {
  Rules rules(1);
  Rule rule = DropRule("r");
  rule.match.from = milliseconds(10);
  rule.match.until = milliseconds(20);
  ASSERT_TRUE(rules.Add(rule));
  const Time began{milliseconds(1000)};
  EXPECT_EQ(rules.Decide(MessageMoment("req", began)), nullptr);
  EXPECT_NE(rules.Decide(MessageMoment("req", began + milliseconds(10))), nullptr);
  EXPECT_EQ(rules.Decide(MessageMoment("req", began + milliseconds(20))), nullptr);
}

TEST(Rules, AfterWaitsForAnotherRulesFirstFiring) {
  Rules rules(1);
  Rule later = DropRule("later");
  later.match.after = "first";
  ASSERT_TRUE(rules.Add(later));
  Rule first = DropRule("first", {.times = 1});
  first.match.subjects = {"rep"};
  ASSERT_TRUE(rules.Add(first));
  EXPECT_EQ(rules.Decide(MessageMoment("req")), nullptr);
  EXPECT_EQ(rules.Decide(MessageMoment("rep"))->name, "first");
  EXPECT_EQ(rules.Decide(MessageMoment("req"))->name, "later");
}

TEST(Rules, ASeedRepeatsDrawsAndAnotherSeedDrawsOthers) {
  const Frequency half{.probability = 0.5};
  EXPECT_EQ(Firings(half, 7), Firings(half, 7));
  bool differs = false;
  for (uint64_t seed = 8; seed < 16; seed++) differs |= Firings(half, seed) != Firings(half, 7);
  EXPECT_TRUE(differs);
}

// Returns which of 64 moments of one flow a rule fires at, with another rule and another flow
// active.
uint64_t FiringsBeside(bool another_rule, bool another_flow) {
  Rules rules(7);
  if (another_rule) {
    Rule other = DropRule("other", {.probability = 0.5});
    other.match.subjects = {"rep"};
    EXPECT_TRUE(rules.Add(other));
  }
  EXPECT_TRUE(rules.Add(DropRule("r", {.probability = 0.5})));
  uint64_t fired = 0;
  for (int i = 0; i < 64; i++) {
    Moment beside = MessageMoment(another_rule ? "rep" : "req");
    beside.service_port = 99;
    if (another_rule || another_flow) rules.Decide(beside);
    Moment moment = MessageMoment();
    moment.service_port = 17;
    fired |= uint64_t{rules.Decide(moment) != nullptr} << i;
  }
  return fired;
}

TEST(Rules, OneRulesAndOneFlowsDrawsDoNotShiftAnothers) {
  const uint64_t alone = FiringsBeside(false, false);
  EXPECT_EQ(FiringsBeside(false, true), alone);
  EXPECT_EQ(FiringsBeside(true, false), alone);
}

TEST(Rules, ProbabilityIsMetOnAverage) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add(DropRule("r", {.probability = 0.25})));
  int fired = 0;
  for (int i = 0; i < 4000; i++) fired += rules.Decide(MessageMoment()) != nullptr;
  EXPECT_NEAR(fired, 1000, 120);
}

TEST(Rules, FlowsBeyondTheLimitShareAGenerator) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add(DropRule("r", {.probability = 0.5})));
  for (uint32_t port = 0; port < Rules::kMaxFlowsPerRule + 100; port++) {
    Moment moment = MessageMoment();
    moment.service_port = static_cast<uint16_t>(port);
    rules.Decide(moment);
  }
  EXPECT_EQ(rules.all()[0].matched, Rules::kMaxFlowsPerRule + 100);
}

TEST(Rules, NamesAreUniqueRemovedRulesAreGoneAndTheListIsBounded) {
  Rules rules(1);
  ASSERT_TRUE(rules.Add(DropRule("r")));
  EXPECT_EQ(rules.Add(DropRule("r")).error().code, EEXIST);
  EXPECT_TRUE(rules.Watches(Point::kCmMessage));
  EXPECT_FALSE(rules.Watches(Point::kCall));
  EXPECT_TRUE(rules.Remove("r"));
  EXPECT_EQ(rules.Remove("r").error().code, ENOENT);
  EXPECT_FALSE(rules.Watches(Point::kCmMessage));
  for (size_t i = 0; i < Rules::kMaxRules; i++) {
    ASSERT_TRUE(rules.Add(DropRule(std::to_string(i))));
  }
  EXPECT_EQ(rules.Add(DropRule("one more")).error().code, ENOSPC);
  rules.Clear();
  EXPECT_EQ(rules.Decide(MessageMoment()), nullptr);
}

}  // namespace
}  // namespace rdmaemu::fault
