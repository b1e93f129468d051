// Replaces the clocks of the C library. They show the hosts' time in program time, and otherwise
// the machine's time.
#include <sys/time.h>
#include <time.h>

#include "emulator/embedded/waits/drive.h"

namespace rdmaemu::embedded {
namespace {

// Reads a clock. A program that reads the clock in a loop waits for time.
Duration Read(clockid_t clock) {
  if (DomainTime::MayHaveMoved() && !HostsMutex::IsMine()) ProcessHost::Get().Resume();
  if (DomainTime::MayHaveStopped() && !HostsMutex::IsMine()) {
    ProcessHost::Get().LookAtTimeAgain();
  }
  if (ProgramClock::IsOfHosts() && ProgramClock::IsSpin() && !HostsMutex::IsMine()) {
    ProcessHost::Get().SpinOnClock();
  }
  return ProgramClock::Now(clock);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

RDMAEMU_WAIT int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (!ProgramClock::DiffersFromMachine() || !ProgramClock::Covers(clock)) {
    return Libc().clock_gettime(clock, now);
  }
  *now = ToTimespec(Read(clock));
  return 0;
}

RDMAEMU_WAIT int gettimeofday(timeval* now, void* zone) noexcept {
  const int result = Libc().gettimeofday(now, zone);
  if (result != 0 || !ProgramClock::DiffersFromMachine()) return result;
  const timespec shown = ToTimespec(Read(CLOCK_REALTIME));
  // The header declares `now` non-null, but the C library accepts a null pointer.
  timeval* volatile const given = now;
  if (given != nullptr) *given = {shown.tv_sec, static_cast<suseconds_t>(shown.tv_nsec / 1000)};
  return 0;
}

RDMAEMU_WAIT time_t time(time_t* now) noexcept {
  if (!ProgramClock::DiffersFromMachine()) return Libc().time(now);
  const time_t shown = ToTimespec(Read(CLOCK_REALTIME)).tv_sec;
  if (now != nullptr) *now = shown;
  return shown;
}

RDMAEMU_WAIT int timespec_get(timespec* now, int base) noexcept {
  if (!ProgramClock::DiffersFromMachine() || base != TIME_UTC) {
    return Libc().timespec_get(now, base);
  }
  *now = ToTimespec(Read(CLOCK_REALTIME));
  return base;
}
