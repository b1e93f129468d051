#include "emulator/embedded/clock.h"

#include <algorithm>
#include <charconv>

namespace rdmaemu::embedded {

std::optional<ClockChoice> ParseClock(std::string_view text) {
  if (text == "real") return ClockChoice{ClockMode::kReal};
  if (text == "virtual") return ClockChoice{ClockMode::kVirtual};
  if (text == "manual") return ClockChoice{ClockMode::kManual};
  constexpr std::string_view kScaled = "scaled:";
  if (!text.starts_with(kScaled)) return std::nullopt;
  text.remove_prefix(kScaled.size());
  ClockChoice choice{ClockMode::kScaled};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, choice.scale);
  const bool valid = error == std::errc() && stopped == end && choice.scale >= 1 &&
                     choice.scale <= ClockChoice::kMaxScale;
  return valid ? std::optional(choice) : std::nullopt;
}

void EmbeddedClock::PassUntil(Time deadline) {
  const Time machine = machine_.Now();
  if (held_since_) now_ = std::max(now_, std::min(deadline, now_ + (machine - *held_since_)));
  held_since_ = machine;
}

Duration EmbeddedClock::MachineTimeUntil(Time deadline) {
  return std::max(Duration::zero(), deadline - Now()) / choice_.scale;
}

}  // namespace rdmaemu::embedded
