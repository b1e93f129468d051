#pragma once

namespace rdmaemu {

// Answers a call that takes an event when no event is queued. Beyond the kernel's MAX_ERRNO (4095),
// so that no fault rule can answer it.
inline constexpr int kNothingQueued = 4096;

}  // namespace rdmaemu
