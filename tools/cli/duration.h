// A length of time on the command line: "250ms".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "emulator/base/time.h"

namespace rdmaemu::cli {

// From 1 ns to a year; nothing for what is none.
std::optional<Duration> ParseDuration(std::string_view text);
// What is wrong with it, and what would have been right.
std::string NotADuration(std::string_view text);

}  // namespace rdmaemu::cli
