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
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// A trace's records, line by line.
class RunReader {
 public:
  // Takes a line without its end. The decision in it, if it is one of those that are compared; an
  // error is one sentence that names the line.
  tl::expected<std::optional<Decision>, std::string> Take(std::string_view line);
  const std::string& seed() const { return seed_; }

 private:
  size_t lines_ = 0, decisions_ = 0;
  std::string seed_;
  std::map<int64_t, uint32_t> numbers_ = {{0, 0}};  // of processes, by the trace's own
};

// The text of a trace; errors as above.
tl::expected<Run, std::string> ParseRun(std::string_view json_lines);

struct Departure {
  size_t line = 0;  // of the earlier trace; 0: the later run went on where the earlier had ended
  uint32_t process = 0;
  std::string earlier, later;  // what was decided there; empty: no more of this kind
};

// The first departure in the order of the earlier trace; nothing when the runs are the same.
std::optional<Departure> FirstDeparture(const Run& earlier, const Run& later);

// The same while the later run goes on: what it decides otherwise, or more than the earlier one, is
// told at once. What it leaves out is known at its end only.
class RunFollower {
 public:
  explicit RunFollower(const Run& earlier);
  // A line of the later trace. A departure when it is one; errors as above.
  tl::expected<std::optional<Departure>, std::string> Take(std::string_view line);

 private:
  struct Sequence {
    std::vector<Decision> decisions;
    size_t next = 0;
  };
  RunReader reader_;
  std::map<std::pair<uint32_t, std::string>, Sequence> earlier_;  // by process and kind
};

}  // namespace rdmaemu::trace
