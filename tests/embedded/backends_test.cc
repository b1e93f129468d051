// One test file for every backend: an embedded host, the host process of `rdmaemu run`, and a
// machine's own device. backends.py runs it on each.
#include <gtest/gtest-spi.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::FaultReport;
using rdmaemu::testing::ForEachFault;
using rdmaemu::testing::WithFault;
using testing::ElementsAre;
using testing::IsEmpty;

class BackendsTest : public rdmaemu::testing::EmbeddedTest {};

TEST_F(BackendsTest, AMessageArrives) {
  Pair pair(Address().c_str());
  ASSERT_NO_FATAL_FAILURE(pair.Establish());
  std::strcpy(pair.client.buffer.data(), "hello");
  ASSERT_EQ(pair.server.Receive(), 0);
  ASSERT_EQ(pair.client.Send(), 0);
  EXPECT_THAT(NextCompletion(pair.server.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
  EXPECT_THAT(NextCompletion(pair.client.cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_SEND));
  EXPECT_STREQ(pair.server.buffer.data(), "hello");
}

TEST_F(BackendsTest, TheAddressIsTheDevices) {
  Pair pair(Address().c_str());
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  EXPECT_EQ(ibv_get_device_name(pair.client.id->verbs->device), DeviceName());
}

TEST_F(BackendsTest, TheEnvironmentNamesTheAddress) {
  const char* const given = std::getenv("RDMAEMU_TEST_ADDRESS");
  if (given == nullptr) GTEST_SKIP() << "RDMAEMU_TEST_ADDRESS is not set";
  EXPECT_EQ(Address(), given);
}

// The wait ends at once on an embedded host, and after a time-out elsewhere.
TEST_F(BackendsTest, AWaitForWhatNeverComesIsAFailure) {
  Pair pair(Address().c_str());
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  EXPECT_NONFATAL_FAILURE(NextEvent(pair.listener.channel), "no event comes");
  EXPECT_NONFATAL_FAILURE(NextCompletion(pair.client.cq), "no completion comes");
}

TEST_F(BackendsTest, ARuleRejectsARequest) {
  Pair pair(Address().c_str());
  ASSERT_NO_FATAL_FAILURE(pair.Listen());
  ASSERT_NO_FATAL_FAILURE(pair.Resolve());
  WithFault("at = \"cm.req\", reject = 28", [&] {
    ASSERT_EQ(pair.Connect(), 0);
    EXPECT_THAT(NextEvent(pair.client.channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
  });
}

TEST_F(BackendsTest, EveryFaultPointHasItsTurn) {
  const FaultReport report =
      ForEachFault({{"no fault", ""},
                    {"the first REQ is lost", "at = \"cm.req\", first = 1, drop = true"},
                    {"no channel", "at = \"call.cm_create_channel\", errno = \"ENOMEM\""},
                    {"no listener", "at = \"call.listen\", nth = 7, errno = \"ENOMEM\""}},
                   [&] {
                     rdma_event_channel* const channel = rdma_create_event_channel();
                     if (channel == nullptr) return false;
                     rdma_destroy_event_channel(channel);
                     Pair pair(Address().c_str());
                     pair.Establish();
                     return true;
                   });
  EXPECT_THAT(report.survived(), ElementsAre("no fault", "the first REQ is lost")) << report;
  EXPECT_THAT(report.failed(), ElementsAre("no channel")) << report;
  EXPECT_THAT(report.never_fired(), ElementsAre("no listener")) << report;
}

TEST_F(BackendsTest, ARuleAtACallFailsIt) {
  WithFault("name = \"full\", at = \"call.cm_create_channel\", errno = \"EMFILE\"", [] {
    EXPECT_EQ(rdma_create_event_channel(), nullptr);
    EXPECT_EQ(errno, EMFILE);
    EXPECT_EQ(rdmaemu::FindRule("full")->fired, 1u);
  });
}

// A host process separates the rules of tests, as a host for each test does.
TEST_F(BackendsTest, ARuleIsLeftBehind) {
  rdmaemu::Require(rdmaemu::Need::kRules);
  EXPECT_EQ(rdmaemu_rule_add("name = \"left behind\", at = \"call.listen\"", nullptr, 0), 0)
      << rdmaemu_last_error();
}
TEST_F(BackendsTest, ATestBeginsWithoutRulesOfOthers) {
  rdmaemu::Require(rdmaemu::Need::kRules);
  EXPECT_EQ(rdmaemu_rules(nullptr, 0), 0);
}

TEST_F(BackendsTest, TimeIsMoved) {
  const auto before = host.now();
  host.Advance(std::chrono::seconds(1));
  EXPECT_GE(host.now() - before, std::chrono::seconds(1));
}

TEST_F(BackendsTest, AnotherMachineIsAdded) {
  AddHost("b", {{"rxe0", "rxe", "127.0.0.2"}});
  Pair pair("127.0.0.2", "b");
  EXPECT_NO_FATAL_FAILURE(pair.Establish());
}

class TwoDevicesTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  static rdmaemu::EmbeddingOptions TwoDevices() {
    rdmaemu::EmbeddingOptions options;
    options.devices = {{"rxe0", "rxe", "10.0.0.1/24,fd00::1"}, {"rxe1", "rxe", "fd00::2,10.0.1.1"}};
    return options;
  }
  TwoDevicesTest() : EmbeddedTest(TwoDevices()) {}
};

TEST_F(TwoDevicesTest, EachHasItsAddress) {
  for (const size_t device : {0, 1}) {
    Pair pair(Address(device).c_str());
    ASSERT_NO_FATAL_FAILURE(pair.Listen());
    EXPECT_EQ(ibv_get_device_name(pair.listener.id->verbs->device), DeviceName(device));
  }
}

}  // namespace
}  // namespace rdmaemu_test
