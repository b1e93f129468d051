// rdmaemu/catch2.hpp: the fixture in Catch2's tests, and the output of a failed test.
#include <rdmaemu/catch2.hpp>

#include <stdexcept>
#include <string>

#include "tests/embedded/resolver.h"
#include "tests/embedded/self.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::EmbeddedTest;
using rdmaemu::testing::Event;
using rdmaemu::testing::FaultReport;
using rdmaemu::testing::ForEachFault;
using rdmaemu::testing::Is;
using rdmaemu::testing::NextCompletion;
using rdmaemu::testing::NextEvent;
using rdmaemu::testing::WithFault;

TEST_CASE_METHOD(EmbeddedTest, "an address is resolved") {
  const Resolver client(Address());
  CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_RESOLVED, 0));
}

TEST_CASE_METHOD(EmbeddedTest, "a fault is seen") {
  WithFault("at = \"event.addr_resolved\", event = \"addr_error\", status = -19", [&] {
    const Resolver client(Address());
    CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_ERROR, -19));
  });
}

// The tests with the tag [.fails] fail on purpose. The tests below run them.
TEST_CASE_METHOD(EmbeddedTest, "by a check", "[.fails]") {
  const Resolver client(Address());
  CHECK(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_ERROR));
}
TEST_CASE_METHOD(EmbeddedTest, "by a requirement", "[.fails]") {
  const Resolver client(Address());
  REQUIRE(client.id == nullptr);
}
TEST_CASE_METHOD(EmbeddedTest, "by an exception", "[.fails]") {
  const Resolver client(Address());
  throw std::runtime_error("on purpose");
}
TEST_CASE_METHOD(EmbeddedTest, "by a missing event", "[.fails]") {
  const Resolver client(Address());
  CHECK(NextEvent(client.channel));
  CHECK_FALSE(NextEvent(client.channel));
}
TEST_CASE_METHOD(EmbeddedTest, "by a missing completion", "[.fails]") {
  const Resolver client(Address());
  REQUIRE(Is(NextEvent(client.channel), RDMA_CM_EVENT_ADDR_RESOLVED));
  ibv_cq* const cq = ibv_create_cq(client.id->verbs, 1, nullptr, nullptr, 0);
  CHECK_FALSE(NextCompletion(cq).has_value());
  ibv_destroy_cq(cq);
}
TEST_CASE_METHOD(EmbeddedTest, "by a rule that never fires", "[.fails]") {
  WithFault("at = \"cm.rej\", drop = true", [&] { const Resolver client(Address()); });
}
TEST_CASE_METHOD(EmbeddedTest, "at a fault point", "[.fails]") {
  const FaultReport report =
      ForEachFault({{"no id", "at = \"call.create_id\", errno = \"ENOMEM\""}},
                   [&] { const Resolver client(Address()); });
  CHECK(report.failed() == std::vector<std::string>{"no id"});
  const FaultReport failing = ForEachFault({{"nothing", ""}}, [&] {
    const Resolver client(Address());
    CHECK(client.id == nullptr);
  });
  CHECK(failing.failed() == std::vector<std::string>{"nothing"});
}

TEST_CASE_METHOD(EmbeddedTest, "in two sections", "[.fails]") {
  constexpr int kMoreThanAMessage = 100;
  for (int i = 0; i < kMoreThanAMessage; i++) ibv_free_device_list(ibv_get_device_list(nullptr));
  SECTION("one") { CHECK(false); }
  SECTION("two") { CHECK(false); }
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a test that fails shows the timeline") {
  for (const char* test :
       {"by a check", "by a requirement", "by an exception", "by a missing event",
        "by a missing completion", "by a rule that never fires", "at a fault point"}) {
    CAPTURE(test);
    const Ran ran = RunSelf("'" + std::string(test) + "'");
    CHECK(ran.status != 0);
    CHECK(Has(ran.shown, "what the host did"));
    CHECK(Has(ran.shown, "RESOLVE"));
  }
}

TEST_CASE("a failure says its reason") {
  CHECK(Has(RunSelf("'by a missing event'").shown, "no event comes: nothing is due"));
  CHECK(Has(RunSelf("'by a missing completion'").shown, "no completion comes: nothing is due"));
  CHECK(Has(RunSelf("'by a rule that never fires'").shown, "never fired"));
  CHECK(Has(RunSelf("'at a fault point'").shown, "fault point nothing"));
}

TEST_CASE("each section that fails names a file of its own on one line") {
  const std::string shown = RunSelf("'in two sections'", "RDMAEMU_REPORT=").shown;
  CHECK(Has(shown, "-1.txt]\n"));
  CHECK(Has(shown, "-2.txt]\n"));
}

TEST_CASE("each section that fails leaves a report") {
  const std::string shown =
      RunSelf("'in two sections'",
              "TEST_UNDECLARED_OUTPUTS_DIR=\"${TEST_TMPDIR:-${TMPDIR:-/tmp}}\"")
          .shown;
  CHECK(Has(shown, "/rdmaemu-reports/in_two_sections; draw it: cd "));
  CHECK(Has(shown, "/rdmaemu-reports/in_two_sections-2; draw it: cd "));
}

TEST_CASE("a report for a CI system has the timeline") {
  CHECK(Has(RunSelf("'by a check' --reporter junit").shown, "what the host did"));
  CHECK(Has(RunSelf("'by a check' --reporter xml").shown, "what the host did"));
}

TEST_CASE("a test that passes shows no timeline") {
  const Ran ran = RunSelf("'an address is resolved'");
  CHECK(ran.status == 0);
  CHECK(!Has(ran.shown, "what the host did"));
}

}  // namespace
}  // namespace rdmaemu_test
