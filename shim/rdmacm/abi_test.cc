// Tests the built library's exported names against the list that programs were linked with.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "shim/testing/elf.h"

namespace {

using rdmaemu::testing::ExportedNames;
using rdmaemu::testing::InstalledLibrary;
using rdmaemu::testing::NamesIn;
using rdmaemu::testing::NamesMissing;
using rdmaemu::testing::OutputOf;

std::string g_library, g_table;

TEST(Abi, ExportsTheNamesOfTheTableAndNoOthers) {
  const std::set<std::string> expected = NamesIn(g_table, "RDMACM_");
  ASSERT_EQ(expected.size(), 74u);
  EXPECT_EQ(ExportedNames(g_library), expected);
}

// A program that starts on the installed rdma-core (44 to 56) also starts on this library.
TEST(Abi, ExportsEveryNameOfTheInstalledLibrary) {
  const std::string installed = InstalledLibrary("librdmacm.so.1");
  ASSERT_NE(installed, "") << "librdmacm-dev brings one";
  const std::set<std::string> names = ExportedNames(installed);
  ASSERT_GE(names.size(), 68u) << installed;
  EXPECT_EQ(NamesMissing(names, ExportedNames(g_library)), "") << "exported by " << installed;
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
  for (const char* node :
       {"RDMACM_1.0", "RDMACM_1.1", "RDMACM_1.2", "RDMACM_1.3", "RDMACM_1.4", "RDMACM_1.5"}) {
    EXPECT_NE(versions.find(std::string("Name: ") + node), std::string::npos) << versions;
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  g_library = argv[1];
  g_table = argv[2];
  return RUN_ALL_TESTS();
}
