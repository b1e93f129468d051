#include "tools/cli/duration.h"

#include <array>
#include <charconv>
#include <utility>

#include "emulator/runtime/time_domain.h"

namespace rdmaemu::cli {

using namespace std::chrono_literals;

std::optional<Duration> ParseDuration(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, Duration>, 6> kUnits = {
      {{"ns", 1ns}, {"us", 1us}, {"ms", 1ms}, {"s", 1s}, {"min", 1min}, {"h", 1h}}};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const auto& [name, length] : kUnits) {
    if (name == unit && number <= runtime::TimeDomain::kMaxMove / length) return number * length;
  }
  return std::nullopt;
}

std::string NotADuration(std::string_view text) {
  return "\"" + std::string(text) +
         "\" is not a duration; give a number from 1 and its unit (ns, us, ms, s, min or h), at "
         "most a year, as in 250ms";
}

}  // namespace rdmaemu::cli
