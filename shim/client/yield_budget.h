// How often a thread yields before it sleeps.
#pragma once

#include <cstdint>

#include "shim/client/machine_clock.h"

namespace rdmaemu::client {

// A thread that yields for as long as a wake-up by the kernel costs waits at most twice as long as
// with the better choice. Alone on a processor, 400 yields take 0.2 ms, and beside a busy thread
// they take 100 times as long, so a number of yields is no measure. Not thread-safe.
class YieldBudget {
 public:
  // In 50 us, the host or the peer of a connection answers if it has a processor.
  static constexpr uint64_t kYieldFor_ns = 50'000;
  // One yield may last longer, while the thread that this one waits for has not run yet.
  static constexpr int kMinYields = 4;

  // Returns true if the thread should yield once more before it sleeps. `is_host_here`: the host
  // runs on this processor. Then more yields than kMinYields are in vain, because a yield between
  // two sessions may not give the processor to the host (emulator/abi/host_turn.h).
  bool Take(bool is_host_here = false) {
    if (yields_++ == 0) begun_ns_ = MachineNow_ns();
    return yields_ <= kMinYields || (!is_host_here && MachineNow_ns() - begun_ns_ < kYieldFor_ns);
  }

 private:
  int yields_ = 0;
  uint64_t begun_ns_ = 0;
};

}  // namespace rdmaemu::client
