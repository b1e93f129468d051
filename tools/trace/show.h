// Formats records of traces for people, one line for each record, in columns.
#pragma once

#include <cstdint>
#include <string>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// Returns a record's name, arguments, result and other fields: "rdma_connect(id=id1,
// conn_param={...}) = 0".
std::string DescribeRecord(const Record& record);

// Appends one line and a newline. The line has the seconds since `origin_ns`, process and thread,
// kind, object, and the description. '?' replaces control characters, so that a trace cannot
// control a terminal.
void AppendLine(const Record& record, int64_t origin_ns, std::string& out);

// Returns a duration with three digits and a unit: "1.23 ms".
std::string ShortDuration(int64_t ns);

// Returns the text with '?' in place of control characters.
std::string Printable(std::string_view text);

// Appends the text, blanks up to `width` characters, and two more blanks.
void AppendColumn(std::string_view text, size_t width, std::string& out);

}  // namespace rdmaemu::trace_tools
