// Where there is no libFuzzer: runs a target once over each file that it is given, and over the
// files of each directory. Options (-name=value) are libFuzzer's and mean nothing here.
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
  // A copy of its exact size, so that a sanitizer sees a read behind the end.
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
  // The name first: after a crash the last line tells which input it was.
  for (const auto& path : inputs) {
    std::fprintf(stderr, "%s\n", path.c_str());
    Replay(path);
  }
  std::fprintf(stderr, "%zu inputs\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
