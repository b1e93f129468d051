#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "emulator/abi/calls.h"
#include "emulator/runtime/host_setup.h"
#include "tools/cli/sweep/outcome.h"
#include "tools/cli/sweep/shrink.h"
#include "tools/cli/system_host/decisions.h"

namespace rdmaemu::cli {
namespace {

std::vector<uint64_t> Numbers(uint64_t first, uint64_t last) {
  std::vector<uint64_t> numbers;
  for (uint64_t nth = first; nth <= last; nth++) numbers.push_back(nth);
  return numbers;
}

const std::vector<Site> kSites = {{"call.reg_mr", {}, Numbers(1, 1)},
                                  {"call.post_send", {}, Numbers(1, 10)},
                                  {"event.established", {}, Numbers(1, 2)},
                                  {"call.unknown", {}, Numbers(1, 4)}};

std::vector<std::string> Ids(const std::vector<SweepCase>& plan) {
  std::vector<std::string> ids;
  for (const SweepCase& one : plan) ids.push_back(one.Id());
  return ids;
}

TEST(SweepPlan, ALoopGetsItsFirstMiddleAndLastMoment) {
  using Moments = std::vector<uint64_t>;
  EXPECT_EQ(ChosenMoments(Numbers(1, 1), 3), (Moments{1}));
  EXPECT_EQ(ChosenMoments(Numbers(1, 2), 3), (Moments{1, 2}));
  EXPECT_EQ(ChosenMoments(Numbers(1, 3), 3), (Moments{1, 2, 3}));
  EXPECT_EQ(ChosenMoments(Numbers(1, 1000), 3), (Moments{1, 500, 1000}));
  EXPECT_EQ(ChosenMoments(Numbers(1, 1000), 1), (Moments{1}));
  EXPECT_EQ(ChosenMoments(Numbers(1, 4), 0), (Moments{1, 2, 3, 4}));
  EXPECT_EQ(ChosenMoments({7, 9, 20, 21, 40}, 3), (Moments{7, 20, 40}));
}

// ---- call sites

class SweepCallSites : public testing::Test {
 protected:
  SweepCallSites() : directory_(testing::TempDir() + "/call-sites") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void Write(const char* process, const std::string& text) {
    std::ofstream(directory_ + "/" + process) << text;
  }
  // The host's records of posts by these processes.
  HostRecords RecordsOf(const std::vector<int>& processes) {
    const std::string path = testing::TempDir() + "/host.jsonl";
    std::ofstream file(path);
    for (const int process : processes) {
      file << "{\"kind\":\"fault\",\"object\":\"sweep.witness.1\",\"process\":" << process
           << ",\"at\":\"call.post_send\"}\n";
    }
    file.close();
    return *ReadHostRecords(path, CallSites::Read(directory_));
  }
  static std::string Call(int process, int nth, int site) {
    return "C\t" + std::to_string(process) + "\t" +
           std::to_string(static_cast<int>(CallOp::kPostSend)) + "\t" + std::to_string(nth) + "\t" +
           std::to_string(site) + "\n";
  }

  const std::string directory_;
};

TEST_F(SweepCallSites, EachStackOfAPlaceIsASite) {
  Write("10", "S\t1\t/p/a+0x10 f\t/p/a+0x20 main\nS\t2\t/p/a+0x18 f\t/p/a+0x20 main\n" +
                  Call(1, 1, 1) + Call(1, 2, 2) + Call(1, 3, 1) + Call(1, 4, 1));
  const std::vector<Site> sites = SitesOf(RecordsOf({1, 1, 1, 1}));
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].stack, (ProgramStack{"/p/a+0x10 f", "/p/a+0x20 main"}));
  EXPECT_EQ(sites[0].moments, (std::vector<uint64_t>{1, 3, 4}));
  EXPECT_EQ(sites[1].moments, (std::vector<uint64_t>{2}));
}

TEST_F(SweepCallSites, TheNumbersOfTwoProcessesAreThoseOfTheHost) {
  Write("10", "S\t1\t/p/a+0x10\n" + Call(1, 1, 1) + Call(1, 2, 1));
  Write("11", "S\t1\t/p/b+0x10\n" + Call(2, 1, 1));
  const std::vector<Site> sites = SitesOf(RecordsOf({1, 2, 1}));
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].moments, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(sites[1].moments, (std::vector<uint64_t>{2}));
}

TEST_F(SweepCallSites, CallsWithoutAStackAreOneSiteOfTheirPlace) {
  Write("10", "S\t1\t/p/a+0x10\n" + Call(1, 1, 1) + "L\n");
  const HostRecords records = RecordsOf({1, 1, 1});
  EXPECT_TRUE(records.stacks_are_cut);
  const std::vector<Site> sites = SitesOf(records);
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_TRUE(sites[1].stack.empty());
  EXPECT_EQ(sites[1].moments, (std::vector<uint64_t>{2, 3}));
}

TEST_F(SweepCallSites, AnotherProgramOfAProcessHasItsOwnSites) {
  Write("10", "S\t1\t/p/a+0x10\n" + Call(1, 1, 1) + "S\t1\t/p/b+0x10\n" + Call(2, 1, 1));
  const std::vector<Site> sites = SitesOf(RecordsOf({1, 2}));
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[1].stack, (ProgramStack{"/p/b+0x10"}));
}

TEST_F(SweepCallSites, MomentsWithAnotherStackInEachRunAreOneSiteOfTheirPlace) {
  const std::string sites = "S\t1\t/p/a+0x10\nS\t2\t/p/a+0x18\n";
  Write("10", sites + Call(1, 1, 1) + Call(1, 2, 1) + Call(1, 3, 2) + Call(1, 4, 2));
  const HostRecords earlier = RecordsOf({1, 1, 1, 1});
  Write("10", sites + Call(1, 1, 1) + Call(1, 2, 2) + Call(1, 3, 1) + Call(1, 4, 2));
  HostRecords later = RecordsOf({1, 1, 1, 1});
  LeaveRepeatedStacks(earlier, later);
  const std::vector<Site> found = SitesOf(later);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].moments, (std::vector<uint64_t>{1}));
  EXPECT_TRUE(found[1].stack.empty());
  EXPECT_EQ(found[1].moments, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(found[2].moments, (std::vector<uint64_t>{4}));
}

TEST(SweepFrames, HaveATextWithoutDebugInformation) {
  const auto texts = DescribeFrames({"/none/a+0x10", "/none/a+0x20 _ZN1a4SendEv", "?"});
  EXPECT_EQ(texts.at("/none/a+0x10").front(), "a+0x10");
  EXPECT_EQ(texts.at("/none/a+0x20 _ZN1a4SendEv").front(), "a+0x20 (a::Send())");
  EXPECT_EQ(texts.at("?").front(), "?");
}

// ---- the plan

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

TEST(SweepPlan, OnlyATestOfSeveralProgramsGetsPeerCrashes) {
  PlanOptions options;
  options.faults = {"peer crash"};
  EXPECT_TRUE(MakePlan(kSites, options).empty());
  options.has_peers = true;
  const std::vector<SweepCase> plan = MakePlan(kSites, options);
  EXPECT_EQ(Ids(plan), (std::vector<std::string>{
                           "call.post_send#1: peer crash", "event.established#1: peer crash",
                           "call.post_send#10: peer crash", "event.established#2: peer crash",
                           "call.post_send#5: peer crash"}));
  for (const SweepCase& one : plan) {
    EXPECT_TRUE(one.EndsProgram());
    ASSERT_TRUE(ParseCase(one.Id()));
    EXPECT_EQ(ParseCase(one.Id())->Rules(), one.Rules());
  }
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
    const std::vector<fault::LikelyFault> faults = FaultsAt(place, true);
    for (const fault::LikelyFault& fault : faults) {
      const SweepCase one{{{{place, 2}, fault}}};
      std::ofstream(path) << WitnessRules() << one.Rules();
      const auto rules = runtime::ReadScenario(path);
      EXPECT_TRUE(rules) << one.Id() << ": " << (rules ? "" : rules.error());
    }
  }
}

TEST(SweepSystem, TakesTheFaultsThatTheLayerHas) {
  PlanOptions options;
  options.is_on_system = true;
  const std::vector<std::string> ids = Ids(MakePlan(kSites, options));
  EXPECT_NE(std::ranges::find(ids, "call.post_send#1: errno=ENOMEM"), ids.end());
  EXPECT_NE(std::ranges::find(ids, "event.established#1: delay"), ids.end());
  for (const std::string& id : ids) EXPECT_EQ(id.find("device removed"), id.npos) << id;
  const size_t omitted = MakePlan(kSites, {}).size() - ids.size();
  EXPECT_GT(omitted, 0u);
  const std::string line = OmittedOnSystem(kSites, options);
  EXPECT_TRUE(line.starts_with(std::to_string(omitted) + " cases need the emulator (")) << line;
  EXPECT_NE(line.find("CM messages"), line.npos);
  options.points = {"call.reg_mr"};
  options.faults = {"errno=*"};
  EXPECT_EQ(OmittedOnSystem(kSites, options), "");
  EXPECT_EQ(OmittedOnSystem(kSites, {}), "");
}

TEST(SweepSystem, WitnessesAreRulesOfTheBackend) {
  const std::string path = testing::TempDir() + "/system.toml";
  std::ofstream(path) << WitnessRules(true);
  const auto rules = runtime::ReadScenario(path);
  ASSERT_TRUE(rules) << rules.error();
  for (const fault::Rule& rule : *rules) {
    EXPECT_FALSE(WhyNotOnSystem(rule)) << *WhyNotOnSystem(rule);
    EXPECT_FALSE(rule.IsAt("poll_cq") && rule.point == fault::Point::kCall) << rule.name;
  }
}

TEST(SweepTwoHosts, ThePlaceNamesTheHost) {
  EXPECT_EQ(HostOfPlace("client/call.reg_mr"), "client");
  EXPECT_EQ(WithoutHost("client/call.reg_mr"), "call.reg_mr");
  EXPECT_EQ(HostOfPlace("call.reg_mr"), "");
  EXPECT_EQ(WithoutHost("call.reg_mr"), "call.reg_mr");
  const char* const id = "client/call.reg_mr#2: errno=ENOMEM + server/wc.send#1: delay";
  const auto read = ParseCase(id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->Id(), id);
  const std::string path = testing::TempDir() + "/hosts.toml";
  std::ofstream(path) << read->Rules();
  const auto rules = runtime::ReadScenario(path);
  ASSERT_TRUE(rules) << rules.error();
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ(rules->at(0).match.host, "client");
  EXPECT_EQ(rules->at(1).match.host, "server");
  const std::vector<Site> sites = {{"client/call.reg_mr", {}, {1}},
                                   {"server/call.reg_mr", {}, {1}}};
  PlanOptions options;
  options.points = {"call.*"};
  EXPECT_EQ(MakePlan(sites, options).size(), MakePlan(sites, {}).size());
  options.points = {"server/*"};
  EXPECT_EQ(MakePlan(sites, options).size(), MakePlan(sites, {}).size() / 2);
}

TEST(SweepTwoHosts, MomentsAreMergedByTime) {
  HostRecords server, client;
  server.moments = {{"call.listen", 1}, {"call.accept", 1}, {"wc.recv", 1}};
  server.times = {1, 3, 5};
  server.count = {{"call.listen", 1}, {"call.accept", 1}, {"wc.recv", 1}};
  server.fired = {"sweep.case.1"};
  server.moments_before_fault = 2;
  client.moments = {{"call.connect", 1}, {"wc.send", 1}};
  client.times = {2, 4};
  client.count = {{"call.connect", 1}, {"wc.send", 1}};
  client.failed_completions = 1;
  client.stacks[{"call.connect", 1}] = {"client+0x10"};
  const HostRecords merged = Merge({{"server", server}, {"client", client}});
  std::string order;
  for (const Moment& moment : merged.moments) order += moment.ToString() + " ";
  EXPECT_EQ(order,
            "server/call.listen#1 client/call.connect#1 server/call.accept#1 client/wc.send#1 "
            "server/wc.recv#1 ");
  EXPECT_EQ(merged.moments_before_fault, 3u);
  EXPECT_EQ(merged.count.size(), 5u);
  EXPECT_EQ(merged.failed_completions, 1u);
  EXPECT_EQ(merged.fired.size(), 1u);
  EXPECT_EQ(merged.stacks.at({"client/call.connect", 1}), (ProgramStack{"client+0x10"}));
  // The fault is after the host's last moment.
  server.moments_before_fault = 3;
  EXPECT_EQ(Merge({{"server", server}, {"client", client}}).moments_before_fault, 5u);
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

TEST(SweepVerdict, AProgramThatARuleEndedIsNoCrashAndNoWrongResult) {
  Scene scene;
  scene.one = {{{{"call.post_send", 1}, {"peer crash", "end_program = \"peer\""}}}};
  scene.run.host.count = {};
  EXPECT_EQ(scene.verdict(), Verdict::kSurvived);
  scene.run.end = RunResult::End::kSignal;
  scene.run.status = 9;
  EXPECT_EQ(scene.verdict(), Verdict::kFailed);
  scene.run.status = 11;
  EXPECT_EQ(scene.verdict(), Verdict::kCrashed);
}

TEST(SweepVerdict, TheStatusOfARuleIsNoMisuse) {
  Scene scene;
  scene.run.findings = {{"RDMAEMU-MR-009", "", "", ""}};
  EXPECT_EQ(scene.verdict(), Verdict::kMisused);
  scene.one = {{{{"wc.rdma_read", 1}, {"status=REM_ACCESS_ERR", "status = \"rem_access_err\""}}}};
  EXPECT_NE(scene.verdict(), Verdict::kMisused);
}

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

TEST(SweepResults, CutStacksAreSaid) {
  SweepResults results;
  results.sites = {{"call.reg_mr", {"f (a.c:1)", "main (a.c:2)"}, 2, {1, 2}}};
  std::ostringstream whole, cut;
  PrintSites(results, whole);
  EXPECT_EQ(whole.str(), "call.reg_mr: 2 moments, faults at #1 #2\n  f (a.c:1) < main (a.c:2)\n");
  results.stacks_are_cut = true;
  PrintText(results, "/r", cut);
  EXPECT_NE(cut.str().find("than are recorded"), std::string::npos) << cut.str();
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
