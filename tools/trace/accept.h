// Parses files of known differences (TOML, docs/ab.md), and applies them to a comparison.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/trace/compare.h"

namespace rdmaemu::trace_tools {

inline constexpr size_t kMaxAcceptBytes = size_t{1} << 20;
inline constexpr size_t kMaxAcceptances = 10'000;

// One [[accept]] of the file. Empty members match everything.
struct Acceptance {
  std::string reason;              // required
  std::string what;                // required: "reg_mr", "ESTABLISHED"; may end in '*'
  std::string kind;                // "call", "event", "status"
  std::string process, object;     // canonical names; "qp" matches each object of this kind
  std::string only;                // "a", "b": only this trace has the record; "both"
  std::vector<std::string> parts;  // a list of all parts that differ
  std::string a, b;                // text that this trace's record contains
  bool sometimes = false;          // true: the difference depends on a race, so a run may lack it
  size_t line = 0;                 // in the file
  size_t used = 0;                 // differences that it accepted
};

// Parses the text of an acceptance file. `file` is the file's name for messages. An error begins
// with this name and, when a line is wrong, with the line's number.
tl::expected<std::vector<Acceptance>, std::string> ParseAcceptances(std::string_view text,
                                                                    std::string_view file);

// Returns true when no difference matched the acceptance and `sometimes` is false.
inline bool IsUnused(const Acceptance& acceptance) {
  return acceptance.used == 0 && !acceptance.sometimes;
}

// Sets `accepted` of each difference to the reason of the first acceptance that matches. Counts the
// match in that acceptance's `used`.
void Accept(std::vector<Acceptance>& acceptances, Comparison& comparison);

}  // namespace rdmaemu::trace_tools
