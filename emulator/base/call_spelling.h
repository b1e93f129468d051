// The one spelling of call names: traces, fault rules and lists say `reg_mr`.
#pragma once

#include <cstddef>
#include <string_view>

namespace rdmaemu {

// Calls `append` with each character of a name as rules and traces spell the name: RegMr becomes
// reg_mr, RESOLVE_ADDR becomes resolve_addr. A name in this spelling stays as it is.
template <class Append>
constexpr void SpellCall(std::string_view name, Append append) {
  bool after_small = false;
  for (const char letter : name) {
    const bool is_capital = letter >= 'A' && letter <= 'Z';
    if (is_capital && after_small) append('_');
    after_small = letter >= 'a' && letter <= 'z';
    append(is_capital ? static_cast<char>(letter - 'A' + 'a') : letter);
  }
}

// A call's name in this spelling, as a constant of the program.
class CallSpelling {
 public:
  // A longer name does not compile.
  static constexpr size_t kMaxBytes = 31;

  consteval explicit CallSpelling(std::string_view name) {
    size_t size = 0;
    SpellCall(name, [&](char letter) { text_[size++] = letter; });
    text_[size] = '\0';
  }
  constexpr const char* text() const { return text_; }

 private:
  char text_[kMaxBytes + 1] = {};
};

}  // namespace rdmaemu
