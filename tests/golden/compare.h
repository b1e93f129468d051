// Compares two captures and finds the first packet and field that differ.
#pragma once

#include <string>
#include <string_view>

namespace rdmaemu::golden {

// Returns "" when the captures are equal byte for byte.
std::string FirstDifference(std::string_view golden, std::string_view now);

}  // namespace rdmaemu::golden
