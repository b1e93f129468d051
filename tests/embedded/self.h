// Runs this test program again, as a user does, to check the output of a test that fails on
// purpose.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

namespace rdmaemu_test {

struct Ran {
  int status;  // of pclose(3); -1: the program could not be started
  std::string shown;
};

// `arguments` and `environment` ("NAME=value ...") are words for a shell.
inline Ran RunSelf(const std::string& arguments, const std::string& environment = "") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = environment + " \"" + self + "\" " + arguments + " 2>&1";
  FILE* const run = popen(command.c_str(), "r");
  if (run == nullptr) return {-1, ""};
  std::string shown;
  for (int letter; (letter = fgetc(run)) != EOF;) shown += static_cast<char>(letter);
  return {pclose(run), shown};
}

}  // namespace rdmaemu_test
