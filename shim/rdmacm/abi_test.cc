// The built library against the list of names that programs were linked with.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string g_library, g_status_table;

std::string OutputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  char chunk[4096];
  for (size_t got = 0; (got = fread(chunk, 1, sizeof(chunk), pipe.get())) > 0;) {
    output.append(chunk, got);
  }
  return output;
}

std::set<std::string> NamesInTable() {
  std::set<std::string> names;
  std::ifstream table(g_status_table);
  for (std::string line; std::getline(table, line);) {
    const std::string name = line.substr(0, line.find(' '));
    if (name.find("@@RDMACM_") != std::string::npos) names.insert(name);
  }
  return names;
}

std::set<std::string> NamesInLibrary() {
  std::set<std::string> names;
  std::istringstream lines(OutputOf("readelf --dyn-syms -W " + g_library));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, value, size, type, bind, visibility, section, name;
    words >> number >> value >> size >> type >> bind >> visibility >> section >> name;
    if (section == "UND" || bind != "GLOBAL" || type == "OBJECT") continue;
    names.insert(name);
  }
  return names;
}

TEST(Abi, ExportsTheNamesOfTheTableAndNoOthers) {
  const std::set<std::string> expected = NamesInTable();
  ASSERT_EQ(expected.size(), 68u);
  EXPECT_EQ(NamesInLibrary(), expected);
}

TEST(Abi, CallsItselfWhatProgramsWereLinkedWithAndNeedsOurVerbs) {
  const std::string dynamic = OutputOf("readelf -d -W " + g_library);
  EXPECT_NE(dynamic.find("soname: [librdmacm.so.1]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("Shared library: [libibverbs.so.1]"), std::string::npos) << dynamic;
}

TEST(Abi, BringsNoCxxRuntime) {
  EXPECT_EQ(OutputOf("readelf -d -W " + g_library).find("libstdc++"), std::string::npos);
}

TEST(Abi, HasEveryVersionNode) {
  const std::string versions = OutputOf("readelf -V -W " + g_library);
  for (const char* node : {"RDMACM_1.0", "RDMACM_1.1", "RDMACM_1.2", "RDMACM_1.3"}) {
    EXPECT_NE(versions.find(std::string("Name: ") + node), std::string::npos) << versions;
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  g_library = argv[1];
  g_status_table = argv[2];
  return RUN_ALL_TESTS();
}
