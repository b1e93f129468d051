// Words of a shell's command line.
#pragma once

#include <string>
#include <vector>

namespace rdmaemu::cli {

// Quotes a word, if a shell needs that.
std::string QuotedForShell(const std::string& word);
// Returns the command line of these words.
std::string JoinedForShell(const std::vector<std::string>& words);

}  // namespace rdmaemu::cli
