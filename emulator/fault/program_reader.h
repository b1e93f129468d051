// Reads the [[program]] tables of a scenario.
#pragma once

#include <string_view>
#include <vector>

#include "emulator/base/toml.h"
#include "emulator/fault/programs.h"

namespace rdmaemu::fault {

Parsed<std::vector<Program>> ReadPrograms(const toml::table& scenario, std::string_view file);

}  // namespace rdmaemu::fault
