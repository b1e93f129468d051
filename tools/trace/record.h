// Reads records of traces. A trace is of a program (`rdmaemu run --program-trace`) or of a host
// (`rdmaemu run --trace`). docs/trace.md describes both schemas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace rdmaemu::trace_tools {

using Json = nlohmann::ordered_json;

// Limits of the traces that the tools read. A trace is a file, so the tools do not trust its
// content.
inline constexpr size_t kMaxTraceBytes = size_t{1} << 30;
inline constexpr size_t kMaxRecords = 4'000'000;  // of one trace
inline constexpr size_t kMaxLineBytes = size_t{1} << 20;
inline constexpr size_t kMaxNesting = 32;  // of arrays and objects in one record

inline constexpr int64_t kNotTimed = -1;

// The keys that most records have. `FieldsOf` reads all keys from `text`.
struct Record {
  uint32_t file = 0;  // index of the trace among those that were merged
  size_t line = 0;    // in its file, from 1
  int64_t time_ns = 0;
  int64_t took_ns = kNotTimed;  // of a call
  int64_t process = 0;          // a pid; in a host's trace the number of the client
  int64_t thread = 0;           // 0: the record has none
  std::string host;             // empty in a program's trace
  std::string kind, what, object;
  std::string_view text;  // the whole line; points into the Trace
};

// Returns the time at which a timed call began. Returns `time_ns` of any other record.
inline int64_t BeginOf(const Record& record) {
  return record.took_ns == kNotTimed ? record.time_ns : record.time_ns - record.took_ns;
}

struct Trace {
  std::string name;  // of the file, for messages
  std::string text;
  std::vector<Record> records;
  bool of_host = false;
  bool of_capture = false;  // its records are packets (capture.h)
  // True when the last line has no newline and is no record, because its writer was killed. The
  // records lack this line.
  bool is_cut = false;
  // True when the trace is of a host, and its times do not count from 1970. The host's clock is not
  // the real one, or the host is of an older version.
  bool has_own_clock = false;

  Trace() = default;
  Trace(Trace&&) = delete;  // records point into `text`
};

// Parses `text` into `trace`, whose records must be empty. An error is one sentence that begins
// with the file's name and the line: "a.jsonl:7: not a record of a trace: ...".
tl::expected<void, std::string> ReadTrace(std::string name, std::string text, Trace& trace);

// Returns all keys of a record. The record must be from `ReadTrace`.
Json FieldsOf(const Record& record);

// Returns a JSON value on one line. U+FFFD replaces bytes that are not UTF-8.
std::string JsonText(const Json& value);

}  // namespace rdmaemu::trace_tools
