// Numbers, widths and escapes of the table. tools/cli/watch_test.py has the tests with real hosts.
#include "tools/cli/watch/table.h"

#include <gtest/gtest.h>

namespace rdmaemu::cli {
namespace {

TEST(WatchTable, NumbersKeepThreeDigits) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(999), "999");
  EXPECT_EQ(ShortNumber(0.5), "0.50");
  EXPECT_EQ(ShortNumber(99.96), "100");
  EXPECT_EQ(ShortNumber(999.4), "999");
  EXPECT_EQ(ShortNumber(999.5), "1.00k");
  EXPECT_EQ(ShortNumber(1000), "1.00k");
  EXPECT_EQ(ShortNumber(12345), "12.3k");
  EXPECT_EQ(ShortNumber(999499), "999k");
  EXPECT_EQ(ShortNumber(999500), "1.00M");
  EXPECT_EQ(ShortNumber(18446744073709551615.0), "18.4E");
}

TEST(WatchTable, CutsALineAtTheWidthOfTheWindow) {
  const Line line = {{"abc"}, {"def", Style::kError}, {"ghi"}};
  EXPECT_EQ(PlainText(line), "abcdefghi");
  EXPECT_EQ(TerminalText(line, 0, true), "");
  EXPECT_EQ(TerminalText(line, 3, true), "abc");
  EXPECT_EQ(TerminalText(line, 4, true), "abc\033[1;31md\033[0m");
  EXPECT_EQ(TerminalText(line, 9, true), "abc\033[1;31mdef\033[0mghi");
  EXPECT_EQ(TerminalText(line, 100, false), "abcdefghi");
}

TEST(WatchTable, ReplacesCharactersThatATerminalInterprets) {
  EXPECT_EQ(Printable("a\033[2J\xc3\xa4\x7f~ "), "a?[2J???~ ");
}

TEST(WatchTable, IsOnlyTheHeadingWithoutHosts) {
  const std::vector<Line> table = TableOf({}, WatchClock::now());
  ASSERT_EQ(table.size(), 1u);
  EXPECT_TRUE(PlainText(table[0]).starts_with("HOST  PROCS  QPS  IDS  CONNS  SENT/S"));
  EXPECT_EQ(JsonOf({}, WatchClock::now())["hosts"].size(), 0u);
}

}  // namespace
}  // namespace rdmaemu::cli
