#include "emulator/trace/seconds.h"

namespace rdmaemu::trace {

void AppendSeconds(Duration time, std::string& out) {
  constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;
  const int64_t count = time.count();
  // Through unsigned arithmetic, because the smallest int64_t has no positive counterpart.
  const uint64_t magnitude = count < 0 ? 0 - static_cast<uint64_t>(count) : count;
  if (count < 0) out += '-';
  out += std::to_string(magnitude / kNanosecondsPerSecond);
  out += '.';
  const std::string fraction = std::to_string(magnitude % kNanosecondsPerSecond);
  out.append(9 - fraction.size(), '0');
  out += fraction;
}

}  // namespace rdmaemu::trace
