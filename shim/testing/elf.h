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

// Reads the names of shim/abi_status.txt whose version starts with `versions` ("IBVERBS_").
inline std::set<std::string> NamesIn(const std::string& table, const std::string& versions) {
  std::set<std::string> names;
  std::ifstream rows(table);
  for (std::string line; std::getline(rows, line);) {
    const std::string name = line.substr(0, line.find(' '));
    const size_t at = name.rfind('@');
    if (at == std::string::npos) continue;
    // "NAME@@IBVERBS_PRIVATE_34,57" is two names. The second is not the default version.
    std::istringstream nodes(name.substr(at + 1));
    std::string node, number;
    std::getline(nodes, node, ',');
    const std::string stem = node.substr(0, node.rfind('_') + 1);
    std::string before = name.substr(0, at + 1);
    do {
      if (node.compare(0, versions.size(), versions) == 0) names.insert(before + node);
      before = name.substr(0, name.find('@') + 1);
      node = std::getline(nodes, number, ',') ? stem + number : "";
    } while (!node.empty());
  }
  return names;
}

// Returns those of `names` that `others` lacks, one per line.
inline std::string NamesMissing(const std::set<std::string>& names,
                                const std::set<std::string>& others) {
  std::string missing;
  for (const std::string& name : names) {
    if (others.count(name) == 0) missing += name + "\n";
  }
  return missing;
}

// Returns the path of the library that the system's loader finds by this SONAME, or "".
inline std::string InstalledLibrary(const std::string& soname) {
  std::istringstream lines(OutputOf("/sbin/ldconfig -p"));
  for (std::string line; std::getline(lines, line);) {
    const size_t arrow = line.find(" => ");
    if (line.find("\t" + soname + " ") == 0 && arrow != std::string::npos) {
      return line.substr(arrow + 4);
    }
  }
  return "";
}

}  // namespace rdmaemu::testing
