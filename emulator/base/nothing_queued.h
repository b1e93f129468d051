#pragma once

namespace rdmaemu {

// The error of a call that takes an event when no event is queued. The value is above the kernel's
// MAX_ERRNO (4095), so that no fault rule can return it.
inline constexpr int kNothingQueued = 4096;

}  // namespace rdmaemu
