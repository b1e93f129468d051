#include "emulator/fault/programs.h"

#include <gtest/gtest.h>

#include <array>

namespace rdmaemu::fault {
namespace {

std::string ProgramMistake(std::string_view text) {
  const auto programs = ParsePrograms(text, "s.toml");
  return programs ? "" : programs.error();
}

TEST(Programs, AScenarioHasProgramsInTheirOrder) {
  const std::string text =
      "[[program]]\nname = \"server\"\ncommand = \"rping -s\"\nuntil = \"listens\"\n"
      "[[fault]]\nat = \"event\"\n"
      "[[program]]\nname = \"client\"\ncommand = \"rping -c\"\n"
      "[[program]]\nname = \"other\"\ncommand = \"true\"\nuntil = \"started\"\n";
  const auto programs = ParsePrograms(text, "s.toml");
  ASSERT_TRUE(programs) << programs.error();
  ASSERT_EQ(programs->size(), 3u);
  EXPECT_EQ((*programs)[0].name, "server");
  EXPECT_EQ((*programs)[0].command, "rping -s");
  EXPECT_EQ((*programs)[0].until, Until::kListens);
  EXPECT_EQ((*programs)[1].until, Until::kEnded);
  EXPECT_EQ((*programs)[2].until, Until::kStarted);
  for (const Program& each : *programs) EXPECT_EQ(UntilOf(UntilName(each.until)), each.until);
  // A host reads the rules of the same file.
  Vocabulary words{};
  const auto rules = ParseScenario(text, "s.toml", words);
  ASSERT_TRUE(rules) << rules.error();
  EXPECT_EQ(rules->size(), 1u);
}

TEST(Programs, MistakesHaveTheirPlace) {
  EXPECT_EQ(ProgramMistake(""), "");
  EXPECT_EQ(ProgramMistake("program = [1]\n"), "s.toml:1:11: program must be [[program]] tables");
  EXPECT_EQ(ProgramMistake("[[program]]\ncommand = \"true\"\n"),
            "s.toml:1:1: a program needs the key name");
  EXPECT_EQ(ProgramMistake("[[program]]\nname = \"a\"\n"),
            "s.toml:1:1: a program needs the key command");
  EXPECT_EQ(ProgramMistake("[[program]]\nname = \"a\"\ncommand = 3\n"),
            "s.toml:3:11: command must be a string of 1 to 8192 bytes");
  EXPECT_EQ(ProgramMistake("[[program]]\nname = \"../a\"\ncommand = \"true\"\n"),
            "s.toml:2:8: a program's name has lower case letters, digits, - and _ only");
  EXPECT_EQ(ProgramMistake("[[program]]\nname = \"a\"\ncommand = \"true\"\nuntil = \"ready\"\n"),
            "s.toml:4:9: until must be \"listens\", \"ended\" or \"started\"");
  EXPECT_EQ(ProgramMistake("[[program]]\nname = \"a\"\ncommand = \"true\"\nhost = \"x\"\n"),
            "s.toml:4:8: there is no key \"host\" of a program; the keys are name, command, until");
  const std::string one = "[[program]]\nname = \"a\"\ncommand = \"true\"\n";
  EXPECT_EQ(ProgramMistake(one + one), "s.toml:4:1: two programs are called \"a\"");
  // A host also reports mistakes in the programs.
  Vocabulary words{};
  EXPECT_FALSE(ParseScenario("[[program]]\nname = \"a\"\n", "s.toml", words));
}

TEST(Programs, AScenarioHasAtMostSoManyPrograms) {
  std::string text;
  for (size_t i = 0; i < kMaxPrograms; i++) {
    text += "[[program]]\nname = \"p" + std::to_string(i) + "\"\ncommand = \"true\"\n";
  }
  EXPECT_EQ(ParsePrograms(text, "s.toml")->size(), kMaxPrograms);
  EXPECT_EQ(ProgramMistake(text + "[[program]]\nname = \"one-more\"\ncommand = \"true\"\n"),
            "s.toml:49:1: a scenario has at most 16 programs");
}

}  // namespace
}  // namespace rdmaemu::fault
