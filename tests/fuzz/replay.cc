// Replaces libFuzzer where it is missing: runs a target once for each given file, and for the files
// of each directory. Ignores libFuzzer's options (-name=value).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"

namespace {

void Replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  // A copy of the exact size, so that a sanitizer detects a read beyond the end.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::set<std::filesystem::path> inputs;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) inputs.insert(entry);
    } else {
      inputs.insert(argv[i]);
    }
  }
  // Prints the name first, so that after a crash the last line names the input.
  for (const auto& path : inputs) {
    std::fprintf(stderr, "%s\n", path.c_str());
    Replay(path);
  }
  std::fprintf(stderr, "%zu inputs\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
