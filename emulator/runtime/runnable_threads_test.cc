#include "emulator/runtime/runnable_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace rdmaemu::runtime {
namespace {

TEST(RunnableThreads, TheNumberIsBeforeTheSlash) {
  EXPECT_EQ(ParseRunnable("0.42 1.58 2.39 1/190 7642\n"), 1u);
  EXPECT_EQ(ParseRunnable("0.00 0.00 0.00 123/4567 89\n"), 123u);
}

TEST(RunnableThreads, AnotherTextHasNoRunnableThreads) {
  for (const char* text : {"", "/", "1/190", "0.42 /190", "0.42 x/190", "0.42 1x/190", "0.42 1 190",
                           "0.42 99999999999/190"}) {
    EXPECT_EQ(ParseRunnable(text), 0u) << text;
  }
}

TEST(RunnableThreads, TheCallerIsRunnable) {
  if (access("/proc/loadavg", R_OK) != 0) GTEST_SKIP() << "no /proc/loadavg";
  const RunnableThreads threads;
  EXPECT_GE(threads.Count(), 1u);
  EXPECT_GE(threads.processors(), 1u);
}

}  // namespace
}  // namespace rdmaemu::runtime
