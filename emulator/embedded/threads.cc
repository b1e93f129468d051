#include "emulator/embedded/threads.h"

#include <sys/single_threaded.h>
#include <sys/stat.h>

namespace rdmaemu::embedded {

int CountThreads() {
  if (__libc_single_threaded != 0) return 1;
  // A directory's links: `.`, its name in the parent, and one for each directory in it: a thread.
  constexpr int kOwnLinks = 2;
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0) return kManyThreads;
  return static_cast<int>(tasks.st_nlink) - kOwnLinks;
}

}  // namespace rdmaemu::embedded
