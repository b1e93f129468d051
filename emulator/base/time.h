// Time as a parameter: a point and a length in nanoseconds. The pure core cannot read a clock. The
// runtime or a test passes the time as an argument.
#pragma once

#include <chrono>
#include <cstdint>

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

// Returns 4.096 us * 2^exponent, the encoding of a QP's local ACK timeout (IBTA 9.7.6.1.3).
constexpr Duration AckTimeout(unsigned exponent) { return Duration(INT64_C(4096) << exponent); }

// Returns the kernel CM's value of the same 5-bit exponent: 2^(exponent - 8) ms, at least 1 ms
// (cm_convert_to_ms).
constexpr Duration CmTimeout(unsigned exponent) {
  return std::chrono::milliseconds(INT64_C(1) << (exponent > 8 ? exponent - 8 : 0));
}

}  // namespace rdmaemu
