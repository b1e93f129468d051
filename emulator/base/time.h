// Time as a parameter: a point and a length in nanoseconds. The pure core cannot read a clock. The
// runtime or a test passes the time as an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace rdmaemu {

// A clock without now(). Only the caller supplies time points.
struct HostClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<HostClock>;
};

using Duration = HostClock::duration;
using Time = HostClock::time_point;

// The earliest of several deadlines. The time is one register. Code that merged values of type
// std::optional took a tenth of an idle host's time.
class Earliest {
 public:
  void Note(const std::optional<Time>& deadline) {
    if (deadline && *deadline < time_) time_ = *deadline;
  }
  // Returns nothing when there was no deadline.
  std::optional<Time> deadline() const {
    return time_ == Time::max() ? std::nullopt : std::optional(time_);
  }

 private:
  Time time_ = Time::max();
};

// Returns 4.096 us * 2^exponent, the encoding of a QP's local ACK timeout (IBTA 9.7.6.1.3).
constexpr Duration AckTimeout(unsigned exponent) { return Duration(INT64_C(4096) << exponent); }

// Returns the kernel CM's value of the same 5-bit exponent: 2^(exponent - 8) ms, at least 1 ms
// (cm_convert_to_ms).
constexpr Duration CmTimeout(unsigned exponent) {
  return std::chrono::milliseconds(INT64_C(1) << (exponent > 8 ? exponent - 8 : 0));
}

}  // namespace rdmaemu
