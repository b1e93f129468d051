// A thread that is stopped before its copy does not make it when it continues.
#include "shim/verbs/guarded_copy.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace rdmaemu::shim {
namespace {

struct Shared {
  std::atomic<uint32_t> word;
  std::atomic<bool> is_stepped;  // the tracer counts the child's steps from now on
  char from[16], to[16];
};

class GuardedCopyTest : public ::testing::Test {
 protected:
  GuardedCopyTest()
      : shared(new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{}) {
    strcpy(shared->from, "payload");
  }
  ~GuardedCopyTest() override { munmap(shared, sizeof(Shared)); }
  void SetUp() override {
    if (!CanCopyGuarded()) GTEST_SKIP() << "no rseq: the library makes no copies here";
  }
  // Copies within this process.
  ssize_t Copy(uint32_t expected, bool pull) const {
    const iovec from{shared->from, sizeof shared->from}, to{shared->to, sizeof shared->to};
    const CopyGuard guard{reinterpret_cast<const uint32_t*>(&shared->word), expected};
    return CopyGuarded(guard, getpid(), pull, {pull ? &to : &from, 1}, {pull ? &from : &to, 1});
  }

  Shared* const shared;
};

TEST_F(GuardedCopyTest, CopiesInBothDirections) {
  shared->word = 7;
  for (const bool pull : {false, true}) {
    memset(shared->to, 0, sizeof shared->to);
    EXPECT_EQ(Copy(7, pull), static_cast<ssize_t>(sizeof shared->to));
    EXPECT_STREQ(shared->to, "payload");
  }
}

TEST_F(GuardedCopyTest, CopiesNothingWhenTheWordHasChanged) {
  shared->word = 8;
  EXPECT_EQ(Copy(7, false), -1);
  EXPECT_EQ(errno, ECANCELED);
  EXPECT_STREQ(shared->to, "");
}

TEST_F(GuardedCopyTest, ReportsTheErrorsOfTheSystemCall) {
  const CopyGuard guard{reinterpret_cast<const uint32_t*>(&shared->word), 0};
  const iovec from{shared->from, 1}, nowhere{nullptr, 1};
  EXPECT_EQ(CopyGuarded(guard, getpid(), false, {&from, 1}, {&nowhere, 1}), -1);
  EXPECT_EQ(errno, EFAULT);
}

// Each step stops the thread. So it never comes from the check to the system call, however many
// steps it makes.
TEST_F(GuardedCopyTest, AThreadThatWasStoppedChecksAgain) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    shared->is_stepped = true;
    const bool is_canceled = Copy(0, false) == -1 && errno == ECANCELED;
    _exit(is_canceled ? 0 : 1);
  }
  const auto wait_for = [child] {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  };
  ASSERT_TRUE(WIFSTOPPED(wait_for()));
  constexpr int kSteps = 20000;
  for (int steps = 0; steps < kSteps;) {
    ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
    ASSERT_TRUE(WIFSTOPPED(wait_for())) << "the copy has ended";
    if (shared->is_stepped) steps++;
  }
  EXPECT_STREQ(shared->to, "");
  shared->word = 1;
  ASSERT_EQ(ptrace(PTRACE_CONT, child, nullptr, nullptr), 0);
  const int status = wait_for();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_STREQ(shared->to, "");
}

}  // namespace
}  // namespace rdmaemu::shim
