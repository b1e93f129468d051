// Shared code of the waits in this folder. Each wait has the name of a C library function and
// replaces it in the program and its libraries (docs/embedding.md). A waiting thread runs the
// embedded hosts. Without hosts a wait costs one more branch.
#pragma once

#include <poll.h>
#include <time.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "emulator/embedded/libc_waits.h"
#include "emulator/embedded/process_host.h"
#include "emulator/embedded/program_clock.h"
#include "emulator/runtime/clock.h"

#define RDMAEMU_WAIT extern "C" __attribute__((visibility("default")))

namespace rdmaemu::embedded {

// Returns true if the program itself waits (not this library), and there are hosts to run.
inline bool DrivesHosts() { return ProcessHost::HasHosts() && !HostsMutex::IsMine(); }

inline bool IsValid(const timespec& time) {
  return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000;
}
inline Duration ToDuration(const timespec& time) {
  constexpr time_t kMaxSeconds = 8'000'000'000;  // fits into a Duration, with room to add another
  return std::chrono::seconds(std::min(time.tv_sec, kMaxSeconds)) +
         std::chrono::nanoseconds(time.tv_nsec);
}
inline std::optional<Duration> FromMilliseconds(int timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  return std::chrono::milliseconds(timeout_ms);
}

// Returns the time that the clock shows to the program.
inline Duration ProgramNow(clockid_t clock) {
  if (ProgramClock::Covers(clock)) return ProgramClock::Now(clock);
  timespec now{};
  Libc().clock_gettime(clock, &now);
  return ToDuration(now);
}
// Returns the current time of the clock that counts the program's time-outs: the machine's or the
// hosts'.
inline Time WaitNow() {
  return ProgramClock::IsOfHosts() ? Time(ProgramClock::Now(CLOCK_MONOTONIC)) : runtime::RealNow();
}
// Converts a time of the program's clock to the machine's clock, which may be behind.
inline timespec ToMachine(clockid_t clock, const timespec& until) {
  if (!ProgramClock::DiffersFromMachine() || !ProgramClock::Covers(clock)) return until;
  timespec now{};
  Libc().clock_gettime(clock, &now);
  return ToTimespec(ToDuration(now) + ToDuration(until) - ProgramClock::Now(clock));
}

// Restores errno after a successful wait.
class KeepsErrno {
 public:
  int Answer(int result) const {
    if (result >= 0) errno = before_;
    return result;
  }

 private:
  const int before_ = errno;
};

// Waits for descriptors. `look(timeout)` calls the C library's function with that time-out. A null
// pointer means no time-out.
template <class Look>
int DriveUntilReady(const WaitsFor& what, std::optional<Duration> limit, const Look& look) {
  const timespec at_once = {0, 0};
  const Time until = limit ? WaitNow() + *limit : Time::max();
  ProcessHost& hosts = ProcessHost::Get();
  hosts.Look(/*found_nothing=*/false);
  // Start with the whole limit, so that virtual time advances by exactly that much.
  for (std::optional<Duration> left = limit;;) {
    const int found = look(&at_once);
    if (found != 0) return found;
    if (limit == Duration::zero()) {
      hosts.Look(/*found_nothing=*/true);
      return look(&at_once);
    }
    switch (hosts.DriveWait(what, left)) {
      case ProcessHost::WaitEnd::kReady:
        // Another thread may have taken the event already.
        if (limit) left = std::max(Duration::zero(), until - WaitNow());
        continue;
      case ProcessHost::WaitEnd::kTimedOut:
        return look(&at_once);
      case ProcessHost::WaitEnd::kInterrupted:
        errno = EINTR;
        return -1;
      default: {
        if (!left) return look(nullptr);
        const timespec rest = ToTimespec(*left);
        return look(&rest);
      }
    }
  }
}

}  // namespace rdmaemu::embedded
