// EINTR as POSIX has it: a call that ends in EINTR has had no effect, so that the program can
// repeat the call. (Fault rules make calls end in EINTR; a host never does by itself.)
#pragma once

#include <errno.h>

namespace rdmaemu::client {

// A rule that interrupts every call must not hold the program for ever.
inline constexpr int kMaxRepeats = 100;

// Repeats a step that the program cannot repeat: because an earlier step of the same call has taken
// effect, or because the function cannot report an error. `step` returns 0 or a positive errno.
template <class Step>
int Uninterrupted(const Step& step) {
  int error = step();
  for (int i = 0; error == EINTR && i < kMaxRepeats; i++) error = step();
  return error;
}

}  // namespace rdmaemu::client
