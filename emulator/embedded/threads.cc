#include "emulator/embedded/threads.h"

#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "emulator/embedded/proc_files.h"

// Defined in a program built with -fsanitize=thread.
extern "C" void __tsan_init() __attribute__((weak));

namespace rdmaemu::embedded {

int CountThreads() {
  if (__libc_single_threaded != 0) return 1;
  // The directory's link count: `.`, its name in the parent, and one link for each thread.
  constexpr int kOwnLinks = 2;
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0) return kManyThreads;
  // ThreadSanitizer's own thread starts with the program's second thread, and never ends.
  const int of_sanitizer = __tsan_init != nullptr ? 1 : 0;
  return std::max(1, static_cast<int>(tasks.st_nlink) - kOwnLinks - of_sanitizer);
}

namespace {

// Calls `visit` for each other thread of this process as ForEachThread does.
template <class Visit>
bool ForEachOther(const Visit& visit) {
  return ForEachThread("self", [&, own = gettid()](pid_t id, const ProcThread& thread) {
    return id == own || visit(id, thread);
  });
}

}  // namespace

bool OthersSleep(const std::function<bool(pid_t)>& may_run) {
  // A thread may run after its state was read, wake up a thread whose state is read later, and
  // sleep again. In that case its run time differs.
  const uint64_t before_ns = OthersRan_ns(may_run);
  const bool sleep = ForEachOther(
      [&](pid_t id, const ProcThread& thread) { return !may_run(id) || thread.Sleeps(); });
  return sleep && OthersRan_ns(may_run) == before_ns;
}

bool DoesOtherWaitFor(const void* object, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(object);
  return !ForEachOther([&](pid_t, const ProcThread& thread) {
    long number = 0;
    unsigned long word = 0;
    const ProcFile call = thread.Read("syscall");  // "202 0x7ffc... ...", or "running"
    if (sscanf(call.text, "%ld %lx", &number, &word) != 2 || number != SYS_futex) return true;
    return word < begin || word >= begin + bytes;
  });
}

uint64_t OthersRan_ns(const std::function<bool(pid_t)>& counts) {
  uint64_t ran_ns = 0;
  ForEachOther([&](pid_t id, const ProcThread& thread) {
    if (counts(id)) ran_ns += thread.RunTime_ns();
    return true;
  });
  return ran_ns;
}

std::string NameOfThread(pid_t thread) {
  std::string name = ProcFile("/proc/self/task/" + std::to_string(thread) + "/comm").text;
  if (!name.empty()) name.pop_back();  // the newline
  return name;
}

}  // namespace rdmaemu::embedded
