#include "emulator/embedded/program_clock.h"

#include <array>
#include <atomic>

#include "emulator/embedded/libc_waits.h"

namespace rdmaemu::embedded {
namespace {

// The clocks that differ by more than their granularity.
enum Family : int { kMonotonic, kRealtime, kBoottime, kTai, kFamilies };
constexpr std::array<clockid_t, kFamilies> kClockOf = {CLOCK_MONOTONIC, CLOCK_REALTIME,
                                                       CLOCK_BOOTTIME, CLOCK_TAI};

// Returns -1 for other clocks.
int FamilyOf(clockid_t clock) {
  switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
      return kMonotonic;
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_REALTIME_ALARM:
      return kRealtime;
    case CLOCK_BOOTTIME:
    case CLOCK_BOOTTIME_ALARM:
      return kBoottime;
    case CLOCK_TAI:
      return kTai;
    default:
      return -1;
  }
}

// Offsets to the hosts' time, and to the machine's time after the hosts are closed.
std::array<std::atomic<int64_t>, kFamilies> g_of_hosts_ns, g_of_machine_ns;
std::atomic<int64_t> g_host_now_ns;
std::atomic<bool> g_is_of_hosts, g_differs;
thread_local uint32_t t_reads = 0;

Duration MachineTime(Family family) {
  timespec now{};
  Libc().clock_gettime(kClockOf[family], &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Duration Shown(Family family) {
  if (!g_is_of_hosts.load(std::memory_order_acquire)) {
    return MachineTime(family) + Duration(g_of_machine_ns[family].load(std::memory_order_relaxed));
  }
  return Duration(g_host_now_ns.load(std::memory_order_relaxed) +
                  g_of_hosts_ns[family].load(std::memory_order_relaxed));
}

}  // namespace

bool ProgramClock::IsOfHosts() { return g_is_of_hosts.load(std::memory_order_acquire); }
bool ProgramClock::DiffersFromMachine() { return g_differs.load(std::memory_order_relaxed); }
bool ProgramClock::Covers(clockid_t clock) { return FamilyOf(clock) >= 0; }

Duration ProgramClock::Now(clockid_t clock) { return Shown(Family{FamilyOf(clock)}); }

Time ProgramClock::HostTime(clockid_t clock, Duration shown) {
  return Time(shown - Duration(g_of_hosts_ns[FamilyOf(clock)].load(std::memory_order_relaxed)));
}

bool ProgramClock::IsSpin() {
  constexpr uint32_t kReadsThatAreAWait = 1000;
  return ++t_reads % kReadsThatAreAWait == 0;
}
void ProgramClock::ForgetReads() { t_reads = 0; }

void ProgramClock::Begin() {
  std::array<Duration, kFamilies> bases;
  for (int i = 0; i < kFamilies; i++) {
    bases[i] = std::chrono::ceil<std::chrono::seconds>(Shown(Family{i}));
  }
  Begin(kClockOf, bases);
}

void ProgramClock::Begin(std::span<const clockid_t> clocks, std::span<const Duration> bases) {
  g_host_now_ns = 0;
  for (size_t i = 0; i < clocks.size(); i++) g_of_hosts_ns[FamilyOf(clocks[i])] = bases[i].count();
  g_differs = true;
  g_is_of_hosts = true;
}

void ProgramClock::Publish(Time now) {
  g_host_now_ns.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

void ProgramClock::End() {
  if (!g_is_of_hosts) return;
  for (int i = 0; i < kFamilies; i++) {
    g_of_machine_ns[i] = g_of_hosts_ns[i] + g_host_now_ns - MachineTime(Family{i}).count();
  }
  g_is_of_hosts = false;
}

}  // namespace rdmaemu::embedded
