// Reads the exported names of a built library with binutils' readelf, for ABI tests.
#pragma once

#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace rdmaemu::testing {

inline std::string OutputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  char chunk[4096];
  for (size_t got = 0; (got = fread(chunk, 1, sizeof chunk, pipe.get())) > 0;) {
    output.append(chunk, got);
  }
  return output;
}

// Returns the exported names with their versions ("rdma_listen@@RDMACM_1.0"), without the version
// nodes' own symbols.
inline std::set<std::string> ExportedNames(const std::string& library) {
  std::set<std::string> names;
  std::istringstream lines(OutputOf("readelf --dyn-syms -W " + library));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, value, size, type, bind, visibility, section, name;
    words >> number >> value >> size >> type >> bind >> visibility >> section >> name;
    if (section == "UND" || section == "ABS" || (bind != "GLOBAL" && bind != "WEAK")) continue;
    names.insert(name);
  }
  return names;
}

// Reads a list with one name per line.
inline std::set<std::string> NamesIn(const std::string& list_file) {
  std::set<std::string> names;
  std::ifstream list(list_file);
  for (std::string line; std::getline(list, line);) names.insert(line);
  return names;
}

}  // namespace rdmaemu::testing
