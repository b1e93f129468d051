// Records of traces for the eye: one line a record, in columns.
#pragma once

#include <cstdint>
#include <string>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// "rdma_connect(id=id1, conn_param={...}) = 0": a record's name, its arguments and its result.
std::string DescribeRecord(const Record& record);

// Appends one line with its newline: seconds since `origin_ns`, process and thread, kind, object,
// and the description. Control characters become '?', so that a trace cannot control a terminal.
void AppendLine(const Record& record, int64_t origin_ns, std::string& out);

// "1.23 ms": three digits and a unit.
std::string ShortDuration(int64_t ns);

// The text with '?' in place of control characters.
std::string Printable(std::string_view text);

// Appends the text and blanks up to the width, and two more.
void AppendColumn(std::string_view text, size_t width, std::string& out);

}  // namespace rdmaemu::trace_tools
