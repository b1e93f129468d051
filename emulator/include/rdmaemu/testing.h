// GoogleTest support for programs that use RDMA: a fixture with its own hosts, and matchers that
// describe events and completions. The message of a failed test shows the host's timeline. Header
// only. <gmock/gmock.h> provides EXPECT_THAT for the matchers.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdmaemu/fault_points.hpp>
#include <rdmaemu/fixture.hpp>
#include <rdmaemu/sweep_faults.hpp>

#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace rdmaemu::testing {

inline void PrintTo(const Event& event, std::ostream* out) { *out << Describe(event); }

// EXPECT_THAT(NextEvent(channel), EventIs(RDMA_CM_EVENT_REJECTED, 28));
class EventIsMatcher {
 public:
  EventIsMatcher(rdma_cm_event_type type, std::optional<int> status)
      : type_(type), status_(status) {}
  bool MatchAndExplain(const Event& event, ::testing::MatchResultListener* listener) const {
    *listener << "which is " << Describe(event);
    return Is(event, type_, status_);
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is " << rdma_event_str(type_);
    if (status_) *out << ", status " << *status_;
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not: ";
    DescribeTo(out);
  }

 private:
  rdma_cm_event_type type_;
  std::optional<int> status_;
};
// Without a status, any status matches.
inline auto EventIs(rdma_cm_event_type type, std::optional<int> status = std::nullopt) {
  return ::testing::MakePolymorphicMatcher(EventIsMatcher(type, status));
}

// EXPECT_THAT(NextCompletion(cq), CompletionIs(IBV_WC_SUCCESS, IBV_WC_RECV));
class CompletionIsMatcher {
 public:
  CompletionIsMatcher(ibv_wc_status status, std::optional<ibv_wc_opcode> opcode)
      : status_(status), opcode_(opcode) {}
  bool MatchAndExplain(const std::optional<ibv_wc>& completion,
                       ::testing::MatchResultListener* listener) const {
    *listener << "which is " << Describe(completion);
    return Is(completion, status_, opcode_);
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is \"" << ibv_wc_status_str(status_) << "\"";
    if (opcode_) *out << ", opcode " << *opcode_;
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not: ";
    DescribeTo(out);
  }

 private:
  ibv_wc_status status_;
  std::optional<ibv_wc_opcode> opcode_;
};
inline auto CompletionIs(ibv_wc_status status, std::optional<ibv_wc_opcode> opcode = std::nullopt) {
  return ::testing::MakePolymorphicMatcher(CompletionIsMatcher(status, opcode));
}

namespace detail {

// GoogleTest ignores its own AssertionException: the failure or skip was recorded before the throw.
[[noreturn]] inline void SkipInGoogleTest(const std::string& reason) {
  constexpr auto kSkip = ::testing::TestPartResult::kSkip;
  ::testing::internal::AssertHelper(kSkip, __FILE__, __LINE__, reason.c_str()) =
      ::testing::Message();
  throw ::testing::AssertionException(
      ::testing::TestPartResult(kSkip, __FILE__, __LINE__, reason.c_str()));
}

inline std::string NameInGoogleTest() {
  const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) return program_invocation_short_name;
  return std::string(test->test_suite_name()) + "." + test->name();
}

class GoogleTestListener : public ::testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) FailureCount::Get().Add();
  }
};

inline bool UseGoogleTest() {
  ::testing::UnitTest::GetInstance()->listeners().Append(new GoogleTestListener);
  Framework& framework = TheFramework();
  framework.fail = [](const std::string& text) { ADD_FAILURE() << text; };
  framework.tell = framework.fail;
  framework.skip = SkipInGoogleTest;
  framework.label = [](const std::string& text) -> std::shared_ptr<void> {
    return std::make_shared<::testing::ScopedTrace>(__FILE__, __LINE__, text);
  };
  framework.test_name = NameInGoogleTest;
  return true;
}
inline const bool kUsesGoogleTest = UseGoogleTest();

}  // namespace detail

// A test with its own host. See Fixture for the members that a test can use.
class EmbeddedTest : public ::testing::Test, protected Fixture {
 protected:
  explicit EmbeddedTest(const EmbeddingOptions& options = {}) : Fixture(options) {}
};

}  // namespace rdmaemu::testing
