// The words of rules, and suggestions for misspelled words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::fault {

std::string DidYouMean(std::string_view word);
std::string OneOf(const std::vector<std::string>& words);
// Returns the most similar word, or the only word that continues this one after an underscore.
// Nothing: there is no such word.
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& words);
// Returns "did you mean X?" for a similar word, or else a list of all words.
std::string Instead(std::string_view word, const std::vector<std::string>& words);

// Convert "ENOMEM" to its number and back. ErrnoNames returns all names in alphabetical order.
std::optional<int> ErrnoOf(std::string_view name);
std::optional<std::string> ErrnoName(int64_t number);
std::vector<std::string> ErrnoNames();

std::string Quoted(std::string_view text);
// Returns "a, b, c".
std::string Listed(const std::vector<std::string>& words);

}  // namespace rdmaemu::fault
