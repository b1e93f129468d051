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

#include "emulator/runtime/process_state.h"

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
  EXPECT_EQ(CopyStateOf(child.pid()), CopyState::kMayCopy);
  EXPECT_TRUE(StateOf(child.pid())->is_ready());
}

TEST(CopyingThreadTest, AThreadThatASignalStoppedDoesNot) {
  const OtherProcess child(Spin);
  kill(child.pid(), SIGSTOP);
  child.AwaitStop();
  EXPECT_EQ(CopyStateOf(child.pid()), CopyState::kElsewhere);
  EXPECT_TRUE(StateOf(child.pid())->is_stopped());
}

TEST(CopyingThreadTest, AThreadThatWaitsInAnotherCallDoesNot) {
  const OtherProcess child([] {
    for (;;) pause();
  });
  while (CopyStateOf(child.pid()) != CopyState::kElsewhere) sched_yield();
}

TEST(CopyingThreadTest, AnEndedThreadDoesNot) {
  pid_t ended = 0;
  {
    const OtherProcess child(Spin);
    ended = child.pid();
    kill(child.pid(), SIGKILL);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(CopyStateOf(ended), CopyState::kElsewhere) << "not awaited yet";
  }
  EXPECT_EQ(CopyStateOf(ended), CopyState::kElsewhere);
  EXPECT_EQ(CopyStateOf(0), CopyState::kElsewhere);
  EXPECT_FALSE(StateOf(ended));
}

// Its tracer may let it enter the call.
TEST(CopyingThreadTest, AThreadThatATracerStoppedAtACopyIsTraced) {
  const OtherProcess child([] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    syscall(SYS_process_vm_writev, getpid(), nullptr, 0, nullptr, 0, 0);
  });
  child.AwaitStop();
  EXPECT_EQ(CopyStateOf(child.pid()), CopyState::kElsewhere)
      << "the tracer has stopped it at a signal";
  for (int calls = 0; CopyStateOf(child.pid()) != CopyState::kTraced; calls++) {
    ASSERT_LT(calls, 20);
    ASSERT_EQ(ptrace(PTRACE_SYSCALL, child.pid(), nullptr, nullptr), 0);
    child.AwaitStop();
  }
}

}  // namespace
}  // namespace rdmaemu::runtime
