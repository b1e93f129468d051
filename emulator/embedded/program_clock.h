// The clocks that the program reads while it lives in the hosts' time (docs/embedding.md, "Program
// time"). Thread-safe; Now is async-signal-safe.
#pragma once

#include <time.h>

#include <optional>
#include <span>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

class ProgramClock {
 public:
  // The program's clocks show the hosts' time.
  static bool IsOfHosts();
  // The program's clocks differ from the machine's: they are the hosts', or were until the hosts
  // were closed. From then on they run as the machine's do and stay ahead of them, so that
  // CLOCK_MONOTONIC never goes back.
  static bool DiffersFromMachine();
  // CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_TAI and their relatives. The clocks of
  // processor time are the machine's.
  static bool Covers(clockid_t clock);
  // What the clock, which Covers answers for, shows to the program. CLOCK_REALTIME since 1970.
  static Duration Now(clockid_t clock);
  // When the hosts' time is that the program's clock shows `shown`. Only while IsOfHosts.
  static Time HostTime(clockid_t clock, Duration shown);

  // Of the calling thread's reads in a row, without another use of the library, this is one after
  // which the thread counts as waiting for time.
  static bool IsSpin();
  static void ForgetReads();

  // The hosts' time begins to be the program's, at Time(): each clock moves forward to the next
  // whole second, so that rounded times are the same in each run.
  static void Begin();
  // The same with what the clocks of `clocks` show at Time().
  static void Begin(std::span<const clockid_t> clocks, std::span<const Duration> bases);
  // The hosts' time has moved.
  static void Publish(Time now);
  static void End();
};

}  // namespace rdmaemu::embedded
