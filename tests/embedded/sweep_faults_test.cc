// rdmaemu/sweep_faults.hpp: a correct body survives every fault, and each mistake is a failure with
// its rule.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rdmaemu/testing.h"

namespace rdmaemu_test {
namespace {

using rdmaemu::testing::FaultOutcome;
using rdmaemu::testing::FaultReport;
using rdmaemu::testing::SweepFaults;
using rdmaemu::testing::SweepOptions;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Registers two regions, and counts the runs.
struct Regions {
  bool throws_if_refused = false;
  bool returns_false_at_second = false;
  int* runs = nullptr;

  bool operator()() const {
    if (runs != nullptr) ++*runs;
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    ibv_context* const context = count > 0 ? ibv_open_device(devices[0]) : nullptr;
    if (devices != nullptr) ibv_free_device_list(devices);
    if (context == nullptr) return true;  // a fault
    ibv_pd* const pd = ibv_alloc_pd(context);
    char bytes[2][64];
    bool result = true;
    for (int i = 0; i < 2 && pd != nullptr; i++) {
      ibv_mr* const mr = ibv_reg_mr(pd, bytes[i], sizeof bytes[i], IBV_ACCESS_LOCAL_WRITE);
      if (mr != nullptr) ibv_dereg_mr(mr);
      if (mr == nullptr && returns_false_at_second && i == 1) result = false;
      if (mr == nullptr && throws_if_refused) {
        ibv_dealloc_pd(pd);
        ibv_close_device(context);
        throw std::runtime_error("refused");
      }
    }
    if (pd != nullptr) ibv_dealloc_pd(pd);
    ibv_close_device(context);
    return result;
  }
};

TEST(SweepFaultsTest, ACorrectBodySurvivesEveryFault) {
  int runs = 0;
  const FaultReport report = SweepFaults({}, Regions{.runs = &runs});
  EXPECT_TRUE(report.ok()) << report;
  EXPECT_THAT(report.never_fired(), IsEmpty());
  EXPECT_THAT(report.survived(), AllOf(Contains("call.reg_mr#1: errno=ENOMEM"),
                                       Contains("call.reg_mr#2: errno=EFAULT"),
                                       Contains("call.alloc_pd#1: errno=ENOMEM")));
  EXPECT_EQ(static_cast<size_t>(runs), 1 + report.outcomes().size());
}

TEST(SweepFaultsTest, EachPointThatFailsIsAFailureWithItsRule) {
  static FaultReport report;
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    report = SweepFaults({}, Regions{.returns_false_at_second = true});
  }
  const std::vector<std::string> failed = report.failed();
  EXPECT_THAT(failed, Each(StartsWith("call.reg_mr#2")));
  EXPECT_THAT(failed, Contains("call.reg_mr#2: errno=ENOMEM"));
  ASSERT_EQ(static_cast<size_t>(failures.size()), failed.size());
  EXPECT_THAT(failures.GetTestPartResult(0).message(),
              HasSubstr("at = \"call.reg_mr\", nth = 2, errno = \"ENOMEM\""));
}

TEST(SweepFaultsTest, PatternsAndLimitsChoose) {
  SweepOptions options;
  options.points = {"call.reg_*"};
  options.faults = {"errno=ENOMEM"};
  EXPECT_EQ(
      SweepFaults(options, Regions{}).survived(),
      (std::vector<std::string>{"call.reg_mr#1: errno=ENOMEM", "call.reg_mr#2: errno=ENOMEM"}));
  options.per_site = 1;
  EXPECT_EQ(SweepFaults(options, Regions{}).survived(),
            (std::vector<std::string>{"call.reg_mr#1: errno=ENOMEM"}));
  options = {};
  options.max_runs = 3;
  EXPECT_EQ(SweepFaults(options, Regions{}).outcomes().size(), 3u);
}

TEST(SweepFaultsTest, ABodyThatFailsWithoutAFaultIsNotSwept) {
  EXPECT_NONFATAL_FAILURE((void)SweepFaults({}, [] { return false; }), "fails without a fault");
  EXPECT_NONFATAL_FAILURE((void)SweepFaults({}, [] {}), "nothing to sweep");
}

TEST(SweepFaultsTest, AnExceptionIsAFailureOfItsPoint) {
  static FaultReport report;
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    SweepOptions options;
    options.points = {"call.reg_mr"};
    options.faults = {"errno=*"};
    report = SweepFaults(options, Regions{.throws_if_refused = true});
  }
  EXPECT_EQ(report.failed().size(), report.outcomes().size());
  EXPECT_EQ(report.outcomes().at(0).reason, "refused");
}

}  // namespace
}  // namespace rdmaemu_test
