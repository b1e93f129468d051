#include "emulator/base/toml.h"

#include <algorithm>

namespace rdmaemu {
namespace {

std::string Place(std::string_view file, size_t line, size_t column, uint32_t column_shift) {
  const size_t shown = column > column_shift ? column - column_shift : 1;
  return std::string(file) + ":" + std::to_string(line) + ":" + std::to_string(shown) + ": ";
}

}  // namespace

tl::expected<toml::table, std::string> ParseToml(std::string_view text, std::string_view file,
                                                 uint32_t column_shift) {
  const auto beyond = std::ranges::find_if(text, [](char c) { return (c & 0x80) != 0; });
  if (beyond != text.end()) {
    const std::string_view before = text.substr(0, static_cast<size_t>(beyond - text.begin()));
    const auto line = static_cast<size_t>(std::ranges::count(before, '\n')) + 1;
    // The column counts from the last newline. Without a newline, npos + 1 is 0.
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    return tl::make_unexpected(Place(file, line, column, column_shift) +
                               "is not an ASCII character; leave it out, or write it in a string"
                               " as \\u and four hexadecimal digits");
  }
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return tl::make_unexpected(Place(file, at.line, at.column, column_shift) +
                               std::string(error.description()));
  }
}

}  // namespace rdmaemu
