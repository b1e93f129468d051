// How a host waits for a copy that a program's thread has begun (copy_jobs.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "emulator/base/memory.h"

namespace rdmaemu::transport {

// How often the host yields before it recalls the job. A copy ends long before, unless its thread
// does not run.
inline constexpr int kYieldsBeforeRecall = 200;
// How often the host then looks at the thread: first between yields, and then between sleeps of a
// millisecond. A thread that copies all this time waits in the kernel for a page, or for a
// debugger.
inline constexpr int kYieldingLooks = 50;
inline constexpr int kMostLooks = 1000;
// A look at a thread that a tracer has stopped counts as so many. The thread has probably made its
// copy, and the tracer may hold it for long.
inline constexpr int kLooksAtTraced = 10;

// Waits until a thread has ended `copy`, or does not begin it. `looks` is the number of looks that
// are left, which several waits can share. Returns false if there are none left, and the thread may
// still copy. `copy` has three functions: HasEnded, and Recall and TakeBack as DirectForm.
template <class Copy>
bool AwaitCopy(Memory& memory, Copy&& copy, int& looks) {
  for (int i = 0; i < kYieldsBeforeRecall && looks > 0; i++) {
    if (copy.HasEnded()) return true;
    memory.LetOthersRun();
  }
  while (looks > 0) {
    const auto thread = copy.Recall();
    const CopyState state = thread ? memory.CopyStateOf(*thread) : CopyState::kMayCopy;
    if (thread && state == CopyState::kElsewhere && copy.TakeBack()) return true;
    if (copy.HasEnded()) return true;
    looks = std::max(looks - (state == CopyState::kTraced ? kLooksAtTraced : 1), 0);
    if (looks == 0 && thread) memory.SayCopyIsLate(*thread);
    if (looks > kMostLooks - kYieldingLooks) {
      memory.LetOthersRun();
    } else {
      memory.LetOthersRunLonger();
    }
  }
  return copy.HasEnded();
}

}  // namespace rdmaemu::transport
