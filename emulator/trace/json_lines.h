// Records as JSON lines: one object a record, the same keys in the same order, so that a line can
// be compared, filtered with jq and merged by time. docs/trace.md is the schema.
#pragma once

#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class JsonLines {
 public:
  // host: the name that stands in every line.
  explicit JsonLines(std::string_view host);

  // Appends one line with its newline. Text that is not UTF-8 gets U+FFFD where it is not. A field
  // whose key is one of the record's own is written as "field.<key>".
  void Append(const Record& record, std::string& out) const;

 private:
  std::string quoted_host_;
};

}  // namespace rdmaemu::trace
