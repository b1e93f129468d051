#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "emulator/runtime/host_setup.h"
#include "tools/cli/sweep/outcome.h"
#include "tools/cli/sweep/shrink.h"

namespace rdmaemu::cli {
namespace {

const std::vector<Site> kSites = {
    {"call.reg_mr", 1}, {"call.post_send", 10}, {"event.established", 2}, {"call.unknown", 4}};

std::vector<std::string> Ids(const std::vector<SweepCase>& plan) {
  std::vector<std::string> ids;
  for (const SweepCase& one : plan) ids.push_back(one.Id());
  return ids;
}

TEST(SweepPlan, ALoopGetsItsFirstMiddleAndLastMoment) {
  EXPECT_EQ(ChosenMoments(1, 3), (std::vector<uint64_t>{1}));
  EXPECT_EQ(ChosenMoments(2, 3), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(ChosenMoments(3, 3), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(ChosenMoments(1000, 3), (std::vector<uint64_t>{1, 500, 1000}));
  EXPECT_EQ(ChosenMoments(1000, 1), (std::vector<uint64_t>{1}));
  EXPECT_EQ(ChosenMoments(4, 0), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST(SweepPlan, FirstMomentsComeFirst) {
  const std::vector<std::string> ids = Ids(MakePlan(kSites, {}));
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(ids[0], "call.reg_mr#1: errno=ENOMEM");
  const auto last = std::ranges::find(ids, "call.post_send#10: errno=ENOMEM");
  const auto middle = std::ranges::find(ids, "call.post_send#5: errno=ENOMEM");
  EXPECT_LT(std::ranges::find(ids, "event.established#1: delay"), last);
  EXPECT_LT(last, middle);
  EXPECT_NE(middle, ids.end());
}

TEST(SweepPlan, PatternsChoose) {
  PlanOptions options;
  options.points = {"event.*"};
  options.faults = {"delay", "event=*"};
  for (const std::string& id : Ids(MakePlan(kSites, options))) {
    EXPECT_TRUE(id.starts_with("event.")) << id;
    EXPECT_TRUE(id.ends_with("delay") || id.find("event=") != id.npos) << id;
  }
  options.points = {"nowhere"};
  EXPECT_TRUE(MakePlan(kSites, options).empty());
}

TEST(SweepPlan, ShardsTogetherAreTheWholePlan) {
  const std::vector<std::string> whole = Ids(MakePlan(kSites, {}));
  std::multiset<std::string> joined;
  for (uint64_t i = 0; i < 3; i++) {
    PlanOptions options;
    options.shard = i;
    options.shards = 3;
    for (const std::string& id : Ids(MakePlan(kSites, options))) joined.insert(id);
  }
  EXPECT_EQ(joined, (std::multiset<std::string>(whole.begin(), whole.end())));
}

TEST(SweepCase, IsReadFromItsId) {
  for (const SweepCase& one : MakePlan(kSites, {})) {
    const auto read = ParseCase(one.Id());
    ASSERT_TRUE(read) << one.Id();
    EXPECT_EQ(read->Id(), one.Id());
    EXPECT_EQ(read->Rules(), one.Rules());
  }
  const char* const two = "call.reg_mr#2: errno=ENOMEM + wc.send#1: delay";
  ASSERT_TRUE(ParseCase(two));
  EXPECT_EQ(ParseCase(two)->faults.size(), 2u);
  for (const char* wrong : {"", "call.reg_mr", "call.reg_mr#0: errno=ENOMEM", "call.reg_mr#x: drop",
                            "call.reg_mr#1: errno=EDOM", "call.reg_mr#1: errno=ENOMEM + "}) {
    EXPECT_FALSE(ParseCase(wrong)) << wrong;
  }
}

// A host takes each fault of the table at a place that its pattern matches.
TEST(SweepFaults, AreRulesThatAHostAccepts) {
  const std::set<std::string> places_of_patterns = {
      "call.create_cq",       "call.create_qp",  "call.alloc_pd",
      "call.reg_mr",          "call.join_mcast", "call.query_qp",
      "call.modify_qp",       "call.post_recv",  "call.dealloc_pd",
      "event.device_removal", "cm.dreq",         "wc.recv",
      "wc.local_inv",         "async.qp_fatal",  "packet.rc_send_only"};
  std::set<std::string> places = places_of_patterns;
  for (const std::string_view place : fault::PlacesOfLikelyFaults()) {
    if (place.find('*') == place.npos) places.emplace(place);
  }
  const std::string path = testing::TempDir() + "/rules.toml";
  for (const std::string& place : places) {
    for (const fault::LikelyFault& fault : fault::LikelyFaultsAt(place)) {
      const SweepCase one{{{{place, 2}, fault}}};
      std::ofstream(path) << WitnessRules() << one.Rules();
      const auto rules = runtime::ReadScenario(path);
      EXPECT_TRUE(rules) << one.Id() << ": " << (rules ? "" : rules.error());
    }
  }
}

TEST(SweepShrink, LeavesTheFewestItems) {
  const auto needs = [](std::vector<int> wanted) {
    return [wanted](const std::vector<int>& items) {
      return std::ranges::all_of(
          wanted, [&](int each) { return std::ranges::find(items, each) != items.end(); });
    };
  };
  EXPECT_EQ(Shrink<int>({1, 2, 3, 4, 5}, needs({2, 5})), (std::vector<int>{2, 5}));
  EXPECT_EQ(Shrink<int>({1, 2, 3}, needs({3})), (std::vector<int>{3}));
  EXPECT_EQ(Shrink<int>({1, 2, 3}, needs({1, 2, 3})), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(Shrink<int>({1}, needs({1})), (std::vector<int>{1}));
}

// ---- verdicts

struct Scene {
  SweepCase one{{{{"call.reg_mr", 1}, {"errno=ENOMEM", "errno = \"ENOMEM\""}}}};
  DryRun dry;
  RunResult run;
  JudgeOptions options;

  Scene() {
    dry.counts_repeat = true;
    dry.result.end = run.end = RunResult::End::kStatus;
    dry.result.host.count = run.host.count = {{"wc.send", 5}, {"event.established", 1}};
    run.host.fired = {"sweep.case.1"};
  }
  Verdict verdict() const { return Judge(one, run, dry, options).verdict; }
};

TEST(SweepVerdict, SurvivedAndFailed) {
  Scene scene;
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived);
  scene.run.status = 3;
  EXPECT_EQ(scene.verdict(), Verdict::kFailed);
  scene.options.expected = {3};
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived);
  scene.run.host.count["wc.send"] = 4;
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived) << "the status may report the fault";
  scene.run.host.fired.clear();
  EXPECT_EQ(scene.verdict(), Verdict::kNotReached);
}

TEST(SweepVerdict, SuccessWithLessDoneIsAWrongResult) {
  Scene scene;
  scene.run.host.count["wc.send"] = 4;
  EXPECT_EQ(scene.verdict(), Verdict::kWrongResult);
  scene.run.status = 1;
  EXPECT_EQ(scene.verdict(), Verdict::kFailed);
  scene.run.status = 0;
  scene.dry.counts_repeat = false;
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived) << "the test does not always do the same";
}

TEST(SweepVerdict, AFailedCompletionIsNotDone) {
  Scene scene;
  scene.run.host.failed_completions = 1;
  EXPECT_EQ(scene.verdict(), Verdict::kWrongResult);
  scene.run.host.count["wc.send"] = 6;
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived) << "the test sent again";
}

TEST(SweepVerdict, CrashHangSanitizerAndChecks) {
  Scene scene;
  scene.run.findings = {{"RDMAEMU-EXIT-007", "memory regions are left at exit", "a+1", "text"}};
  EXPECT_EQ(scene.verdict(), Verdict::kLeaked);
  scene.dry.result.findings = scene.run.findings;
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived) << "it leaks without the fault, too";
  scene.run.findings.push_back({"RDMAEMU-CM-027", "an id is used after rdma_destroy_id", "", ""});
  EXPECT_EQ(scene.verdict(), Verdict::kMisused);
  scene.run.output = "x\n==1==ERROR: AddressSanitizer: heap-use-after-free\ny";
  EXPECT_EQ(scene.verdict(), Verdict::kSanitizer);
  EXPECT_EQ(Judge(scene.one, scene.run, scene.dry, {}).reason,
            "==1==ERROR: AddressSanitizer: heap-use-after-free");
  scene.run.end = RunResult::End::kTimeLimit;
  EXPECT_EQ(scene.verdict(), Verdict::kHung);
  scene.run = Scene().run;
  scene.run.end = RunResult::End::kSignal;
  scene.run.status = 11;
  EXPECT_EQ(scene.verdict(), Verdict::kCrashed);
  scene.options.accepted = {Verdict::kCrashed};
  EXPECT_EQ(scene.verdict(), Verdict::kFailed);
  scene.run.status = 15;
  EXPECT_EQ(scene.verdict(), Verdict::kFailed) << "a test may end itself by SIGTERM";
}

// ---- the baseline and the results

std::string FileOf(const std::string& text) {
  const std::string path = testing::TempDir() + "/baseline.toml";
  std::ofstream(path) << text;
  return path;
}

TEST(SweepBaseline, AKnownFindingIsNotNew) {
  auto known = ReadBaseline(
      FileOf("[[known]]\ncase = \"call.reg_mr#*\"\nverdict = \"leaked\"\nreason = \"issue 5\"\n"));
  ASSERT_TRUE(known);
  Outcome outcome;
  outcome.id = "call.reg_mr#2: errno=ENOMEM";
  outcome.verdict = Verdict::kCrashed;
  Compare(outcome, *known);
  EXPECT_TRUE(outcome.is_new_finding()) << "another verdict";
  EXPECT_FALSE((*known)[0].is_used);
  outcome.verdict = Verdict::kLeaked;
  Compare(outcome, *known);
  EXPECT_FALSE(outcome.is_new_finding());
  EXPECT_TRUE((*known)[0].is_used);
}

TEST(SweepBaseline, SaysWhatIsWrong) {
  EXPECT_FALSE(ReadBaseline("/nonexistent"));
  for (const char* text : {"[[known]]\ncase = \"x\"\n", "[[known]]\nreason = \"x\"\n", "known = 3",
                           "[[known]]\ncase = \"x\"\nreason = \"y\"\nverdict = \"z\"\n",
                           "[[known]]\ncase = \"x\"\nreason = \"y\"\nextra = \"z\"\n", "[["}) {
    EXPECT_FALSE(ReadBaseline(FileOf(text))) << text;
  }
}

TEST(SweepResults, AnOutcomeIsReadFromItsLine) {
  Outcome outcome;
  outcome.id = "call.reg_mr#2: errno=ENOMEM";
  outcome.verdict = Verdict::kLeaked;
  outcome.reason = "a \"quoted\" reason";
  outcome.report = "finding-001";
  outcome.details = {"one", "two"};
  const std::string path = testing::TempDir() + "/results.jsonl";
  const std::string head = HeadLine({"./test"}, "1", {});
  std::ofstream(path) << head << OutcomeLine(outcome) << "{\"case\": \"cut";
  std::string read_head;
  const std::vector<Outcome> read = ReadOutcomes(path, read_head);
  EXPECT_EQ(read_head, head);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(OutcomeLine(read[0]), OutcomeLine(outcome));
}

TEST(SweepResults, PagesEscapeWhatTheyShow) {
  SweepResults results;
  results.test = {"./a", "<b>&\"c\""};
  Outcome outcome;
  outcome.id = "wc.send#1: delay";
  outcome.verdict = Verdict::kHung;
  outcome.details = {"<script>"};
  results.outcomes = {outcome};
  for (const std::string& page : {ToHtml(results), ToJunit(results)}) {
    EXPECT_EQ(page.find("<b>"), page.npos);
    EXPECT_EQ(page.find("<script>"), page.npos);
    EXPECT_NE(page.find("hung"), page.npos);
  }
}

}  // namespace
}  // namespace rdmaemu::cli
