#include "emulator/fault/words.h"

#include <string.h>

#include <algorithm>
#include <map>

namespace rdmaemu::fault {
namespace {

constexpr int kErrnoNumbers = 134;
constexpr size_t kLongestWord = 128;  // the cost of a comparison is the product of the lengths

// Returns the number of edits from one word to the other. An edit inserts, removes or changes a
// letter, or exchanges two.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> edits(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); i++) {
    for (size_t j = 0; j <= b.size(); j++) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                              edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
      }
    }
  }
  return edits[a.size()][b.size()];
}

const std::map<std::string, int, std::less<>>& Errnos() {
  static const std::map<std::string, int, std::less<>> kNames = [] {
    std::map<std::string, int, std::less<>> names;
    for (int number = 1; number < kErrnoNumbers; number++) {
      if (const char* const name = strerrorname_np(number)) names[name] = number;
    }
    return names;
  }();
  return kNames;
}

}  // namespace

std::string DidYouMean(std::string_view word) { return "did you mean " + Quoted(word) + "?"; }
std::string OneOf(const std::vector<std::string>& words) {
  return "it is one of: " + Listed(words);
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& words) {
  word = word.substr(0, kLongestWord);
  const auto nearest = std::ranges::min_element(
      words, {}, [&](const std::string& one) { return Distance(word, one); });
  const size_t distance = nearest == words.end() ? word.size() : Distance(word, *nearest);
  if (distance <= std::max<size_t>(2, word.size() / 4) && distance < word.size()) {
    return *nearest;
  }
  // The start of one word only, such as "rnr" of "rnr_retry_exc_err".
  const auto begins = [&](const std::string& one) {
    return one.starts_with(std::string(word) + "_");
  };
  const auto longer = std::ranges::find_if(words, begins);
  if (word.empty() || longer == words.end() || std::any_of(longer + 1, words.end(), begins)) {
    return std::nullopt;
  }
  return *longer;
}

std::string Instead(std::string_view word, const std::vector<std::string>& words) {
  const std::optional<std::string> nearest = Nearest(word, words);
  return nearest ? DidYouMean(*nearest) : OneOf(words);
}

std::optional<int> ErrnoOf(std::string_view name) {
  const auto found = Errnos().find(name);
  return found == Errnos().end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> ErrnoName(int64_t number) {
  if (number < 1 || number >= kErrnoNumbers) return std::nullopt;
  const char* const name = strerrorname_np(static_cast<int>(number));
  return name == nullptr ? std::nullopt : std::optional<std::string>(name);
}

std::vector<std::string> ErrnoNames() {
  std::vector<std::string> names;
  for (const auto& [name, number] : Errnos()) names.push_back(name);
  return names;
}

std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::string Listed(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace rdmaemu::fault
