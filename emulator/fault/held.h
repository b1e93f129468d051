// Types for the items that barrier rules (Hold) of a host hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rdmaemu::fault {

// The number of held items, by rule name.
using HeldCounts = std::map<std::string, uint64_t, std::less<>>;
// The rule whose barrier releases its items. nullopt: all barriers release theirs.
using Release = std::optional<std::string_view>;

}  // namespace rdmaemu::fault
