// Two captures, and the first packet and field in which they differ.
#pragma once

#include <string>
#include <string_view>

namespace rdmaemu::golden {

// Empty when they are the same, byte for byte.
std::string FirstDifference(std::string_view golden, std::string_view now);

}  // namespace rdmaemu::golden
