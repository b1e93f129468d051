// Creates the committed capture again: bazel run //tests/golden:make
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "tests/golden/scenario.h"

int main() {
  const char* const workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (workspace == nullptr) {
    std::cerr
        << "the capture belongs into the checkout: run this as bazel run //tests/golden:make\n";
    return 2;
  }
  const std::string path = std::string(workspace) + "/tests/golden/capture.pcapng";
  try {
    std::ofstream file(path, std::ios::binary);
    file << rdmaemu::golden::RecordScenario();
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cout << "wrote " << path << "\n";
  return 0;
}
