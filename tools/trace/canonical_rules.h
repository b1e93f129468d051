// Tables of the records and values that may differ between two runs of one program. canonical.cc
// applies the tables.
#pragma once

#include <string_view>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// Returns whether the record must be in both runs. Returns false for polls, and for the
// acknowledgement of completion events. Also returns false for calls that fetch or wait for an
// event or completion with a record of its own. The number of these calls depends on timing. Their
// failures count, unless the errno only means that there was no event or completion.
bool Counts(const Record& record, const Json& fields);

// Returns whether the call's result is a port.
bool ReturnsPort(const Record& record);

// Returns whether the call's result belongs to the machine, such as the name of its device.
bool HasMachineResult(const Record& record);

enum class ValueRule {
  kKeep,
  kDrop,  // the value does not depend on the program
  kName,  // the machine chose the value: "rkey#1" for the first one, "rkey#2" for the next
};
// Returns the rule for a value. `key` is the name of an argument, or of a member of a struct.
// `value` is a number or a string.
ValueRule RuleOf(std::string_view key, const Json& value);

// wr_ids and immediate data of this value or more get names, because they are pointers or numbers
// of queue pairs.
inline constexpr uint64_t kFirstNamedTag = 1 << 16;

}  // namespace rdmaemu::trace_tools
