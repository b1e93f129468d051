// What may differ between two runs of one program, as tables. canonical.cc applies them.
#pragma once

#include <string_view>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// Whether the record must be in both runs. False for polls, for calls that fetch or await what has
// a record of its own, and for the acknowledgement of completion events: their number depends on
// timing. Failures of these count, unless they only say that there was nothing.
bool Counts(const Record& record, const Json& fields);

// Whether the call returns a port.
bool ReturnsPort(const Record& record);

// Whether the result of the call belongs to the machine: the name of its device.
bool HasMachineResult(const Record& record);

enum class ValueRule {
  kKeep,
  kDrop,  // says nothing about the program
  kName,  // the machine chose it: "rkey#1" for the first one, "rkey#2" for the next
};
// `key`: the name of an argument, or of a member of a struct. `value` is a number or a string.
ValueRule RuleOf(std::string_view key, const Json& value);

// From here on wr_ids and immediate data are named, because they are pointers or numbers of queue
// pairs.
inline constexpr uint64_t kFirstNamedTag = 1 << 16;

}  // namespace rdmaemu::trace_tools
