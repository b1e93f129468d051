// How a host speaks of what the barriers of its rules hold.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rdmaemu::fault {

// How much is held, by rule.
using HeldCounts = std::map<std::string, uint64_t, std::less<>>;
// Whose barrier lets go: one rule's, or (nothing) everyone's.
using Release = std::optional<std::string_view>;

}  // namespace rdmaemu::fault
