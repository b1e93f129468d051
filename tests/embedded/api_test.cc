// rdmaemu.h: the result of each function, and the error text of each refusal.
#include <gmock/gmock.h>
#include <infiniband/verbs.h>
#include <rdmaemu/rdmaemu.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace {

using testing::HasSubstr;

rdmaemu_options Options() {
  rdmaemu_options options{};
  options.size = sizeof options;
  return options;
}

std::vector<std::string> DeviceNames() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  std::vector<std::string> names;
  for (int i = 0; i < count; i++) names.emplace_back(ibv_get_device_name(list[i]));
  ibv_free_device_list(list);
  return names;
}

class ApiTest : public testing::Test {
 protected:
  ~ApiTest() override { rdmaemu_close(); }
  void ExpectRefusal(int result, int error, const char* words) {
    EXPECT_EQ(result, -error) << rdmaemu_last_error();
    EXPECT_THAT(rdmaemu_last_error(), HasSubstr(words));
  }
};

TEST_F(ApiTest, WithoutAHostTimeIsRefused) {
  ExpectRefusal(static_cast<int>(rdmaemu_now()), ENOENT, "rdmaemu_open first");
  ExpectRefusal(rdmaemu_advance(1), ENOENT, "rdmaemu_open first");
  ExpectRefusal(rdmaemu_run_until_idle(), ENOENT, "rdmaemu_open first");
  ExpectRefusal(rdmaemu_timeline(nullptr, 0), ENOENT, "rdmaemu_open first");
  ExpectRefusal(rdmaemu_close(), ENOENT, "rdmaemu_open first");
}

TEST_F(ApiTest, DefaultsAreOneRxe) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0) << rdmaemu_last_error();
  EXPECT_STREQ(rdmaemu_last_error(), "");
  EXPECT_EQ(DeviceNames(), std::vector<std::string>{"rxe0"});
  EXPECT_EQ(rdmaemu_now(), 0);
}

TEST_F(ApiTest, DevicesHaveTheirOwnAddresses) {
  const rdmaemu_device devices[] = {{"left", "rxe", "10.0.0.1,10.0.0.2"},
                                    {"right", "siw", "10.0.1.1"}};
  rdmaemu_options options = Options();
  options.devices = devices;
  options.device_count = 2;
  ASSERT_EQ(rdmaemu_open(&options), 0) << rdmaemu_last_error();
  EXPECT_EQ(DeviceNames(), (std::vector<std::string>{"left", "right"}));
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* left = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(left, nullptr);
  ibv_gid_entry entries[8];
  EXPECT_EQ(ibv_query_gid_table(left, entries, 8, 0), 3);  // one link-local, two of its own
  EXPECT_EQ(entries[2].gid.raw[15], 2);
  ibv_close_device(left);
}

TEST_F(ApiTest, AProcessHasOneHost) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  ExpectRefusal(rdmaemu_open(nullptr), EBUSY, "has a host already");
}

TEST_F(ApiTest, AHostMayFollowAnother) {
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(rdmaemu_open(nullptr), 0) << rdmaemu_last_error();
    EXPECT_EQ(DeviceNames().size(), 1u);
    ASSERT_EQ(rdmaemu_close(), 0);
    EXPECT_EQ(DeviceNames().size(), 0u);
  }
}

TEST_F(ApiTest, WrongOptionsAreNamed) {
  rdmaemu_options options = Options();
  options.size = 3;
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "sizeof(struct rdmaemu_options)");
  options = Options();
  options.clock = "sundial";
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "real, scaled:K, virtual, manual");
  for (const char* clock : {"scaled:0", "scaled:", "scaled:1x", "scaled:101"}) {
    options.clock = clock;
    ExpectRefusal(rdmaemu_open(&options), EINVAL, "from 0.01 to 100");
  }
  options = Options();
  options.name = "a/b";
  EXPECT_EQ(rdmaemu_open(&options), -EINVAL);
  options = Options();
  options.device_count = 1;
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "give `devices`");
  const rdmaemu_device nowhere{"rxe0", nullptr, nullptr};
  options.devices = &nowhere;
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "has no address");
  const rdmaemu_device unknown{"rxe0", "abacus", "10.0.0.1"};
  options.devices = &unknown;
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "abacus");
  options = Options();
  options.payload_shortcuts = "sometimes";
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "not \"sometimes\"");
  options = Options();
  options.scenario_path = "/nonexistent/scenario.toml";
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "/nonexistent/scenario.toml");
  options = Options();
  options.trace_path = "/nonexistent/trace";
  ExpectRefusal(rdmaemu_open(&options), EINVAL, "/nonexistent/trace");
}

TEST_F(ApiTest, HostsAreAddedToTheFirst) {
  const rdmaemu_device there{"rxe0", nullptr, "10.0.0.2"};
  rdmaemu_options options = Options();
  options.name = "b";
  options.devices = &there;
  options.device_count = 1;
  ExpectRefusal(rdmaemu_host_add(&options), ENOENT, "rdmaemu_open");
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  ASSERT_EQ(rdmaemu_host_add(&options), 0) << rdmaemu_last_error();
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "host \"b\" already");
  ExpectRefusal(rdmaemu_host_add(nullptr), EINVAL, "NULL");
  options.name = nullptr;
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "needs a name");
  options.name = "c";
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "10.0.0.2 is another host's");
  options.clock = "real";
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "one clock");
  options.clock = nullptr;
  options.device_count = 0;
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "no device");
}

TEST_F(ApiTest, AThreadIsOnOneHost) {
  ExpectRefusal(rdmaemu_host_enter(nullptr), ENOENT, "rdmaemu_open");
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  const rdmaemu_device there{"there", nullptr, "10.0.0.2"};
  rdmaemu_options options = Options();
  options.name = "b";
  options.devices = &there;
  options.device_count = 1;
  ASSERT_EQ(rdmaemu_host_add(&options), 0) << rdmaemu_last_error();
  char name[16];
  EXPECT_EQ(rdmaemu_host_entered(name, sizeof name), 8);
  EXPECT_STREQ(name, "embedded");
  EXPECT_EQ(DeviceNames(), std::vector<std::string>{"rxe0"});
  ASSERT_EQ(rdmaemu_host_enter("b"), 0);
  ASSERT_EQ(rdmaemu_host_entered(name, 1), 1);
  EXPECT_STREQ(name, "");
  EXPECT_EQ(DeviceNames(), std::vector<std::string>{"there"});
  ASSERT_EQ(rdmaemu_port_set("there", 0), 0) << rdmaemu_last_error();
  ExpectRefusal(rdmaemu_port_set("rxe0", 0), ENODEV, "rxe0");
  // The other host uses the address.
  EXPECT_EQ(rdmaemu_address_add("there", "127.0.0.1"), -EADDRINUSE);
  ExpectRefusal(rdmaemu_host_enter("c"), ENOENT, "no host \"c\"");
  ASSERT_EQ(rdmaemu_host_enter(nullptr), 0);
  EXPECT_EQ(DeviceNames(), std::vector<std::string>{"rxe0"});
  // After the next open, the thread is on the first host again.
  ASSERT_EQ(rdmaemu_host_enter("b"), 0);
  ASSERT_EQ(rdmaemu_close(), 0);
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  EXPECT_EQ(DeviceNames(), std::vector<std::string>{"rxe0"});
}

TEST_F(ApiTest, HostsAreRemoved) {
  ExpectRefusal(rdmaemu_host_remove("embedded"), ENOENT, "rdmaemu_open");
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  ExpectRefusal(rdmaemu_host_remove(nullptr), EINVAL, "NULL");
  ExpectRefusal(rdmaemu_host_remove("b"), ENOENT, "no host \"b\"");
  const rdmaemu_device there{"rxe0", nullptr, "10.0.0.2"};
  rdmaemu_options options = Options();
  options.name = "b";
  options.devices = &there;
  options.device_count = 1;
  constexpr int kMaxAdded = 7;
  for (int i = 0; i < kMaxAdded; i++) {
    ASSERT_EQ(rdmaemu_host_add(&options), 0) << rdmaemu_last_error();
    ASSERT_EQ(rdmaemu_host_enter("b"), 0);
    EXPECT_EQ(DeviceNames().size(), 1u);
    ASSERT_EQ(rdmaemu_host_remove("b"), 0);
    EXPECT_EQ(DeviceNames().size(), 0u);
    ExpectRefusal(rdmaemu_host_remove("b"), ENOENT, "ended already");
  }
  ExpectRefusal(rdmaemu_host_add(&options), EINVAL, "at most 8 hosts");
  ASSERT_EQ(rdmaemu_host_enter(nullptr), 0);
  EXPECT_EQ(DeviceNames().size(), 1u);
}

// A program built with an earlier, shorter struct works.
TEST_F(ApiTest, OptionsMayBeShorter) {
  rdmaemu_options options = Options();
  options.size = offsetof(rdmaemu_options, scenario_path);
  options.scenario_path = "/nonexistent/not-looked-at.toml";
  EXPECT_EQ(rdmaemu_open(&options), 0) << rdmaemu_last_error();
}

TEST_F(ApiTest, TimeMovesWhenTold) {
  rdmaemu_options options = Options();
  options.clock = "manual";
  ASSERT_EQ(rdmaemu_open(&options), 0);
  ASSERT_EQ(rdmaemu_advance(5'000'000'000), 0);
  EXPECT_EQ(rdmaemu_now(), 5'000'000'000);
  ASSERT_EQ(rdmaemu_run_until_idle(), 0);
  EXPECT_EQ(rdmaemu_now(), 5'000'000'000);
  ExpectRefusal(rdmaemu_advance(UINT64_MAX), EINVAL, "negative");
}

TEST_F(ApiTest, AClockThatRunsIsNotAdvanced) {
  rdmaemu_options options = Options();
  options.clock = "scaled:100";
  ASSERT_EQ(rdmaemu_open(&options), 0);
  ExpectRefusal(rdmaemu_advance(1), EOPNOTSUPP, "runs by itself");
  const int64_t before = rdmaemu_now();
  while (rdmaemu_now() == before) {
  }
  EXPECT_GT(rdmaemu_now(), before);
}

TEST_F(ApiTest, RulesAreListedInTheirOrder) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  char name[132];
  ASSERT_EQ(rdmaemu_rule_add("at = \"cm.req\", nth = 3, reject = 28", name, sizeof name), 0);
  EXPECT_STREQ(name, "rule 1");
  ASSERT_EQ(
      rdmaemu_rule_add("name = \"full\", at = \"call.alloc_pd\", errno = \"ENOMEM\"", nullptr, 0),
      0);
  rdmaemu_rule rules[2];
  ASSERT_EQ(rdmaemu_rules(rules, 2), 2);
  EXPECT_STREQ(rules[0].at, "cm.req");
  EXPECT_STREQ(rules[0].does, "reject = 28");
  EXPECT_STREQ(rules[1].name, "full");
  EXPECT_EQ(rules[1].fired, 0u);

  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ASSERT_EQ(rdmaemu_rules(rules, 2), 2);
  EXPECT_EQ(rules[1].matched, 1u);
  EXPECT_EQ(rules[1].fired, 1u);

  ASSERT_EQ(rdmaemu_rule_remove("full"), 0);
  ibv_pd* pd = ibv_alloc_pd(context);
  EXPECT_NE(pd, nullptr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ASSERT_EQ(rdmaemu_rules_clear(), 0);
  EXPECT_EQ(rdmaemu_rules(nullptr, 0), 0);
}

TEST_F(ApiTest, AWrongRuleIsToldInTheWordsOfTheGrammar) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  ExpectRefusal(rdmaemu_rule_add("at = \"cm.rek\", drop = true", nullptr, 0), EINVAL, "req");
  ExpectRefusal(rdmaemu_rule_add("at = \"event.established\", end_program = \"peer\"", nullptr, 0),
                EOPNOTSUPP, "an embedded host has no end_program");
  ExpectRefusal(rdmaemu_rule_add(nullptr, nullptr, 0), EINVAL, "rule is NULL");
  ExpectRefusal(rdmaemu_rule_add(std::string(9000, 'x').c_str(), nullptr, 0), EMSGSIZE, "8192");
  ExpectRefusal(rdmaemu_rule_remove("nobody"), ENOENT, "nobody");
  ExpectRefusal(rdmaemu_rule_remove(nullptr), EINVAL, "name is NULL");
}

TEST_F(ApiTest, DevicesComeAndGo) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  ExpectRefusal(rdmaemu_device_remove("rxe7"), ENODEV, "rxe7");
  ASSERT_EQ(rdmaemu_device_remove("rxe0"), 0) << rdmaemu_last_error();
  EXPECT_EQ(DeviceNames().size(), 0u);
  ASSERT_EQ(rdmaemu_device_add("rxe0", nullptr), 0) << rdmaemu_last_error();
  EXPECT_EQ(DeviceNames().size(), 1u);
  ASSERT_EQ(rdmaemu_device_add("rxe1", "rxe"), 0) << rdmaemu_last_error();
  ASSERT_EQ(rdmaemu_address_add("rxe1", "10.9.0.1"), 0) << rdmaemu_last_error();
  ASSERT_EQ(rdmaemu_address_move("10.9.0.1", "rxe0"), 0) << rdmaemu_last_error();
  ASSERT_EQ(rdmaemu_address_remove("10.9.0.1"), 0) << rdmaemu_last_error();
  ASSERT_EQ(rdmaemu_port_set("rxe0", 0), 0) << rdmaemu_last_error();
  ASSERT_EQ(rdmaemu_port_set("rxe0", 1), 0) << rdmaemu_last_error();
  ExpectRefusal(rdmaemu_address_add("rxe0", "ten"), EINVAL, "\"ten\"");
  ExpectRefusal(rdmaemu_device_add(std::string(70, 'x').c_str(), "rxe"), EINVAL, "1 to 63");
  EXPECT_EQ(rdmaemu_device_remove(nullptr), -EINVAL);
}

TEST_F(ApiTest, TheTimelineIsCutAtItsBeginning) {
  ASSERT_EQ(rdmaemu_open(nullptr), 0);
  DeviceNames();
  const int length = rdmaemu_timeline(nullptr, 0);
  ASSERT_GT(length, 20);
  std::string whole(static_cast<size_t>(length) + 1, '\0');
  ASSERT_EQ(rdmaemu_timeline(whole.data(), whole.size()), length);
  EXPECT_THAT(whole, HasSubstr("list_devices"));
  char end[11];
  ASSERT_EQ(rdmaemu_timeline(end, sizeof end), length);
  EXPECT_EQ(std::string(end), whole.substr(whole.size() - 11, 10));
}

}  // namespace
