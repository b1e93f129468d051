// How a host waits for a copy that a program's thread has begun (copy_jobs.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

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

// The result of RecallCopy.
struct CopyLook {
  std::optional<uint32_t> thread;  // the one that has the copy
  CopyState state = CopyState::kMayCopy;
  bool is_taken_back = false;
};

// Recalls `copy`, and takes it back if its thread does not copy. `copy` has the functions Recall
// and TakeBack of DirectForm.
template <class Copy>
CopyLook RecallCopy(Memory& memory, Copy& copy) {
  CopyLook look{.thread = copy.Recall()};
  if (!look.thread) return look;
  look.state = memory.CopyStateOf(*look.thread);
  look.is_taken_back = look.state == CopyState::kElsewhere && copy.TakeBack();
  return look;
}

// Waits until a thread has ended `copy`, or does not begin it. `looks` is the number of looks that
// are left, which several waits can share. Returns false if there are none left, and the thread may
// still copy. Tells the user so, except if there was only one look. `copy` has the function
// HasEnded, too.
template <class Copy>
bool AwaitCopy(Memory& memory, Copy&& copy, int& looks) {
  const bool is_only_look = looks == 1;
  for (int i = 0; i < kYieldsBeforeRecall && looks > 0; i++) {
    if (copy.HasEnded()) return true;
    memory.LetOthersRun();
  }
  while (looks > 0) {
    const CopyLook look = RecallCopy(memory, copy);
    if (look.is_taken_back || copy.HasEnded()) return true;
    looks = std::max(looks - (look.state == CopyState::kTraced ? kLooksAtTraced : 1), 0);
    if (looks == 0 && look.thread && !is_only_look) memory.SayCopyIsLate(*look.thread);
    if (looks > kMostLooks - kYieldingLooks) {
      memory.LetOthersRun();
    } else {
      memory.LetOthersRunLonger();
    }
  }
  return copy.HasEnded();
}

}  // namespace rdmaemu::transport
