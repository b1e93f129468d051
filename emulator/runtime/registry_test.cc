#include "emulator/runtime/registry.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace rdmaemu::runtime {
namespace {

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    char name[] = "/tmp/rdmaemu-registry-test-XXXXXX";
    directory_ = mkdtemp(name);
    setenv("RDMAEMU_DIR", directory_.c_str(), 1);
  }
  ~RegistryTest() override {
    std::filesystem::remove_all(directory_);
    unsetenv("RDMAEMU_DIR");
  }
  std::string directory_;
};

TEST_F(RegistryTest, RefusesADirectoryThatOthersCanWriteTo) {
  EXPECT_TRUE(Registry::Open());
  chmod(directory_.c_str(), 0777);
  EXPECT_FALSE(Registry::Open());
}

TEST_F(RegistryTest, AHostsLockIsHeldOnce) {
  const auto registry = Registry::Open();
  ASSERT_TRUE(registry);
  Result<UniqueFd> lock = registry->TryLock("a");
  ASSERT_TRUE(lock);
  EXPECT_EQ(registry->TryLock("a").error(), Error{EWOULDBLOCK});
  lock->Reset();
  EXPECT_TRUE(registry->TryLock("a"));
}

TEST_F(RegistryTest, ALockFileThatWasRemovedExcludesNobody) {
  const auto registry = Registry::Open();
  ASSERT_TRUE(registry);
  const Result<UniqueFd> lock = registry->TryLock("a");
  unlink(registry->LockPath("a").c_str());
  EXPECT_TRUE(registry->TryLock("a"));
}

TEST_F(RegistryTest, TheRecordSaysHowAHostWasStarted) {
  const auto registry = Registry::Open();
  ASSERT_TRUE(registry);
  EXPECT_FALSE(registry->ReadRecord("a"));
  const Result<UniqueFd> lock = registry->TryLock("a");
  ASSERT_TRUE(lock);
  EXPECT_FALSE(registry->ReadRecord("a")) << "an empty lock file says nothing";
  HostRecord record{42, {"a", {"127.0.1.1", "::1"}, {"rxe0"}, {}, {}, "/tmp/\"p\"", ""}};
  ASSERT_TRUE(Registry::WriteRecord(lock->get(), record));
  record.options.addresses = {"127.0.1.1"};
  record.options.silent_nets = {"10.99.0.0/16"};
  record.options.gateways = {"127.0.0.254"};
  record.scenario_mark = "0123456789abcdef";
  record.scenario_rules = 3;
  record.lives_alone = true;
  ASSERT_TRUE(Registry::WriteRecord(lock->get(), record));
  const auto read = registry->ReadRecord("a");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pid, 42);
  EXPECT_EQ(read->options.addresses, record.options.addresses);
  EXPECT_EQ(read->options.silent_nets, record.options.silent_nets);
  EXPECT_EQ(read->options.gateways, record.options.gateways);
  EXPECT_EQ(read->options.devices, record.options.devices);
  EXPECT_EQ(read->options.pcap_path, record.options.pcap_path);
  EXPECT_EQ(read->scenario_mark, record.scenario_mark);
  EXPECT_EQ(read->scenario_rules, record.scenario_rules);
  EXPECT_EQ(read->lives_alone, record.lives_alone);
}

// Files that another program has left under the names of a host.
TEST_F(RegistryTest, RefusesLocksThatAreNoRegularFiles) {
  const auto registry = Registry::Open();
  ASSERT_TRUE(registry);
  ASSERT_EQ(mkfifo(registry->LockPath("pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(registry->LockPath("directory").c_str(), 0700), 0);
  EXPECT_EQ(registry->TryLock("pipe").error(), Error{EEXIST});
  EXPECT_EQ(registry->TryLock("directory").error(), Error{EISDIR});
  for (const char* name : {"pipe", "directory"}) {
    EXPECT_FALSE(registry->IsLocked(name)) << name;
    EXPECT_FALSE(registry->ReadRecord(name)) << name;
    EXPECT_FALSE(registry->ReadCrash(name, 1)) << name;
  }
}

// `rdmaemu stop` sends signals to this pid. The pid -1 would mean every process.
TEST(ParseRecord, TakesOnlyWhatCanBeAPid) {
  const auto with_pid = [](const std::string& pid) {
    return ParseRecord(
        "a", R"({"address": [], "device": [], "pcap": "", "trace": "", "pid": )" + pid + "}");
  };
  EXPECT_EQ(with_pid("42")->pid, 42);
  for (const char* pid :
       {"-1", "0", "12444000000", "1.5", "1e10", "18446744073709551615", "\"7\""}) {
    EXPECT_FALSE(with_pid(pid)) << pid;
  }
}

TEST(CheckHostName, TakesWhatIsAFileNameAndNoPath) {
  EXPECT_FALSE(CheckHostName("a"));
  EXPECT_FALSE(CheckHostName("host-1.test_x"));
  for (const char* name : {"", ".", "..", ".a", "a/b", "a b", "a\n"}) {
    EXPECT_TRUE(CheckHostName(name)) << name;
  }
  EXPECT_FALSE(CheckHostName(std::string(48, 'x')));
  EXPECT_TRUE(CheckHostName(std::string(49, 'x')));
}

}  // namespace
}  // namespace rdmaemu::runtime
