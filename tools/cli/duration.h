// A duration on the command line, such as "250ms".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "emulator/base/time.h"

namespace rdmaemu::cli {

// Parses a duration from 1 ns to a year. Returns nullopt for other text.
std::optional<Duration> ParseDuration(std::string_view text);
// Returns the error message for text that is not a duration, with an example.
std::string NotADuration(std::string_view text);

}  // namespace rdmaemu::cli
