// Catch2 for programs that use RDMA: the fixture of rdmaemu/fixture.hpp, and the host's timeline in
// the message of a failed test. Works with Catch2 2.13 and 3. With Catch2 2, include this header
// before <catch2/catch.hpp>, or define CATCH_CONFIG_EXTERNAL_INTERFACES. Header only.
//
//     TEST_CASE_METHOD(rdmaemu::testing::EmbeddedTest, "a lost server is reported") {
//       rdmaemu::testing::WithFault("at = \"cm.req\", drop = true", [&] { ... });
//     }
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#ifndef CATCH_CONFIG_EXTERNAL_INTERFACES
#ifdef TWOBLUECUBES_SINGLE_INCLUDE_CATCH_HPP_INCLUDED
#error "include <rdmaemu/catch2.hpp> before <catch2/catch.hpp>"
#endif
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#endif
#include <catch2/catch.hpp>
#endif

#include <rdmaemu/fault_points.hpp>
#include <rdmaemu/fixture.hpp>
#include <rdmaemu/sweep_faults.hpp>

#include <iostream>
#include <memory>
#include <string>

#ifdef CATCH_CONFIG_PREFIX_ALL
#define RDMAEMU_CATCH2(macro) CATCH_##macro
#else
#define RDMAEMU_CATCH2(macro) macro
#endif

namespace rdmaemu::testing {
namespace detail {

#if CATCH_VERSION_MAJOR >= 3
using Catch2ListenerBase = Catch::EventListenerBase;
using Catch2AssertionEnded = void;
#else
using Catch2ListenerBase = Catch::TestEventListenerBase;
using Catch2AssertionEnded = bool;
#endif

inline std::string& Catch2TestName() {
  static std::string name;
  return name;
}

class Catch2Listener : public Catch2ListenerBase {
 public:
  using Catch2ListenerBase::Catch2ListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& test) override { Catch2TestName() = test.name; }
  Catch2AssertionEnded assertionEnded(const Catch::AssertionStats& assertion) override {
    if (!assertion.assertionResult.isOk()) FailureCount::Get().Add();
    return Catch2AssertionEnded();
  }
};

// Ends the test. Catch2 2 has no skipped tests. There the test passes, and a warning gives the
// reason.
[[noreturn]] inline void SkipInCatch2(const std::string& reason) {
#if CATCH_VERSION_MAJOR >= 3
  RDMAEMU_CATCH2(SKIP)(reason);
  throw TestSkipped(reason);
#else
  RDMAEMU_CATCH2(WARN)("skipped: " << reason);
  throw Catch::TestFailureException();  // ends the test, which passes without a recorded failure
#endif
}

inline bool UseCatch2() {
  Framework& framework = TheFramework();
  framework.fail = [](const std::string& text) { RDMAEMU_CATCH2(FAIL_CHECK)(text); };
  // Catch2 would break the lines of a message at 80 columns, and the reporter `junit` would omit a
  // warning. That reporter writes what a test prints on std::cerr.
  framework.tell = [](const std::string& text) {
    std::cout.flush();
    std::cerr << text << std::endl;
  };
  framework.skip = SkipInCatch2;
  framework.label = [](const std::string& text) -> std::shared_ptr<void> {
    return std::make_shared<Catch::ScopedMessage>(
        Catch::MessageBuilder("INFO", CATCH_INTERNAL_LINEINFO, Catch::ResultWas::Info) << text);
  };
  framework.test_name = [] { return Catch2TestName(); };
  return true;
}
inline const bool kUsesCatch2 = UseCatch2();
#if CATCH_VERSION_MAJOR >= 3
inline const Catch::ListenerRegistrar<Catch2Listener> kCatch2Listener("rdmaemu");
#else
inline const Catch::ListenerRegistrar<Catch2Listener> kCatch2Listener;
#endif

}  // namespace detail

// A test with its own host, for TEST_CASE_METHOD. Fixture lists what the test can use.
class EmbeddedTest : protected Fixture {
 protected:
  explicit EmbeddedTest(const EmbeddingOptions& options = {}) : Fixture(options) {}
};

}  // namespace rdmaemu::testing

#undef RDMAEMU_CATCH2
