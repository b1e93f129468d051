// The errno-valued result of a call that found an empty event queue.
#pragma once

namespace rdmaemu {

// The error of a call that takes an event when no event is queued. The value is above the kernel's
// MAX_ERRNO (4095), so no fault rule can return it.
inline constexpr int kNothingQueued = 4096;

}  // namespace rdmaemu
