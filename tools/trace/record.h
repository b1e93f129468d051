// Records of traces, as the tools read them: of program traces (`rdmaemu run --program-trace`) and
// of host traces (`rdmaemu run --trace`). docs/trace.md describes both schemas.
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

// Limits of what the tools read. A trace is a file, so its content is hostile.
inline constexpr size_t kMaxTraceBytes = size_t{1} << 30;
inline constexpr size_t kMaxRecords = 4'000'000;  // of one trace
inline constexpr size_t kMaxLineBytes = size_t{1} << 20;
inline constexpr size_t kMaxNesting = 32;  // of arrays and objects in one record

inline constexpr int64_t kNotTimed = -1;

// The keys that every record has. The others are read from `text` when they are needed.
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

// The time at which a call began, and the time of any other record.
inline int64_t BeginOf(const Record& record) {
  return record.took_ns == kNotTimed ? record.time_ns : record.time_ns - record.took_ns;
}

struct Trace {
  std::string name;  // of the file, for messages
  std::string text;
  std::vector<Record> records;
  bool of_host = false;
  // The last line has no newline and is no record: its writer was killed. The line is left out.
  bool is_cut = false;
  // A host's trace whose clock is not the real one, or that was made by an older host: its times
  // do not count from 1970.
  bool has_own_clock = false;

  Trace() = default;
  Trace(Trace&&) = delete;  // records point into `text`
};

// Reads the text of a trace into `trace`, whose records must be empty. An error is one sentence
// that begins with the file's name and the line: "a.jsonl:7: is not a record of a trace: ...".
tl::expected<void, std::string> ReadTrace(std::string name, std::string text, Trace& trace);

// All keys of a record. The record must come from ReadTrace.
Json FieldsOf(const Record& record);

// A JSON value on one line. U+FFFD replaces bytes that are not UTF-8.
std::string JsonText(const Json& value);

}  // namespace rdmaemu::trace_tools
