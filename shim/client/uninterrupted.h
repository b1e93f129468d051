// EINTR as in POSIX: a call that fails with EINTR has had no effect, so the program can repeat it.
// Fault rules make calls fail with EINTR. A host never does so itself.
#pragma once

#include <errno.h>

namespace rdmaemu::client {

// The limit of repetitions. A rule that interrupts every call must not block the program forever.
inline constexpr int kMaxRepeats = 100;

// Repeats a step after EINTR. Use this where the program cannot repeat the step: an earlier step of
// the same call has taken effect, or the function cannot report errors. `step` returns 0 or a
// positive errno.
template <class Step>
int Uninterrupted(const Step& step) {
  int error = step();
  for (int i = 0; error == EINTR && i < kMaxRepeats; i++) error = step();
  return error;
}

}  // namespace rdmaemu::client
