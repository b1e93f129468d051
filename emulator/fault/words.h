// The words of rules, and which of them a wrong one may have meant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::fault {

std::string DidYouMean(std::string_view word);
std::string OneOf(const std::vector<std::string>& words);
// The word that is near enough to have been meant; nothing: none is.
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& words);
// "did you mean X?" where one of the words is near, else all of them.
std::string Instead(std::string_view word, const std::vector<std::string>& words);

// "ENOMEM" and its number; all of them, in the order of the letters.
std::optional<int> ErrnoOf(std::string_view name);
std::optional<std::string> ErrnoName(int64_t number);
std::vector<std::string> ErrnoNames();

std::string Quoted(std::string_view text);
// "a, b, c"
std::string Listed(const std::vector<std::string>& words);

}  // namespace rdmaemu::fault
