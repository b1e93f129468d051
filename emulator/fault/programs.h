// The programs of a scenario, one table [[program]] per program. `rdmaemu ab` runs them in their
// order (docs/ab.md). Hosts ignore them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/fault/scenario.h"

namespace rdmaemu::fault {

// The condition for which the start of the next program waits.
enum class Until : uint8_t { kListens, kEnded, kStarted };

struct Program {
  std::string name;     // unique in the scenario: lower case letters, digits, '-', '_'
  std::string command;  // for the shell
  Until until = Until::kEnded;
};

inline constexpr size_t kMaxPrograms = 16;
inline constexpr size_t kMaxCommandBytes = 8192;
inline constexpr size_t kMaxProgramNameBytes = 32;

// Returns the word of scenarios: "listens", "ended", "started".
std::string_view UntilName(Until until);
std::optional<Until> UntilOf(std::string_view name);

// Returns the programs of a scenario. Only [[program]] tables are checked.
Parsed<std::vector<Program>> ParsePrograms(std::string_view toml, std::string_view file_name);

}  // namespace rdmaemu::fault
