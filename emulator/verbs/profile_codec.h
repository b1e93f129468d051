// Codecs of profile values: how a key's value is read from TOML and written as TOML. A codec has
//   Read(node, to)   changes `to`, or returns what would be right: "must be ..."
//   Write(value)     returns the value as TOML
//   Kind()           names the kind of value for the error that the key is missing
// For profile.cc only, because toml++ is large.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/base/toml.h"
#include "emulator/verbs/objects.h"
#include "emulator/verbs/profile.h"

namespace rdmaemu::profile_codec {

using Wrong = std::string;  // empty when the value is right

inline Wrong NotWithin(int64_t least, uint64_t most) {
  return "must be an integer from " + std::to_string(least) + " to " + std::to_string(most);
}

class Flag {
 public:
  static const char* Kind() { return "true or false"; }
  static Wrong Read(const toml::node& node, bool& to) {
    const auto value = node.value_exact<bool>();
    if (!value) return "must be true or false";
    to = *value;
    return {};
  }
  static std::string Write(bool value) { return value ? "true" : "false"; }
};

// A number of at least `least` that its member can store. A number above TOML's largest one
// (2^63 - 1) is a string of hexadecimal digits.
class Number {
 public:
  explicit Number(int64_t least = 0) : least_(least) {}
  static const char* Kind() { return "an integer"; }
  template <class Value>
  Wrong Read(const toml::node& node, Value& to) const {
    const uint64_t top = static_cast<uint64_t>(std::numeric_limits<Value>::max());
    if (const auto text = node.value_exact<std::string>(); text && top > INT64_MAX) {
      uint64_t value = 0;
      const char* const end = text->data() + text->size();
      if (text->starts_with("0x")) {
        const auto [stop, error] = std::from_chars(text->data() + 2, end, value, 16);
        if (error == std::errc() && stop == end) {
          to = static_cast<Value>(value);
          return {};
        }
      }
    }
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < least_ || (*value >= 0 && static_cast<uint64_t>(*value) > top)) {
      return NotWithin(least_, top);
    }
    to = static_cast<Value>(*value);
    return {};
  }
  template <class Value>
  static std::string Write(Value value) {
    if constexpr (std::is_unsigned_v<Value> && sizeof value == 8) {
      if (value > INT64_MAX) {
        std::array<char, 16> digits{};
        const auto end = std::to_chars(digits.begin(), digits.end(), value, 16).ptr;
        return "\"0x" + std::string(digits.begin(), end) + "\"";
      }
    }
    return std::to_string(value);
  }

 private:
  int64_t least_;
};

// A number from `least` to `most`.
class Within {
 public:
  Within(int64_t least, int64_t most) : least_(least), most_(most) {}
  static const char* Kind() { return "an integer"; }
  template <class Value>
  Wrong Read(const toml::node& node, Value& to) const {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < least_ || *value > most_) {
      return NotWithin(least_, static_cast<uint64_t>(most_));
    }
    to = static_cast<Value>(*value);
    return {};
  }
  template <class Value>
  static std::string Write(Value value) {
    return std::to_string(value);
  }

 private:
  int64_t least_, most_;
};

class Text {
 public:
  static const char* Kind() { return "a string"; }
  static Wrong Read(const toml::node& node, std::string& to) {
    const auto value = node.value_exact<std::string>();
    if (!value || value->empty()) return "must be a string that is not empty";
    to = *value;
    return {};
  }
  static std::string Write(std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7f || c == '"' || c == '\\') {
        text += "\\u00";
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
      } else {
        text += c;
      }
    }
    return text + "\"";
  }
};

// A text in an array of characters. A longer text is cut to the array's length.
class FixedText {
 public:
  static const char* Kind() { return Text::Kind(); }
  template <size_t kBytes>
  static Wrong Read(const toml::node& node, char (&to)[kBytes]) {
    std::string value;
    if (Wrong wrong = Text::Read(node, value); !wrong.empty()) return wrong;
    to[value.copy(to, kBytes - 1)] = '\0';
    return {};
  }
  static std::string Write(const char* value) { return Text::Write(value); }
};

template <class Enum, size_t kCount>
class Name {
 public:
  explicit constexpr Name(std::array<std::pair<const char*, Enum>, kCount> names) : names_(names) {}
  static const char* Kind() { return "a string"; }
  template <class Value>
  Wrong Read(const toml::node& node, Value& to) const {
    const auto text = node.value_exact<std::string>();
    std::string all;
    for (const auto& [name, value] : names_) {
      if (text && *text == name) {
        to = static_cast<Value>(value);
        return {};
      }
      all += (all.empty() ? "\"" : ", \"") + std::string(name) + "\"";
    }
    return "must be one of " + all;
  }
  template <class Value>
  std::string Write(Value value) const {
    for (const auto& [name, known] : names_) {
      if (static_cast<Value>(known) == value) return Text::Write(name);
    }
    return Text::Write("");
  }

 private:
  std::array<std::pair<const char*, Enum>, kCount> names_;
};
template <class Enum, size_t kCount>
constexpr Name<Enum, kCount> NamesOf(const std::pair<const char*, Enum> (&names)[kCount]) {
  return Name<Enum, kCount>(std::to_array(names));
}

class Milliseconds {
 public:
  static const char* Kind() { return "an integer"; }
  static Wrong Read(const toml::node& node, Duration& to) {
    uint32_t value = 0;
    if (Wrong wrong = Number().Read(node, value); !wrong.empty()) return wrong;
    to = std::chrono::milliseconds(value);
    return {};
  }
  static std::string Write(Duration value) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(value).count());
  }
};

// The largest MTU of at most the given number of bytes.
class Mtu {
 public:
  static const char* Kind() { return "an integer"; }
  static Wrong Read(const toml::node& node, ibv_mtu& to) {
    uint32_t bytes = 0;
    if (Wrong wrong = Within(256, 4096).Read(node, bytes); !wrong.empty()) return wrong;
    for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
      if (MtuBytes(mtu) <= bytes) to = mtu;
    }
    return {};
  }
  static std::string Write(ibv_mtu value) { return std::to_string(MtuBytes(value)); }
};

// The first entries of a P_Key table of `length` entries.
class Pkeys {
 public:
  explicit Pkeys(size_t length) : length_(length) {}
  static const char* Kind() { return "a list"; }
  Wrong Read(const toml::node& node, std::vector<uint16_t>& to) const {
    const toml::array* const list = node.as_array();
    bool right = list != nullptr && list->size() <= length_;
    std::vector<uint16_t> entries;
    for (size_t i = 0; right && i < list->size(); i++) {
      const auto value = (*list)[i].value_exact<int64_t>();
      right = value && *value >= 0 && *value <= UINT16_MAX;
      if (right) entries.push_back(static_cast<uint16_t>(*value));
    }
    if (!right) {
      return "must be a list of at most " + std::to_string(length_) + " integers from 0 to 65535";
    }
    to = std::move(entries);
    return {};
  }
  static std::string Write(std::vector<uint16_t> entries) {
    while (!entries.empty() && entries.back() == 0) entries.pop_back();
    std::string text = "[";
    for (const uint16_t entry : entries) {
      text += (text.size() > 1 ? "," : "") + std::to_string(entry);
    }
    return text + "]";
  }

 private:
  size_t length_;
};

}  // namespace rdmaemu::profile_codec
