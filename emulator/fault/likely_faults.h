// The faults that make sense at each place of a program, for sweeps (`rdmaemu sweep`,
// rdmaemu_rule_faults).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rdmaemu::fault {

struct LikelyFault {
  std::string name;  // "errno=ENOMEM"
  std::string keys;  // of a fault rule: "errno = \"ENOMEM\""
};

// Returns the faults at a place such as "call.reg_mr" or "event.established", in the order in which
// a sweep tries them. Errnos are those of the call's man page.
std::vector<LikelyFault> LikelyFaultsAt(std::string_view place);

// Returns the faults at a place that end the program at the other end of a connection. They need a
// test of several programs on one host of `rdmaemu run`.
std::vector<LikelyFault> PeerFaultsAt(std::string_view place);

// Returns all places of the tables, for tests. They may have '*'.
std::vector<std::string_view> PlacesOfLikelyFaults();

// Returns true if `pattern` matches the text. '*' matches any characters.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace rdmaemu::fault
