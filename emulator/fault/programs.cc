#include "emulator/fault/programs.h"

#include <algorithm>
#include <array>

#include "emulator/base/toml.h"
#include "emulator/fault/program_reader.h"
#include "emulator/fault/rule_reader.h"
#include "emulator/fault/words.h"

namespace rdmaemu::fault {
namespace {

constexpr std::array<std::string_view, 3> kUntils = {"listens", "ended", "started"};
constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-_";

// Reads one [[program]] table, and keeps the first error.
class ProgramReader {
 public:
  ProgramReader(const toml::table& table, std::string_view file) : table_(table), file_(file) {}

  Parsed<Program> Read() {
    Program program;
    for (const auto& [key, node] : table_) {
      if (key.str() == "name") {
        program.name = Text(node, key.str(), kMaxProgramNameBytes);
      } else if (key.str() == "command") {
        program.command = Text(node, key.str(), kMaxCommandBytes);
      } else if (key.str() == "until") {
        const auto until = UntilOf(Text(node, key.str(), kMaxProgramNameBytes));
        if (!until) Wrong(node, "until must be \"listens\", \"ended\" or \"started\"");
        program.until = until.value_or(Until::kEnded);
      } else {
        Wrong(node, "there is no key " + Quoted(key.str()) +
                        " of a program; the keys are name, command, until");
      }
    }
    for (const char* const key : {"name", "command"}) {
      if (!table_.contains(key)) Wrong(table_, std::string("a program needs the key ") + key);
    }
    if (program.name.find_first_not_of(kNameCharacters) != std::string::npos) {
      Wrong(*table_.get("name"), "a program's name has lower case letters, digits, - and _ only");
    }
    if (!error_.empty()) return tl::make_unexpected(error_);
    return program;
  }

 private:
  void Wrong(const toml::node& node, const std::string& what) {
    if (error_.empty()) error_ = Mistake(file_, PositionOf(node), what);
  }
  std::string Text(const toml::node& node, std::string_view key, size_t most) {
    const auto text = node.value_exact<std::string>();
    if (!text || text->empty() || text->size() > most) {
      Wrong(node,
            std::string(key) + " must be a string of 1 to " + std::to_string(most) + " bytes");
      return {};
    }
    return *text;
  }

  const toml::table& table_;
  const std::string_view file_;
  std::string error_;
};

}  // namespace

std::string_view UntilName(Until until) { return kUntils[static_cast<size_t>(until)]; }

std::optional<Until> UntilOf(std::string_view name) {
  const auto found = std::ranges::find(kUntils, name);
  if (found == kUntils.end()) return std::nullopt;
  return static_cast<Until>(found - kUntils.begin());
}

Parsed<std::vector<Program>> ReadPrograms(const toml::table& scenario, std::string_view file) {
  std::vector<Program> programs;
  const toml::node* const tables = scenario.get("program");
  if (tables == nullptr) return programs;
  if (!tables->is_array_of_tables()) {
    return tl::make_unexpected(
        Mistake(file, PositionOf(*tables), "program must be [[program]] tables"));
  }
  for (const toml::node& node : *tables->as_array()) {
    auto program = ProgramReader(*node.as_table(), file).Read();
    if (!program) return tl::make_unexpected(std::move(program.error()));
    if (programs.size() == kMaxPrograms) {
      return tl::make_unexpected(
          Mistake(file, PositionOf(node),
                  "a scenario has at most " + std::to_string(kMaxPrograms) + " programs"));
    }
    if (std::ranges::find(programs, program->name, &Program::name) != programs.end()) {
      return tl::make_unexpected(
          Mistake(file, PositionOf(node), "two programs are called " + Quoted(program->name)));
    }
    programs.push_back(std::move(*program));
  }
  return programs;
}

Parsed<std::vector<Program>> ParsePrograms(std::string_view toml, std::string_view file_name) {
  const auto table = ParseToml(toml, file_name, 0);
  if (!table) return tl::make_unexpected(table.error());
  return ReadPrograms(*table, file_name);
}

}  // namespace rdmaemu::fault
