// The frames of `rdmaemu hosts --watch`: as a table, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/watch/host_poll.h"

namespace rdmaemu::cli {

enum class Style { kPlain, kBold, kDim, kWarning, kError };

// A piece of a line. Its text has printable ASCII characters only.
struct Span {
  std::string text;
  Style style = Style::kPlain;
};
using Line = std::vector<Span>;

// Returns the heading and one line per host. `hosts` is what HostPolls::Listed returned for `now`.
std::vector<Line> TableOf(const std::vector<const HostPoll*>& hosts, WatchClock::time_point now);

// Returns {"time", "hosts": [...]} for the same hosts. Each host has a "state": "running" (with the
// host's status, "rules_fired" and "rates"), "silent" or "ended".
nlohmann::ordered_json JsonOf(const std::vector<const HostPoll*>& hosts,
                              WatchClock::time_point now);

// Returns the line without escapes.
std::string PlainText(const Line& line);
// Returns at most `width` characters of the line. Styles are escapes if `has_colours`.
std::string TerminalText(const Line& line, size_t width, bool has_colours);

// Returns a count with at most four digits and a unit, such as "0", "1.25k", "98.1M".
std::string ShortNumber(double number);

// Replaces characters that a terminal might interpret.
std::string Printable(std::string_view text);

}  // namespace rdmaemu::cli
