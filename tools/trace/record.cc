#include "tools/trace/record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace rdmaemu::trace_tools {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr double kMaxSeconds = 4e9;  // the year 2096; nanoseconds fit in 64 bits

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns the largest depth of arrays and objects in a text. The text need not be well-formed JSON.
size_t NestingOf(std::string_view text) {
  size_t depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') i++;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      depth--;
    }
  }
  return most;
}

// Parses decimal seconds into nanoseconds without loss. A double has too few digits for nanoseconds
// since 1970.
std::optional<int64_t> ExactSeconds(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  int64_t seconds = 0;
  const char* const last = text.data() + text.size();
  const auto [point, error] = std::from_chars(text.data(), last, seconds);
  if (error != std::errc() || seconds < 0 || static_cast<double>(seconds) > kMaxSeconds) {
    return std::nullopt;
  }
  int64_t fraction = 0, unit = kNanoseconds;
  if (point != last && *point == '.') {
    for (const char* digit = point + 1; digit != last && IsDigit(*digit) && unit > 1; digit++) {
      unit /= 10;
      fraction += (*digit - '0') * unit;
    }
  }
  const int64_t time = seconds * kNanoseconds + fraction;
  return is_negative ? -time : time;
}

// Returns the text of the number after `"time":` at the start of a line. Returns an empty text when
// the line does not begin with this key or the number has an exponent.
std::string_view TimeText(std::string_view line) {
  constexpr std::string_view kStart = "{\"time\":";
  if (!line.starts_with(kStart)) return {};
  line.remove_prefix(kStart.size());
  while (line.starts_with(' ')) line.remove_prefix(1);
  const auto is_part = [](char c) { return IsDigit(c) || c == '.' || c == '-'; };
  const auto end = std::ranges::find_if_not(line, is_part);
  // An exponent is valid JSON. The JSON parser reads such a number.
  if (end == line.end() || *end == 'e' || *end == 'E' || *end == '+') return {};
  return line.substr(0, static_cast<size_t>(end - line.begin()));
}

std::optional<int64_t> TimeOf(std::string_view line, const Json& time) {
  if (!time.is_number()) return std::nullopt;
  if (const std::string_view text = TimeText(line); !text.empty()) return ExactSeconds(text);
  const double seconds = time.get<double>();
  if (!(std::fabs(seconds) <= kMaxSeconds)) return std::nullopt;
  return static_cast<int64_t>(std::llround(seconds * static_cast<double>(kNanoseconds)));
}

// Returns a key's string, or an empty text. Sets `wrong` when the value is not a string.
std::string StringOf(const Json& fields, const char* key, const char*& wrong) {
  const auto it = fields.find(key);
  if (it == fields.end() || it->is_null()) return {};
  if (it->is_string()) return it->get<std::string>();
  wrong = key;
  return {};
}

int64_t NumberOf(const Json& fields, const char* key, int64_t otherwise, const char*& wrong) {
  const auto it = fields.find(key);
  if (it == fields.end()) return otherwise;
  if (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX) {
    wrong = key;
  } else if (it->is_number_integer() && it->get<int64_t>() >= 0) {
    return it->get<int64_t>();
  } else {
    wrong = key;
  }
  return otherwise;
}

tl::expected<Record, std::string> ParseRecord(std::string_view line) {
  if (line.size() > kMaxLineBytes) return tl::unexpected(std::string("is longer than 1 MiB"));
  if (NestingOf(line) > kMaxNesting) {
    return tl::unexpected("has more than " + std::to_string(kMaxNesting) +
                          " arrays and objects in each other");
  }
  const Json fields = Json::parse(line, nullptr, false);
  if (!fields.is_object()) return tl::unexpected(std::string("is not a JSON object"));
  for (const char* key : {"time", "process", "kind"}) {
    if (!fields.contains(key)) return tl::unexpected("has no key \"" + std::string(key) + "\"");
  }
  Record record;
  record.text = line;
  const char* wrong = nullptr;
  const std::optional<int64_t> time = TimeOf(line, fields["time"]);
  if (time) record.time_ns = *time;
  if (!time) wrong = "time";
  record.took_ns = NumberOf(fields, "took_ns", kNotTimed, wrong);
  record.process = NumberOf(fields, "process", 0, wrong);
  record.thread = NumberOf(fields, "thread", 0, wrong);
  record.host = StringOf(fields, "host", wrong);
  record.kind = StringOf(fields, "kind", wrong);
  record.what = StringOf(fields, "what", wrong);
  record.object = StringOf(fields, "object", wrong);
  if (wrong == nullptr && record.kind.empty()) wrong = "kind";
  if (wrong != nullptr) {
    return tl::unexpected("has a value of \"" + std::string(wrong) + "\" that cannot be");
  }
  return record;
}

// Detects a host's trace and converts its times to times since 1970. The first record of a host
// with the machine's clock has the wall-clock time of the host's time 0 (`time_0`).
void TakeHostClock(Trace& trace) {
  if (trace.records.empty() || trace.records.front().host.empty()) return;
  trace.of_host = true;
  trace.has_own_clock = true;
  const Json fields = FieldsOf(trace.records.front());
  const auto it = fields.find("time_0");
  if (it == fields.end() || !it->is_string()) return;
  const std::optional<int64_t> time_0 = ExactSeconds(it->get_ref<const std::string&>());
  if (!time_0) return;
  trace.has_own_clock = false;
  for (Record& record : trace.records) record.time_ns += *time_0;
}

}  // namespace

tl::expected<void, std::string> ReadTrace(std::string name, std::string text, Trace& trace) {
  trace.name = std::move(name);
  trace.text = std::move(text);
  size_t number = 0;
  for (std::string_view left = trace.text; !left.empty();) {
    const size_t end = left.find('\n');
    const std::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    number++;
    auto record = ParseRecord(line);
    if (!record && end == std::string_view::npos) {
      trace.is_cut = true;
      break;
    }
    const auto wrong = [&](const std::string& why) {
      return tl::unexpected(trace.name + ":" + std::to_string(number) + ": " + why);
    };
    if (!record) return wrong("not a record of a trace: the line " + record.error());
    if (trace.records.size() == kMaxRecords) {
      return wrong("the trace has more than " + std::to_string(kMaxRecords) + " records");
    }
    record->line = number;
    trace.records.push_back(std::move(*record));
  }
  TakeHostClock(trace);
  return {};
}

Json FieldsOf(const Record& record) { return Json::parse(record.text, nullptr, false); }

std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rdmaemu::trace_tools
