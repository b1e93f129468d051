#include "shim/client/own_pid.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace rdmaemu::client {
namespace {

bool IsRight() { return OwnPid() == static_cast<uint32_t>(getpid()); }

// Returns whether the child exits with 0.
bool Succeeds(pid_t child) {
  int status = 1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(OwnPidTest, EachCallReturnsGetpid) {
  EXPECT_TRUE(IsRight());
  EXPECT_TRUE(IsRight());
}

TEST(OwnPidTest, AForkedChildAndItsChildHaveTheirOwn) {
  ASSERT_TRUE(IsRight());
  const pid_t child = fork();
  if (child == 0) {
    if (!IsRight() || !IsRight()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(IsRight() ? 0 : 1);
    _exit(Succeeds(grandchild) ? 0 : 1);
  }
  EXPECT_TRUE(Succeeds(child));
  EXPECT_TRUE(IsRight());
}

// No handler of pthread_atfork(3) runs.
TEST(OwnPidTest, AChildOfTheSystemCallHasItsOwn) {
  ASSERT_TRUE(IsRight());
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) _exit(IsRight() ? 0 : 1);
  EXPECT_TRUE(Succeeds(child));
}

TEST(OwnPidTest, AllThreadsGetTheSame) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) threads.emplace_back([] { EXPECT_TRUE(IsRight()); });
  for (std::thread& thread : threads) thread.join();
}

TEST(OwnPidTest, OnlyAnotherProcessFindsAnotherOwner) {
  EXPECT_EQ(OtherOwner(), 0u) << "no process has connected";
  OwnConnection();
  EXPECT_EQ(OtherOwner(), 0u);
  const auto parent = static_cast<uint32_t>(getpid());
  const pid_t child = _Fork();
  if (child == 0) {
    if (OtherOwner() != parent) _exit(1);
    OwnConnection();
    _exit(OtherOwner() == 0 ? 0 : 2);
  }
  EXPECT_TRUE(Succeeds(child));
}

}  // namespace
}  // namespace rdmaemu::client
