#include "emulator/runtime/clock.h"

#include <dlfcn.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <string>

namespace rdmaemu::runtime {
namespace {

using ClockFunction = int (*)(clockid_t, timespec*);
constinit std::atomic<ClockFunction> g_clock_of_libc{nullptr};

constexpr int64_t kMillion = 1'000'000;
constexpr std::string_view kScaled = "scaled:";

// Parses a decimal number to millionths. Returns nullopt if it is not a number, or has more than
// six decimal places or kMostDigits digits.
std::optional<int64_t> ParseMillionths(std::string_view text) {
  constexpr size_t kMostDigits = 9;
  if (text.empty() || text.front() == '.' || text.back() == '.') return std::nullopt;
  const size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string places(point == text.npos ? "" : text.substr(point + 1));
  if (whole.size() > kMostDigits || places.size() > 6) return std::nullopt;
  places.resize(6, '0');
  int64_t number = 0;
  for (const char digit : std::string(whole) + places) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  return number;
}

int64_t Scaled(int64_t number, int64_t times, int64_t divisor) {
  return static_cast<int64_t>(static_cast<__int128>(number) * times / divisor);
}

}  // namespace

Duration MachineTime(clockid_t clock) {
  // The C library's function, because librdmaemu.so.1 gives the program another clock_gettime. No
  // static variable of the function: a program may fork while another thread initializes it, and
  // the child would wait for that thread for ever.
  ClockFunction of_libc = g_clock_of_libc.load(std::memory_order_relaxed);
  if (of_libc == nullptr) {
    of_libc = reinterpret_cast<ClockFunction>(dlsym(RTLD_NEXT, "clock_gettime"));
    if (of_libc == nullptr) of_libc = &clock_gettime;
    g_clock_of_libc.store(of_libc, std::memory_order_relaxed);
  }
  timespec now;
  of_libc(clock, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Time RealNow() { return Time(MachineTime(CLOCK_MONOTONIC)); }

OrMessage<ClockOption> ParseClockOption(std::string_view text) {
  if (text.empty() || text == "real") return ClockOption{};
  if (text == "virtual") return ClockOption{ClockOption::Mode::kVirtual, kMillion};
  if (text == "manual") return ClockOption{ClockOption::Mode::kManual, kMillion};
  if (text == "program") return ClockOption{ClockOption::Mode::kProgram, kMillion};
  if (text.starts_with(kScaled)) {
    const auto scale = ParseMillionths(text.substr(kScaled.size()));
    if (scale && *scale >= ClockOption::kMinPartsPerMillion &&
        *scale <= ClockOption::kMaxPartsPerMillion) {
      return ClockOption{ClockOption::Mode::kScaled, *scale};
    }
    return tl::unexpected("\"" + std::string(text.substr(kScaled.size())) +
                          "\" is not a scale of time: give a number from 0.01 to 100, as in"
                          " --clock scaled:4");
  }
  return tl::unexpected("there is no clock \"" + std::string(text) +
                        "\"; choose one of: real, scaled:K, virtual, manual, program");
}

Time ScaledClock::At(Time real) const {
  return Time(Duration(Scaled(real.time_since_epoch().count(), parts_per_million_, kMillion)));
}

// Rounded up, so that a sleeper does not wake up before the deadline.
Duration ScaledClock::RealTime(Duration length) const {
  return Duration(Scaled(length.count(), kMillion, parts_per_million_) + 1);
}

}  // namespace rdmaemu::runtime
