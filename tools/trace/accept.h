// Known differences (TOML), each with its reason.
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
  std::string process, object;     // canonical names; an object's kind stands for all of the kind
  std::string only;                // "a", "b": the record is in this trace alone; "both"
  std::vector<std::string> parts;  // only these parts differ
  std::string a, b;                // what the record of this trace has somewhere in its text
  bool sometimes = false;          // of a race: that no difference needs it is no error
  size_t line = 0;                 // in the file
  size_t used = 0;                 // differences that it accepted
};

// An error begins with the file and the line.
tl::expected<std::vector<Acceptance>, std::string> ParseAcceptances(std::string_view text,
                                                                    std::string_view file);

// Whether the acceptance accepted nothing, and had to.
inline bool IsUnused(const Acceptance& acceptance) {
  return acceptance.used == 0 && !acceptance.sometimes;
}

// Gives each difference the reason of the first acceptance that matches, and counts.
void Accept(std::vector<Acceptance>& acceptances, Comparison& comparison);

}  // namespace rdmaemu::trace_tools
