// The faults that make sense at each place of a test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::cli {

struct SweepFault {
  std::string name;  // "errno=ENOMEM"
  std::string keys;  // of a fault rule: "errno = \"ENOMEM\""
};

// Returns the faults at a place such as "call.reg_mr" or "event.established", in the order in which
// the sweep tries them. Errnos are those of the call's man page.
std::vector<SweepFault> FaultsAt(std::string_view place);

// Returns all places of the table, for tests. They may have '*'.
std::vector<std::string_view> FaultPlaces();

// Returns true if `pattern` matches the text. '*' stands for any characters.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace rdmaemu::cli
