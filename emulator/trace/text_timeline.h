// Records as text for people: time, host, process, kind, object, what, then the fields as
// key=value. The text is in columns, so that the sorted lines of several hosts make one timeline.
#pragma once

#include <string>
#include <string_view>

#include "emulator/trace/trace.h"

namespace rdmaemu::trace {

class TextTimeline {
 public:
  // `origin`: the time that is printed as 0.
  explicit TextTimeline(std::string_view host, Time origin = Time{});

  // Appends one line with its newline. Control characters in the record's text become '?', so that
  // a record is one line and cannot control a terminal.
  void Append(const Record& record, std::string& out) const;

 private:
  std::string host_;
  Time origin_;
};

}  // namespace rdmaemu::trace
