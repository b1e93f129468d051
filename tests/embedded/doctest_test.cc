// rdmaemu/doctest.hpp: the fixture in doctest's tests, and the output of a failed test.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <rdmaemu/doctest.hpp>

#include <stdexcept>
#include <string>

#include "tests/embedded/resolver.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::Need;
using rdmaemu::testing::EmbeddedTest;
using rdmaemu::testing::FaultReport;
using rdmaemu::testing::ForEachFault;
using rdmaemu::testing::Is;
using rdmaemu::testing::Needs;
using rdmaemu::testing::NextCompletion;
using rdmaemu::testing::NextEvent;
using rdmaemu::testing::WithFault;

TEST_CASE_FIXTURE(EmbeddedTest, "an address is resolved") {
  const Resolver client(Address());
  CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_RESOLVED, 0));
}

TEST_CASE_FIXTURE(EmbeddedTest, "a fault is seen" * Needs(Need::kRules)) {
  WithFault("at = \"event.addr_resolved\", event = \"addr_error\", status = -19", [&] {
    const Resolver client(Address());
    CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_ERROR, -19));
  });
}

// The tests of this suite fail on purpose. The tests below run them.
TEST_SUITE("fails" * doctest::skip()) {
  TEST_CASE_FIXTURE(EmbeddedTest, "by a check") {
    const Resolver client(Address());
    CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_ERROR));
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "by a requirement") {
    const Resolver client(Address());
    REQUIRE(client.id == nullptr);
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "by an exception") {
    const Resolver client(Address());
    throw std::runtime_error("on purpose");
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "by a missing event") {
    const Resolver client(Address());
    CHECK(NextEvent(client.channel));
    CHECK_FALSE(NextEvent(client.channel));
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "by a missing completion") {
    const Resolver client(Address());
    REQUIRE(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_RESOLVED));
    ibv_cq* const cq = ibv_create_cq(client.id->verbs, 1, nullptr, nullptr, 0);
    CHECK_FALSE(NextCompletion(cq).has_value());
    ibv_destroy_cq(cq);
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "by a rule that never fires") {
    WithFault("at = \"cm.rej\", drop = true", [&] { const Resolver client(Address()); });
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "at a fault point") {
    const FaultReport report = ForEachFault({{"nothing", ""}}, [&] {
      const Resolver client(Address());
      CHECK(client.id == nullptr);
    });
    CHECK(report.failed().size() == 1);
  }
  TEST_CASE_FIXTURE(EmbeddedTest, "in two subcases") {
    constexpr int kMoreThanAMessage = 100;
    for (int i = 0; i < kMoreThanAMessage; i++) ibv_free_device_list(ibv_get_device_list(nullptr));
    SUBCASE("one") { CHECK(false); }
    SUBCASE("two") { CHECK(false); }
  }
}

Ran RunTest(const std::string& name, const std::string& environment = "") {
  return RunSelf("--no-skip --test-case='" + name + "'", environment);
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a test that fails shows the timeline") {
  for (const char* test :
       {"by a check", "by a requirement", "by an exception", "by a missing event",
        "by a missing completion", "by a rule that never fires", "at a fault point"}) {
    CAPTURE(test);
    const Ran ran = RunTest(test);
    CHECK(ran.status != 0);
    CHECK(Has(ran.shown, "what the host did"));
    CHECK(Has(ran.shown, "RESOLVE"));
  }
}

TEST_CASE("a failure says its reason") {
  CHECK(Has(RunTest("by a missing event").shown, "no event comes: nothing is due"));
  CHECK(Has(RunTest("by a missing completion").shown, "no completion comes: nothing is due"));
  CHECK(Has(RunTest("by a rule that never fires").shown, "never fired"));
  CHECK(Has(RunTest("at a fault point").shown, "fault point nothing"));
}

TEST_CASE("each subcase that fails names a file of its own") {
  const std::string shown = RunTest("in two subcases", "RDMAEMU_REPORT=").shown;
  CHECK(Has(shown, "-1.txt]\n"));
  CHECK(Has(shown, "-2.txt]\n"));
}

TEST_CASE("each subcase that fails leaves a report") {
  const std::string shown =
      RunTest("in two subcases", "TEST_UNDECLARED_OUTPUTS_DIR=\"${TEST_TMPDIR:-${TMPDIR:-/tmp}}\"")
          .shown;
  CHECK(Has(shown, "/rdmaemu-reports/in_two_subcases; draw it: cd "));
  CHECK(Has(shown, "/rdmaemu-reports/in_two_subcases-2; draw it: cd "));
}

TEST_CASE("a test that passes shows no timeline") {
  const Ran ran = RunTest("an address is resolved");
  CHECK(ran.status == 0);
  CHECK(!Has(ran.shown, "what the host did"));
}

}  // namespace
}  // namespace rdmaemu_test
