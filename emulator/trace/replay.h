// Two runs by their traces (JSON lines): what each decided, and where the later one left the
// earlier. Compared is what does not depend on how long anything took or who else was there: for
// each process in the order in which they connected, and for the host's own doing, the records of
// one kind in their order, each with its kind, what happened, and the fields errno, status, reason
// and at; of a fault rule that fired its name too. Times and numbers of objects are not: those
// follow from the order of all calls of all processes. Calls of tools (`rdmaemu hosts`) do not
// count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/result.h"

namespace rdmaemu::trace {

struct Decision {
  size_t line = 0;       // in the trace, from 1
  uint32_t process = 0;  // 0: the host's own; others from 1 in the order in which they connected
  std::string kind;
  std::string text;  // "call CREATE_ID errno 0"
};

struct Run {
  std::string seed;  // with which it was made; empty: the trace does not say
  std::vector<Decision> decisions;
};

// A trace has at most so many lines that are compared.
inline constexpr size_t kMaxDecisions = 4'000'000;

// The text of a trace; an error is one sentence that names the line.
tl::expected<Run, std::string> ParseRun(std::string_view json_lines);

struct Departure {
  size_t line = 0;  // of the earlier trace; 0: the later run went on where the earlier had ended
  uint32_t process = 0;
  std::string earlier, later;  // what was decided there; empty: no more of this kind
};

// The first departure in the order of the earlier trace; nothing when the runs are the same.
std::optional<Departure> FirstDeparture(const Run& earlier, const Run& later);

}  // namespace rdmaemu::trace
