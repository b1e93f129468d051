// doctest for programs that use RDMA: the fixture of rdmaemu/fixture.hpp, and the host's timeline
// in the message of a failed test. Header only.
//
//     TEST_CASE_FIXTURE(rdmaemu::testing::EmbeddedTest, "a lost server is reported") {
//       rdmaemu::testing::WithFault("at = \"cm.req\", drop = true", [&] { ... });
//     }
//
// doctest cannot end a running test as skipped. A test that needs the emulator declares the need:
//
//     TEST_CASE_FIXTURE(EmbeddedTest, "..." * rdmaemu::testing::Needs(rdmaemu::Need::kRules)) { ...
//     }
#pragma once

#include <doctest/doctest.h>
#include <rdmaemu/fault_points.hpp>
#include <rdmaemu/fixture.hpp>
#include <rdmaemu/sweep_faults.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>

namespace rdmaemu::testing {
namespace detail {

inline std::string& DoctestName() {
  static std::string name;
  return name;
}

// The number of skipped tests and suites, by reason.
inline std::map<std::string, int>& DoctestSkips() {
  static std::map<std::string, int> skips;
  return skips;
}

class DoctestListener : public doctest::IReporter {
 public:
  explicit DoctestListener(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {
    for (const auto& [why, count] : DoctestSkips()) {
      std::fprintf(stderr, "rdmaemu: skipped %d: %s\n", count, why.c_str());
    }
  }
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_start(const doctest::TestCaseData& test) override { DoctestName() = test.m_name; }
  void test_case_reenter(const doctest::TestCaseData& /*test*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {
    FailureCount::Get().Add();
  }
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& assertion) override {
    if (assertion.m_failed && (assertion.m_at & doctest::assertType::is_warn) == 0) {
      FailureCount::Get().Add();
    }
  }
  void log_message(const doctest::MessageData& message) override {
    if ((message.m_severity & doctest::assertType::is_warn) == 0) FailureCount::Get().Add();
  }
  void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}
};

// Fails the test, because doctest cannot skip a running test. The message shows how to declare the
// need.
[[noreturn]] inline void SkipInDoctest(const std::string& reason) {
  throw TestSkipped(reason +
                    ". doctest cannot skip a running test: declare the test with \"name\" * "
                    "rdmaemu::testing::Needs(rdmaemu::Need::kRules), or the other need");
}

inline bool UseDoctest() {
  Framework& framework = TheFramework();
  framework.fail = [](const std::string& text) {
    DOCTEST_ADD_FAIL_CHECK_AT(__FILE__, __LINE__, text);
  };
  framework.tell = [](const std::string& text) {
    DOCTEST_ADD_MESSAGE_AT(__FILE__, __LINE__, text);
  };
  framework.skip = SkipInDoctest;
  framework.label = [](const std::string& text) -> std::shared_ptr<void> {
    const auto write = [text](std::ostream* out) { *out << text; };
    return std::make_shared<doctest::detail::ContextScope<decltype(write)>>(write);
  };
  framework.test_name = [] { return DoctestName(); };
  doctest::registerReporter<DoctestListener>("rdmaemu", 0, /*isReporter=*/false);
  return true;
}
inline const bool kUsesDoctest = UseDoctest();

}  // namespace detail

// A decorator of tests and suites. Skips them on backends that lack the need. The run prints the
// reasons at its start.
class Needs {
 public:
  explicit Needs(Need need) : need_(need) {}
  void fill(doctest::detail::TestCase& test) const { SkipIfLacking(test.m_skip); }
  void fill(doctest::detail::TestSuite& suite) const { SkipIfLacking(suite.m_skip); }

 private:
  // Runs before main, where an exception would end the program. The fixture reports a wrong backend
  // later.
  void SkipIfLacking(bool& skip) const {
    std::string why;
    try {
      why = WhyNotOn(CurrentBackend(), need_);
    } catch (const std::invalid_argument&) {
    }
    if (why.empty()) return;
    detail::DoctestSkips()[why]++;
    skip = true;
  }
  Need need_;
};

// A test with its own host, for TEST_CASE_FIXTURE. Fixture lists what the test can use.
class EmbeddedTest : protected Fixture {
 protected:
  explicit EmbeddedTest(const EmbeddingOptions& options = {}) : Fixture(options) {}
};

}  // namespace rdmaemu::testing
