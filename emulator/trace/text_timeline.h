// Records as text that a person reads: time, host, process, kind, object, what, then the fields as
// key=value, in columns, so that the lines of several hosts sorted by time make one timeline.
#pragma once

#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class TextTimeline {
 public:
  // origin: the instant that is printed as 0.
  explicit TextTimeline(std::string_view host, Time origin = Time{});

  // Appends one line with its newline; control characters in the record's text become '?', so that
  // a record stays one line and cannot steer a terminal.
  void Append(const Record& record, std::string& out) const;

 private:
  std::string host_;
  Time origin_;
};

}  // namespace rdmaemu::trace
