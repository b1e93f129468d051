// The bytes of a complete conversation equal the committed ones. The emulator's packets change only
// on purpose.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/golden/compare.h"
#include "tests/golden/scenario.h"

namespace rdmaemu::golden {
namespace {

std::string Committed() {
  std::ifstream file("tests/golden/capture.pcapng", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Golden, TheScenarioWritesTheCommittedCapture) {
  const std::string golden = Committed();
  ASSERT_FALSE(golden.empty());
  EXPECT_EQ(FirstDifference(golden, RecordScenario()), "")
      << "When the wire was changed on purpose, make the capture anew and look at the change:\n"
         "  bazel run //tests/golden:make";
}

TEST(Golden, TheScenarioRepeatsItself) {
  EXPECT_EQ(FirstDifference(RecordScenario(), RecordScenario()), "");
}

// The comparison detects a flipped bit at any position and names the packet.
TEST(Golden, ADifferenceIsNamed) {
  const std::string golden = Committed();
  for (size_t at = 0; at < golden.size(); at += 97) {
    std::string other = golden;
    other[at] = static_cast<char>(other[at] ^ 1);
    EXPECT_NE(FirstDifference(golden, other), "") << at;
  }
  const std::string half = golden.substr(0, golden.size() / 2);
  EXPECT_NE(FirstDifference(golden, half), "");
  EXPECT_NE(FirstDifference(half, golden), "");
}

}  // namespace
}  // namespace rdmaemu::golden
