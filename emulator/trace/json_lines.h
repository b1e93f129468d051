// Records as JSON lines, one object per record. Keys and their order are always the same, so that
// tools can compare lines, filter them with jq and merge them by time. docs/trace.md is the schema.
#pragma once

#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class JsonLines {
 public:
  // `host`: the name in every line.
  explicit JsonLines(std::string_view host);

  // Appends one line with its newline. U+FFFD replaces bytes that are not UTF-8. A field whose key
  // is one of the record's own keys is written as "field.<key>".
  void Append(const Record& record, std::string& out) const;

 private:
  std::string quoted_host_;
};

}  // namespace rdmaemu::trace
