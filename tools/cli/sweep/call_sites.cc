#include "tools/cli/sweep/call_sites.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "emulator/host/calls/call_names.h"
#include "tools/cli/sweep/shell_words.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAddr2lineWithin_s = "10";
constexpr size_t kMostAddresses = 500;  // of one command line

std::vector<std::string> SplitAtTabs(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream text(line);
  for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
  return words;
}

uint64_t NumberOf(const std::string& word) { return std::strtoull(word.c_str(), nullptr, 10); }

struct FrameParts {
  std::string file, offset, symbol;
};
FrameParts PartsOf(const std::string& frame) {
  const size_t plus = frame.rfind("+0x");
  if (plus == frame.npos) return {frame, "", ""};
  const size_t space = frame.find(' ', plus);
  if (space == frame.npos) return {frame.substr(0, plus), frame.substr(plus + 1), ""};
  return {frame.substr(0, plus), frame.substr(plus + 1, space - plus - 1), frame.substr(space + 1)};
}

std::string Demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

std::string DescriptionBySymbol(const FrameParts& parts) {
  std::string text = fs::path(parts.file).filename().string();
  if (!parts.offset.empty()) text += "+" + parts.offset;
  return parts.symbol.empty() ? text : text + " (" + Demangled(parts.symbol) + ")";
}

// Headers whose inline functions are the libraries' calls.
bool IsOfLibraries(const std::string& line) {
  return line.starts_with("verbs.h:") || line.starts_with("rdma_verbs.h:");
}

// Returns the functions that addr2line prints for each offset, with those that were inlined, the
// innermost one first. Returns fewer lists than offsets after a failure.
std::vector<std::vector<std::string>> Addr2line(const std::string& file,
                                                const std::vector<std::string>& offsets) {
  std::string command = std::string("timeout ") + kAddr2lineWithin_s +
                        " addr2line -a -i -f -C -s -e " + QuotedForShell(file);
  for (const std::string& offset : offsets) command += " " + offset;
  command += " </dev/null 2>/dev/null";
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  std::string text;
  char buffer[4096];
  while (pipe != nullptr && fgets(buffer, sizeof buffer, pipe.get()) != nullptr) text += buffer;
  std::vector<std::vector<std::string>> functions;
  std::istringstream all(text);
  for (std::string name, line; std::getline(all, name);) {
    if (name.starts_with("0x")) {
      functions.emplace_back();
      continue;
    }
    if (!std::getline(all, line) || functions.empty()) break;
    line = line.substr(0, line.find(" (discriminator"));
    const bool has_line = !line.starts_with("??") && !line.ends_with(":?");
    if (name == "??" || IsOfLibraries(line)) continue;
    // Without debug information the name may be that of an earlier function.
    const std::string place =
        has_line ? line : fs::path(file).filename().string() + "+" + offsets[functions.size() - 1];
    functions.back().push_back(name + " (" + place + ")");
  }
  return functions;
}

}  // namespace

CallSites CallSites::Read(const std::string& directory) {
  CallSites sites;
  sites.stacks_.emplace_back();  // of calls that are not recorded
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    sites.ReadFile(entry.path().string());
  }
  return sites;
}

void CallSites::ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::map<uint64_t, size_t> numbers;  // the file's sites, in stacks_
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = SplitAtTabs(line);
    if (words.empty()) continue;
    if (words[0] == "L") is_cut_ = true;
    if (words[0] == "S" && words.size() >= 2) {
      numbers[NumberOf(words[1])] = stacks_.size();
      stacks_.emplace_back(words.begin() + 2, words.end());
    }
    if (words[0] != "C" || words.size() != 5) continue;
    const auto site = numbers.find(NumberOf(words[4]));
    if (site == numbers.end()) continue;
    const char* const name = CallName(static_cast<uint32_t>(NumberOf(words[2])));
    stack_of_[{NumberOf(words[1]), std::string("call.") + name, NumberOf(words[3])}] = site->second;
  }
}

const ProgramStack& CallSites::StackOf(uint64_t process, const std::string& place,
                                       uint64_t nth) const {
  const auto found = stack_of_.find({process, place, nth});
  return stacks_[found == stack_of_.end() ? 0 : found->second];
}

FrameTexts DescribeFrames(const std::set<std::string>& frames) {
  FrameTexts described;
  struct OfFile {
    std::vector<std::string> offsets, frames;
  };
  std::map<std::string, OfFile> files;
  for (const std::string& frame : frames) {
    const FrameParts parts = PartsOf(frame);
    described[frame] = {DescriptionBySymbol(parts)};
    OfFile& file = files[parts.file];
    if (parts.offset.empty() || file.offsets.size() == kMostAddresses) continue;
    file.offsets.push_back(parts.offset);
    file.frames.push_back(frame);
  }
  for (const auto& [path, file] : files) {
    if (file.offsets.empty()) continue;
    const std::vector<std::vector<std::string>> functions = Addr2line(path, file.offsets);
    if (functions.size() != file.offsets.size()) continue;
    for (size_t i = 0; i < functions.size(); i++) {
      if (!functions[i].empty()) described[file.frames[i]] = functions[i];
    }
  }
  return described;
}

}  // namespace rdmaemu::cli
