// The report of a failed test (RDMAEMU_REPORT), and rdmaemu_report.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "tests/embedded/pair.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

namespace fs = std::filesystem;

using rdmaemu::Embedding;
using rdmaemu::Fault;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> NamesIn(const fs::path& directory) {
  std::set<std::string> names;
  if (!fs::exists(directory)) return names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

unsigned ModeOf(const fs::path& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 ? file.st_mode & 0777 : 0;
}

// The directory of the reports. Its parent exists, and it does not exist yet.
class Reports {
 public:
  Reports() {
    std::string name = fs::temp_directory_path() / "rdmaemu-report-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) parent_ = name;
  }
  ~Reports() { fs::remove_all(parent_); }
  fs::path path() const { return parent_ / "of" / "ci"; }

  // Runs tests of this program that are disabled.
  Ran Run(const std::string& filter, const std::string& arguments = "") const {
    return RunSelf("--gtest_also_run_disabled_tests --gtest_filter='" + filter + "' " + arguments,
                   "RDMAEMU_REPORT=" + path().string());
  }

 private:
  fs::path parent_;
};

// Its tests fail on purpose, or run in a second process only.
class GuestTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  GuestTest() { AddHost("b", {{"rxe0", "rxe", "127.0.0.2"}}); }
};

TEST_F(GuestTest, DISABLED_FailsWithRules) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(rdmaemu_rule_add("name = \"holds\", at = \"cm.req\", hold = true", nullptr, 0), 0);
  ASSERT_EQ(pair.Connect(), 0);
  On("b", [] {
    const Fault refused("name = \"refused\", at = \"call.create_id\", errno = \"ENOMEM\"");
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    EXPECT_NE(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    rdma_destroy_event_channel(channel);
  });
  ADD_FAILURE() << "on purpose";
}

TEST_F(GuestTest, DISABLED_Passes) { ibv_free_device_list(ibv_get_device_list(nullptr)); }

TEST_F(GuestTest, DISABLED_FailsAfterADeath) {
  EXPECT_DEATH(
      {
        ADD_FAILURE() << "in the process that dies";
        std::abort();
      },
      "");
  ADD_FAILURE() << "on purpose";
}

TEST_F(GuestTest, DISABLED_FailsAfterItsHosts) {
  ADD_FAILURE() << "on purpose";
  EXPECT_EQ(rdmaemu_close(), 0);
}

class SetUpTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  void SetUp() override { FAIL() << "on purpose"; }
};

TEST_F(SetUpTest, DISABLED_Fails) {}

TEST(Reports, OfAFailedTestHaveWhatItsHostsDid) {
  const Reports reports;
  const Ran ran = reports.Run("*DISABLED_FailsWithRules");
  EXPECT_NE(ran.status, 0);
  const fs::path report = reports.path() / "GuestTest.DISABLED_FailsWithRules";
  EXPECT_THAT(ran.shown,
              HasSubstr("the report of this test is in " + report.string() + "; draw it: cd " +
                        report.string() + " && rdmaemu trace ladder"));
  EXPECT_THAT(NamesIn(report),
              UnorderedElementsAre("b.jsonl", "b.pcapng", "embedded.jsonl", "embedded.pcapng",
                                   "environment.txt", "rules.json", "timeline.txt"));
  EXPECT_EQ(ModeOf(report), 0700u);
  EXPECT_EQ(ModeOf(report / "embedded.pcapng"), 0600u);
  EXPECT_THAT(Read(report / "embedded.jsonl"), HasSubstr("\"kind\":\"call\""));
  EXPECT_THAT(Read(report / "b.jsonl"), HasSubstr("\"host\":\"b\""));
  EXPECT_THAT(Read(report / "timeline.txt"), HasSubstr("holds"));
  const std::string rules = Read(report / "rules.json");
  EXPECT_THAT(rules, HasSubstr("{\"host\":\"embedded\",\"name\":\"holds\",\"at\":\"cm.req\""));
  EXPECT_THAT(rules, HasSubstr("\"matched\":1,\"fired\":1,\"held\":1}"));
  EXPECT_THAT(rules, HasSubstr("{\"host\":\"b\",\"name\":\"refused\""));
  EXPECT_THAT(rules, HasSubstr("\"matched\":1,\"fired\":1,\"removed\":true}"));
  const std::string environment = Read(report / "environment.txt");
  EXPECT_THAT(environment, StartsWith("test GuestTest.DISABLED_FailsWithRules\ncommand /"));
  EXPECT_THAT(environment, HasSubstr("host embedded\nseed 1\nhost b\nseed "));
  EXPECT_THAT(environment, HasSubstr("\nRDMAEMU_REPORT=" + reports.path().string() + "\n"));
  EXPECT_THAT(environment, Not(HasSubstr("\nPATH=")));
}

TEST(Reports, ArePutBesideEarlierOnes) {
  const Reports reports;
  const std::string name = "SetUpTest.DISABLED_Fails";
  reports.Run("SetUpTest.*");
  const auto written = fs::last_write_time(reports.path() / name / "rules.json");
  const Ran ran = reports.Run("SetUpTest.*", "--gtest_repeat=2");
  EXPECT_THAT(NamesIn(reports.path()), UnorderedElementsAre(name, name + "-2", name + "-3"));
  EXPECT_THAT(ran.shown, HasSubstr((reports.path() / (name + "-3")).string()));
  EXPECT_EQ(fs::last_write_time(reports.path() / name / "rules.json"), written);
}

TEST(Reports, AreOfFailedTestsOnly) {
  const Reports reports;
  EXPECT_EQ(reports.Run("*DISABLED_Passes").status, 0);
  EXPECT_FALSE(fs::exists(reports.path()));
  const Ran off = RunSelf("--gtest_also_run_disabled_tests --gtest_filter=SetUpTest.*",
                          "RDMAEMU_REPORT= TEST_UNDECLARED_OUTPUTS_DIR=/");
  EXPECT_THAT(off.shown, Not(HasSubstr("the report of")));
}

TEST(Reports, AreOfTheProcessThatRunsTheTest) {
  for (const std::string style : {"fast", "threadsafe"}) {
    const Reports reports;
    reports.Run("*DISABLED_FailsAfterADeath", "--gtest_death_test_style=" + style);
    EXPECT_THAT(NamesIn(reports.path()), ElementsAre("GuestTest.DISABLED_FailsAfterADeath"));
  }
}

TEST(Reports, NeedTheHosts) {
  const Reports reports;
  EXPECT_THAT(reports.Run("*DISABLED_FailsAfterItsHosts").shown,
              HasSubstr("the test leaves no report: it has closed its hosts"));
  EXPECT_FALSE(fs::exists(reports.path()));
}

TEST(Reports, AreKeptByBazel) {
  const Reports reports;
  RunSelf("--gtest_also_run_disabled_tests --gtest_filter=SetUpTest.*",
          "TEST_UNDECLARED_OUTPUTS_DIR=" + reports.path().string());
  EXPECT_TRUE(
      fs::exists(reports.path() / "rdmaemu-reports" / "SetUpTest.DISABLED_Fails" / "rules.json"));
}

TEST(ReportFunction, NamesWhatIsMissing) {
  const std::string directory = Reports().path();
  EXPECT_EQ(rdmaemu_report(directory.c_str(), "t", nullptr, 0), -ENOENT);
  EXPECT_THAT(rdmaemu_last_error(), HasSubstr("rdmaemu_open"));
  const Embedding host;
  EXPECT_EQ(rdmaemu_report(directory.c_str(), "t", nullptr, 0), -EINVAL);
  EXPECT_THAT(rdmaemu_last_error(), HasSubstr("options.report_bytes"));
  EXPECT_EQ(rdmaemu_report(nullptr, "t", nullptr, 0), -EINVAL);
  EXPECT_EQ(rdmaemu_report(directory.c_str(), nullptr, nullptr, 0), -EINVAL);
}

TEST(ReportFunction, WritesAfterADirectoryThatItCannotMake) {
  const Reports reports;
  const Embedding host({.report_bytes = 1 << 20});
  EXPECT_EQ(rdmaemu_report("/dev/null/of", "t", nullptr, 0), -ENOTDIR);
  EXPECT_THAT(rdmaemu_last_error(), HasSubstr("/dev/null/of"));
  char path[8];
  const std::string whole = reports.path() / "a_b__c";
  EXPECT_EQ(rdmaemu_report(reports.path().c_str(), "a/b c", path, sizeof path),
            static_cast<int>(whole.size() - 1));
  EXPECT_EQ(path, whole.substr(0, 7));
}

TEST(ReportFunction, DropsTheOldestAboveTheLimit) {
  constexpr size_t kLimit = 4096;
  const Reports reports;
  rdmaemu::EmbeddingOptions options;
  options.report_bytes = kLimit;
  const Embedding host(options);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  ASSERT_EQ(pair.Connect(), 0);
  constexpr int kMany = 100;
  for (int i = 0; i < kMany; i++) ibv_free_device_list(ibv_get_device_list(nullptr));
  ASSERT_GT(rdmaemu_report(reports.path().c_str(), "t", nullptr, 0), 0);
  const fs::path report = reports.path() / "t";
  const std::string trace = Read(report / "embedded.jsonl");
  EXPECT_GT(trace.size(), kLimit / 8);
  EXPECT_LE(trace.size(), kLimit);
  EXPECT_THAT(trace, HasSubstr("list_devices"));
  EXPECT_THAT(trace, Not(HasSubstr("resolve_addr")));
  EXPECT_THAT(Read(report / "environment.txt"), HasSubstr("older records that the trace lacks "));
}

TEST(ReportFunction, KeepsTheRulesOfAHostThatHasEnded) {
  const Reports reports;
  Embedding host({.report_bytes = 1 << 20});
  host.Add({"b", {{"rxe0", "rxe", "127.0.0.2"}}});
  ASSERT_EQ(rdmaemu_rule_add("host = \"b\", name = \"gone\", at = \"cm.req\"", nullptr, 0), 0);
  host.Remove("b");
  host.Add({"b", {{"rxe0", "rxe", "127.0.0.2"}}});
  ASSERT_GT(rdmaemu_report(reports.path().c_str(), "t", nullptr, 0), 0);
  EXPECT_THAT(Read(reports.path() / "t" / "rules.json"), HasSubstr("\"name\":\"gone\""));
  EXPECT_THAT(NamesIn(reports.path() / "t"),
              testing::IsSupersetOf({"b.jsonl", "b-2.jsonl", "b-2.pcapng"}));
  EXPECT_THAT(Read(reports.path() / "t" / "environment.txt"), HasSubstr("host b (ended)\n"));
}

// clearenv(3) leaves no environ at all.
TEST(ReportFunction, NeedsNoEnvironment) {
  const Reports reports;
  EXPECT_EXIT(
      {
        const Embedding host({.report_bytes = 1 << 20});
        clearenv();
        _exit(rdmaemu_report(reports.path().c_str(), "t", nullptr, 0) > 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_TRUE(fs::exists(reports.path() / "t" / "environment.txt"));
}

TEST(ReportFunction, HasNoHostsInAForkedChild) {
  const Reports reports;
  const Embedding host({.report_bytes = 1 << 20});
  const pid_t child = fork();
  if (child == 0) _exit(rdmaemu_report(reports.path().c_str(), "t", nullptr, 0) == -ENOENT ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(reports.path()));
}

}  // namespace
}  // namespace rdmaemu_test
