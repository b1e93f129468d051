#include "emulator/runtime/process_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>
#include <string>

#include "tests/support/refuse_calls.h"

namespace rdmaemu::runtime {
namespace {

// A child with a copy of this process's memory at the time of the fork.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() { End(); }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

constexpr ProcessId kFirst{1}, kSecond{2};
constexpr size_t kBytes = 300000;  // several bounce buffers

class ProcessMemoryTest : public ::testing::Test {
 protected:
  ProcessMemoryTest() : buffer_(kBytes, '\0') {
    for (size_t i = 0; i < kBytes; i++) buffer_[i] = static_cast<char>(i * 31 + (i >> 8));
  }
  MemoryRange Range(size_t offset, size_t length) const {
    return {reinterpret_cast<uint64_t>(buffer_.data()) + offset, length};
  }
  std::string ReadAll(ProcessId process) {
    std::string out(kBytes, '\0');
    const MemoryRange whole = Range(0, kBytes);
    EXPECT_TRUE(memory_.Read(process, {&whole, 1}, std::as_writable_bytes(std::span(out))));
    return out;
  }

  std::string buffer_;
  std::vector<std::string> warnings_;
  ProcessMemory memory_{[this](const std::string& line) { warnings_.push_back(line); }};
};

// The host may detect the end later than other processes do.
TEST_F(ProcessMemoryTest, AProcessThatHasEndedIsToldFromMemoryThatIsNotThere) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  std::byte byte{};
  const MemoryRange there = Range(0, 1), nowhere{0, 1};
  EXPECT_EQ(memory_.Write(kFirst, {&nowhere, 1}, {&byte, 1}).error().code, EFAULT);
  child.End();
  EXPECT_EQ(memory_.Write(kFirst, {&there, 1}, {&byte, 1}).error().code, ESRCH);
  memory_.RemoveProcess(kFirst);
  EXPECT_EQ(memory_.Write(kFirst, {&there, 1}, {&byte, 1}).error().code, EFAULT);
}

TEST_F(ProcessMemoryTest, ReadGathersAndWriteScattersInOrder) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  const MemoryRange ranges[] = {Range(10, 3), Range(0, 0), Range(100, 5)};
  std::string out(8, '\0');
  ASSERT_TRUE(memory_.Read(kFirst, ranges, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, buffer_.substr(10, 3) + buffer_.substr(100, 5));
  const std::string in = "abcdefgh";
  ASSERT_TRUE(memory_.Write(kFirst, ranges, std::as_bytes(std::span(in))));
  std::string expected = buffer_;
  expected.replace(10, 3, "abc").replace(100, 5, "defgh");
  EXPECT_EQ(ReadAll(kFirst), expected);
}

TEST_F(ProcessMemoryTest, MoreRangesThanOneCallOfTheKernelTakesAreMoved) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  std::vector<MemoryRange> ranges;
  std::string expected;
  for (size_t i = 0; i < 5000; i++) {
    ranges.push_back(Range(i * 50, 7));
    expected += buffer_.substr(i * 50, 7);
  }
  std::string out(expected.size(), '\0');
  ASSERT_TRUE(memory_.Read(kFirst, ranges, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, expected);
}

TEST_F(ProcessMemoryTest, CopyMovesBetweenListsThatAreCutDifferently) {
  Child first;
  const std::string original = buffer_;
  buffer_.assign(kBytes, '.');
  Child second;
  memory_.AddProcess(kFirst, first.pid());
  memory_.AddProcess(kSecond, second.pid());
  const MemoryRange from[] = {Range(1, 200001), Range(250000, 3)};
  const MemoryRange to[] = {Range(0, 5), Range(5, 0), Range(99990, 199999)};
  ASSERT_TRUE(memory_.Copy(kFirst, from, kSecond, to));
  const std::string moved = original.substr(1, 200001) + original.substr(250000, 3);
  std::string expected(kBytes, '.');
  expected.replace(0, 5, moved.substr(0, 5)).replace(99990, 199999, moved.substr(5));
  EXPECT_EQ(ReadAll(kSecond), expected);
}

TEST_F(ProcessMemoryTest, CopyWithinThisProcessNeedsNoOtherSide) {
  memory_.AddProcess(kFirst, getpid());
  const std::string expected = buffer_.substr(0, 1000);
  const MemoryRange from = Range(0, 1000), to = Range(5000, 1000);
  ASSERT_TRUE(memory_.Copy(kFirst, {&from, 1}, kFirst, {&to, 1}));
  EXPECT_EQ(buffer_.substr(5000, 1000), expected);
}

TEST_F(ProcessMemoryTest, UnmappedBytesAndUnknownProcessesAreEfault) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  std::byte byte{};
  const MemoryRange nowhere{16, 1};
  EXPECT_EQ(memory_.Read(kFirst, {&nowhere, 1}, {&byte, 1}), Fail(EFAULT));
  EXPECT_EQ(memory_.Write(kFirst, {&nowhere, 1}, {&byte, 1}), Fail(EFAULT));
  const MemoryRange one = Range(0, 1);
  EXPECT_EQ(memory_.Read(ProcessId{77}, {&one, 1}, {&byte, 1}), Fail(EFAULT));
  const MemoryRange good_then_bad[] = {Range(0, 1), nowhere};
  std::byte two[2];
  EXPECT_EQ(memory_.Read(kFirst, good_then_bad, two), Fail(EFAULT));
}

TEST_F(ProcessMemoryTest, ListsOfDifferentTotalsAreEfault) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  const MemoryRange four = Range(0, 4);
  std::byte two[2], eight[8];
  EXPECT_EQ(memory_.Read(kFirst, {&four, 1}, two), Fail(EFAULT));
  EXPECT_EQ(memory_.Read(kFirst, {&four, 1}, eight), Fail(EFAULT));
  const MemoryRange five = Range(10, 5);
  EXPECT_EQ(memory_.Copy(kFirst, {&five, 1}, kFirst, {&four, 1}), Fail(EFAULT));
}

TEST_F(ProcessMemoryTest, AProcessThatHasEndedIsToldFromOneThatIsNotThere) {
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  std::byte byte;
  const MemoryRange one = Range(0, 1);
  // The pid may belong to another process by now.
  memory_.ProcessEnded(kFirst);
  EXPECT_EQ(memory_.Read(kFirst, {&one, 1}, {&byte, 1}), Fail(ESRCH));
  memory_.RemoveProcess(kFirst);
  EXPECT_EQ(memory_.Read(kFirst, {&one, 1}, {&byte, 1}), Fail(EFAULT));
}

TEST_F(ProcessMemoryTest, ReachableAsksForEveryPageAndForItsRights) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* const memory = static_cast<char*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  mprotect(memory + page, page, PROT_READ);
  Child child;
  memory_.AddProcess(kFirst, child.pid());
  const auto reachable = [&](size_t offset, size_t length, bool write) {
    return memory_.Reachable(kFirst, {reinterpret_cast<uint64_t>(memory) + offset, length}, write);
  };
  EXPECT_TRUE(reachable(0, page, true));
  EXPECT_TRUE(reachable(0, 3 * page, false));
  EXPECT_FALSE(reachable(0, page + 1, true));
  EXPECT_TRUE(memory_.Reachable(kFirst, {0, 0}, true));
  EXPECT_TRUE(memory_.Admits(kFirst, reinterpret_cast<uint64_t>(memory)));
  EXPECT_FALSE(memory_.Admits(kFirst, 0));
  EXPECT_FALSE(memory_.Reachable(kFirst, {0, 1}, false));
  child.End();
  EXPECT_FALSE(reachable(0, page, false));
  munmap(memory, 3 * page);
}

// SO_PEERCRED gives such a process the pid 0.
TEST_F(ProcessMemoryTest, AProgramOfAnotherPidNamespaceIsOutOfReachAndToldOfOnce) {
  memory_.AddProcess(kFirst, 0);
  memory_.AddProcess(kSecond, 0);
  const MemoryRange one = Range(0, 1);
  std::byte byte{};
  EXPECT_EQ(memory_.Read(kFirst, {&one, 1}, {&byte, 1}), Fail(EFAULT));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("pid namespace"), std::string::npos);
}

class ProcessMemoryInSandboxTest : public ProcessMemoryTest {
 protected:
  // Runs `body` in a separate process. A failure there fails this test.
  template <class Body>
  void InSandbox(std::initializer_list<int> refused, Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
      rdmaemu::testing::RefuseCalls(refused, EPERM);
      body();
      _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

TEST_F(ProcessMemoryInSandboxTest, WithoutProcessVmCallsMemoryIsReachedByItsFile) {
  InSandbox({SYS_process_vm_readv, SYS_process_vm_writev}, [&] {
    EXPECT_EQ(WhyMemoryIsRefused(), "");
    const std::string original = buffer_;
    Child first;
    buffer_.assign(kBytes, '.');
    Child second;
    memory_.AddProcess(kFirst, first.pid());
    memory_.AddProcess(kSecond, second.pid());
    EXPECT_EQ(ReadAll(kFirst), original);
    const MemoryRange from[] = {Range(1, 200001), Range(250000, 3)};
    const MemoryRange to[] = {Range(0, 5), Range(5, 0), Range(99990, 199999)};
    ASSERT_TRUE(memory_.Copy(kFirst, from, kSecond, to));
    const std::string moved = original.substr(1, 200001) + original.substr(250000, 3);
    std::string expected(kBytes, '.');
    expected.replace(0, 5, moved.substr(0, 5)).replace(99990, 199999, moved.substr(5));
    EXPECT_EQ(ReadAll(kSecond), expected);
    const MemoryRange nowhere{16, 1};
    std::byte byte{};
    EXPECT_EQ(memory_.Read(kFirst, {&nowhere, 1}, {&byte, 1}), Fail(EFAULT));
    EXPECT_TRUE(warnings_.empty());
    // The memory of an ended process is not accessible. A new process with the same pid gets its
    // own file.
    const MemoryRange one = Range(0, 1);
    first.End();
    EXPECT_FALSE(memory_.Read(kFirst, {&one, 1}, {&byte, 1}));
    memory_.RemoveProcess(kFirst);
    memory_.AddProcess(kFirst, getpid());
    EXPECT_TRUE(memory_.Write(kFirst, {&one, 1}, {&byte, 1}));
    EXPECT_EQ(buffer_[0], '\0');
  });
}

// Writes to /proc/PID/mem ignore page protection.
TEST_F(ProcessMemoryInSandboxTest, PagesThatMayNotBeWrittenAreNotByTheFileEither) {
  InSandbox({SYS_process_vm_readv, SYS_process_vm_writev}, [&] {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const memory =
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    char* const bytes = static_cast<char*>(memory);
    bytes[page] = 'x';
    mprotect(bytes + page, page, PROT_READ);
    memory_.AddProcess(kFirst, getpid());
    const MemoryRange at_end{reinterpret_cast<uint64_t>(bytes) + page - 1, 2};
    std::byte two[2] = {};
    EXPECT_TRUE(memory_.Read(kFirst, {&at_end, 1}, two));
    EXPECT_EQ(memory_.Write(kFirst, {&at_end, 1}, two), Fail(EFAULT));
    EXPECT_EQ(bytes[page], 'x');
    mprotect(bytes, page, PROT_NONE);
    const MemoryRange hidden{reinterpret_cast<uint64_t>(bytes) + 8, 1};
    EXPECT_EQ(memory_.Read(kFirst, {&hidden, 1}, {two, 1}), Fail(EFAULT));
  });
}

TEST_F(ProcessMemoryInSandboxTest, WhatToDoIsSaidOnceWhereTheFileIsRefusedToo) {
  InSandbox({SYS_process_vm_readv, SYS_process_vm_writev, SYS_openat}, [&] {
    memory_.AddProcess(kFirst, getpid());
    const MemoryRange one = Range(0, 1);
    std::byte byte{};
    EXPECT_EQ(memory_.Read(kFirst, {&one, 1}, {&byte, 1}), Fail(EFAULT));
    EXPECT_EQ(memory_.Write(kFirst, {&one, 1}, {&byte, 1}), Fail(EFAULT));
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("seccomp"), std::string::npos);
    EXPECT_NE(WhyMemoryIsRefused().find("seccomp"), std::string::npos);
  });
}

}  // namespace
}  // namespace rdmaemu::runtime
