// The clocks that the program reads while the hosts' time is the program's time (docs/embedding.md,
// "Program time"). Thread-safe. Now is async-signal-safe.
#pragma once

#include <time.h>

#include <optional>
#include <span>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

class ProgramClock {
 public:
  // Returns true while the program's clocks show the hosts' time.
  static bool IsOfHosts();
  // Returns true if the program's clocks differ from the machine's. The clocks show the hosts' time
  // until the hosts are closed. Afterwards they run at the machine's speed but stay ahead of it, so
  // that CLOCK_MONOTONIC never goes back.
  static bool DiffersFromMachine();
  // Returns true for CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_TAI and their variants.
  // Clocks of processor time remain the machine's.
  static bool Covers(clockid_t clock);
  // Returns what a covered clock shows to the program. CLOCK_REALTIME counts from 1970.
  static Duration Now(clockid_t clock);
  // Returns the hosts' time at which the program's clock shows `shown`. Call this only while
  // IsOfHosts.
  static Time HostTime(clockid_t clock, Duration shown);

  // Counts one clock read of the calling thread. Returns true after many consecutive reads without
  // another use of the library, because the thread then waits for time.
  static bool IsSpin();
  static void ForgetReads();

  // Makes the hosts' time the program's time, from Time() on. Each clock moves forward to the next
  // whole second. Rounded times are therefore the same in each run.
  static void Begin();
  // Does the same with given values of `clocks` at Time().
  static void Begin(std::span<const clockid_t> clocks, std::span<const Duration> bases);
  // Publishes the hosts' new time to the clocks.
  static void Publish(Time now);
  static void End();
};

}  // namespace rdmaemu::embedded
