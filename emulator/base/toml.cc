#include "emulator/base/toml.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace rdmaemu {
namespace {

std::string Place(std::string_view file, size_t line, size_t column, uint32_t column_shift) {
  const size_t shown = column > column_shift ? column - column_shift : 1;
  return std::string(file) + ":" + std::to_string(line) + ":" + std::to_string(shown) + ": ";
}

// Returns a line of the text, without its newline.
std::string_view RawLine(std::string_view text, size_t line) {
  for (size_t skipped = 1; skipped < line && text.find('\n') != text.npos; skipped++) {
    text.remove_prefix(text.find('\n') + 1);
  }
  return text.substr(0, text.find('\n'));
}

// Returns the line of an error, without what the caller has put around the text of the first line.
std::string LineOf(std::string_view text, size_t line, uint32_t column_shift) {
  constexpr size_t kMaxShownBytes = 80;
  text = RawLine(text, line);
  if (line == 1) text.remove_prefix(std::min<size_t>(column_shift, text.size()));
  if (column_shift != 0 && text.ends_with(" }")) text.remove_suffix(2);
  const bool is_long = text.size() > kMaxShownBytes;
  std::string shown(text.substr(0, kMaxShownBytes));
  // An error is one line.
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, '?');
  return shown + (is_long ? "..." : "");
}

// Returns the bare key that ends before the column, or "". Columns start at 1.
std::string_view KeyBefore(std::string_view line, size_t column) {
  constexpr std::string_view kBareKey =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  line = line.substr(0, column - 1);
  line = line.substr(0, line.find_last_not_of(" \t") + 1);  // npos + 1 is 0
  return line.substr(line.find_last_not_of(kBareKey) + 1);
}

// Returns the parser's description of an error, and what to do if the parser does not say it.
// `line` is the line of the error.
std::string Described(std::string_view description, std::string_view line, size_t column) {
  const auto has = [&](std::string_view part) { return description.find(part) != part.npos; };
  if (has("expected '='") || has("key-value pair: encountered end-of-file")) {
    const std::string_view key = KeyBefore(line, column);
    if (!key.empty()) return std::string(key) + " needs a value, as in key = true";
  }
  return std::string(description) + (has("could not determine value type")
                                         ? "; put a word in quotes, as in key = \"word\""
                                         : "");
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
                               Described(error.description(), RawLine(text, at.line), at.column) +
                               "; the line is: " + LineOf(text, at.line, column_shift));
  }
}

}  // namespace rdmaemu
