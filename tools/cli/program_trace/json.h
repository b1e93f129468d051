// Builds one JSON object. Its keys have the order of the calls that add them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace rdmaemu::cli {

// Returns a JSON string. \u escapes replace bytes that are not printable ASCII, so that the line is
// always UTF-8.
inline std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7f) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\u%04x", static_cast<uint8_t>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

class JsonObject {
 public:
  // Adds a key. `value` is JSON.
  void Raw(std::string_view name, std::string_view value) {
    text_ += text_.size() > 1 ? ",\"" : "\"";
    text_ += name;
    text_ += "\":";
    text_ += value;
  }
  void Text(std::string_view name, std::string_view value) { Raw(name, Quoted(value)); }
  void Number(std::string_view name, uint64_t value) { Raw(name, std::to_string(value)); }
  std::string text() const { return text_ + "}"; }
  bool is_empty() const { return text_.size() == 1; }

 private:
  std::string text_ = "{";
};

}  // namespace rdmaemu::cli
