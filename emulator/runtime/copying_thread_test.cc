#include "emulator/runtime/copying_thread.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace rdmaemu::runtime {
namespace {

// A child that runs `body` and never returns from it.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    body();
    _exit(1);
  }
  ~OtherProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, __WALL);
  }
  pid_t pid() const { return pid_; }
  void AwaitStop() const {
    int status = 0;
    ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }

 private:
  pid_t pid_;
};

void Spin() {
  for (;;) asm volatile("");
}

TEST(CopyingThreadTest, ARunningThreadMayCopy) {
  const OtherProcess child(Spin);
  EXPECT_TRUE(MayCopy(child.pid()));
}

TEST(CopyingThreadTest, AThreadThatASignalStoppedDoesNot) {
  const OtherProcess child(Spin);
  kill(child.pid(), SIGSTOP);
  child.AwaitStop();
  EXPECT_FALSE(MayCopy(child.pid()));
}

TEST(CopyingThreadTest, AThreadThatWaitsInAnotherCallDoesNot) {
  const OtherProcess child([] {
    for (;;) pause();
  });
  while (MayCopy(child.pid())) sched_yield();
}

TEST(CopyingThreadTest, AnEndedThreadDoesNot) {
  pid_t ended = 0;
  {
    const OtherProcess child(Spin);
    ended = child.pid();
    kill(child.pid(), SIGKILL);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
    EXPECT_FALSE(MayCopy(ended)) << "not awaited yet";
  }
  EXPECT_FALSE(MayCopy(ended));
  EXPECT_FALSE(MayCopy(0));
}

// Its tracer may let it enter the call.
TEST(CopyingThreadTest, AThreadThatATracerStoppedAtACopyMayCopy) {
  const OtherProcess child([] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    syscall(SYS_process_vm_writev, getpid(), nullptr, 0, nullptr, 0, 0);
  });
  child.AwaitStop();
  EXPECT_FALSE(MayCopy(child.pid())) << "the tracer has stopped it at a signal";
  for (int calls = 0; !MayCopy(child.pid()); calls++) {
    ASSERT_LT(calls, 20);
    ASSERT_EQ(ptrace(PTRACE_SYSCALL, child.pid(), nullptr, nullptr), 0);
    child.AwaitStop();
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
