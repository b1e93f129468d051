// Several machines with one scenario: each has its own rules, under the same names.
#include <fstream>

#include "tests/embedded/two_hosts.h"

namespace rdmaemu_test {
namespace {

using testing::HasSubstr;

constexpr char kScenario[] = R"(
[[fault]]
at = "call.alloc_pd"
errno = "ENOMEM"

[[fault]]
name = "gate"
at = "cm.req"
hold = true

[[fault]]
host = "b"
at = "call.create_cq"
errno = "ENOMEM"
)";

std::string ScenarioPath() {
  const std::string path = testing::TempDir() + "scenario_test.toml";
  std::ofstream(path) << kScenario;
  return path;
}

class ScenarioTest : public testing::Test {
 protected:
  ScenarioTest() : host(OptionsOfA()) {}
  void AddB() {
    rdmaemu::HostOptions options;
    options.name = "b";
    options.devices = {DeviceAt(kAddressOfB)};
    options.scenario_path = ScenarioPath();
    host.Add(options);
  }
  static rdmaemu::EmbeddingOptions OptionsOfA() {
    rdmaemu::EmbeddingOptions options;
    options.name = "a";
    options.devices = {DeviceAt(kAddressOfA)};
    options.scenario_path = ScenarioPath();
    return options;
  }
  // Allocates a PD on the host that this thread is on. Returns 0 or an errno.
  static int AllocatePd() {
    ibv_device** const list = ibv_get_device_list(nullptr);
    ibv_context* const context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ibv_pd* const pd = ibv_alloc_pd(context);
    const int error = pd == nullptr ? errno : ibv_dealloc_pd(pd);
    ibv_close_device(context);
    return error;
  }
  static int AllocatePdOnB() {
    const rdmaemu::OnHost on("b");
    return AllocatePd();
  }

  rdmaemu::Embedding host;
};

TEST_F(ScenarioTest, ARuleWithoutANameGetsOneThatIsFree) {
  const rdmaemu::Fault alone("at = \"cm.dreq\", drop = true");
  EXPECT_EQ(alone.name(), "rule 2");
  AddB();
  const rdmaemu::Fault here("at = \"cm.dreq\", drop = true"),
      there("host = \"b\", at = \"cm.dreq\", drop = true");
  EXPECT_EQ(here.name(), "rule 4") << "b has a rule 3";
  EXPECT_EQ(there.name(), "rule 5");
  EXPECT_EQ(rdmaemu_rule_add("name = \"gate\", at = \"cm.req\", drop = true", nullptr, 0), -EINVAL);
  EXPECT_THAT(rdmaemu_last_error(), HasSubstr("called \"gate\" already"));
}

TEST_F(ScenarioTest, ARuleIsRemovedFromAllThatHaveIt) {
  AddB();
  EXPECT_EQ(AllocatePd(), ENOMEM);
  EXPECT_EQ(AllocatePdOnB(), ENOMEM);
  ASSERT_EQ(rdmaemu_rule_remove("rule 1"), 0) << rdmaemu_last_error();
  EXPECT_STREQ(rdmaemu_last_error(), "");
  EXPECT_EQ(AllocatePd(), 0);
  EXPECT_EQ(AllocatePdOnB(), 0);
  EXPECT_EQ(rdmaemu_rule_remove("rule 1"), -ENOENT);
  EXPECT_THAT(rdmaemu_last_error(), HasSubstr("no rule called \"rule 1\""));
  ASSERT_EQ(rdmaemu_rule_remove("rule 3"), 0) << "b's alone: " << rdmaemu_last_error();
}

TEST_F(ScenarioTest, AWaitCountsTheFiringsOfAllHosts) {
  AddB();
  EXPECT_EQ(AllocatePd(), ENOMEM);
  EXPECT_EQ(rdmaemu_rule_wait("rule 1", 2, 10'000), -EDEADLK);
  EXPECT_EQ(AllocatePdOnB(), ENOMEM);
  EXPECT_EQ(rdmaemu_rule_wait("rule 1", 2, 10'000), 0) << rdmaemu_last_error();
  EXPECT_EQ(rdmaemu_rule_wait("rule 1", 3, 10'000), -EDEADLK);
}

TEST_F(ScenarioTest, ABarrierIsLetGoOnAllHosts) {
  AddB();
  ASSERT_EQ(rdmaemu_rule_remove("rule 1"), 0);
  ASSERT_EQ(rdmaemu_rule_remove("rule 3"), 0);
  Pair forth(kAddressOfB, "b", "a"), back(kAddressOfA, "a", "b");
  for (Pair* pair : {&forth, &back}) {
    ASSERT_NO_FATAL_FAILURE(pair->Listen());
    ASSERT_NO_FATAL_FAILURE(pair->Resolve());
    ASSERT_EQ(pair->Connect(), 0);
  }
  const auto before = host.now();
  ASSERT_EQ(rdmaemu_rule_release("gate"), 0) << rdmaemu_last_error();
  for (Pair* pair : {&forth, &back}) {
    ASSERT_NO_FATAL_FAILURE(pair->Accept());
    EXPECT_THAT(NextEvent(pair->client.channel), EventIs(RDMA_CM_EVENT_ESTABLISHED, 0));
  }
  EXPECT_EQ(host.now(), before) << "no request was repeated";
}

}  // namespace
}  // namespace rdmaemu_test
