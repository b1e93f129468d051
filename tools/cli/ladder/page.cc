#include "tools/cli/ladder/page.h"

#include <algorithm>

namespace rdmaemu::cli {
namespace {

using trace_tools::Json;
using trace_tools::Record;

std::string_view Source(std::string_view file_name) {
  for (const LadderSource& source : LadderSources()) {
    if (source.file_name == file_name) return source.text;
  }
  return {};
}

// Appends JSON that cannot end the element that contains it. In JSON, "<" occurs only in strings,
// and \u003c means the same there.
void AppendEscaped(const std::string& json, std::string& out) {
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
}

// Appends the data of the page. A record is [index of its file, line, nanoseconds since the first
// record, the record].
void AppendData(const std::vector<Record>& records, const std::vector<LadderFile>& files,
                size_t& left_out, std::string& out) {
  const int64_t origin = records.empty() ? 0 : records.front().time_ns;
  out += "{\"records\":[";
  const size_t start = out.size();
  size_t shown = 0;
  for (const Record& record : records) {
    if (shown == kMaxLadderRecords || out.size() - start > kMaxLadderBytes) break;
    out += shown++ == 0 ? "[" : ",\n[";
    out += std::to_string(record.file) + "," + std::to_string(record.line) + "," +
           std::to_string(record.time_ns - origin) + ",";
    AppendEscaped(trace_tools::JsonText(trace_tools::FieldsOf(record)), out);
    out += "]";
  }
  left_out = records.size() - shown;
  Json rest = {{"origin_ns", std::to_string(origin)},
               {"left_out", left_out},
               {"limit", kMaxLadderRecords},
               {"left_out_from_ns", left_out == 0 ? 0 : records[shown].time_ns - origin},
               {"files", Json::array()}};
  for (const LadderFile& file : files) {
    rest["files"].push_back({{"name", file.name},
                             {"kind", file.kind},
                             {"records", file.records},
                             {"cut", file.is_cut},
                             {"own_clock", file.has_own_clock}});
  }
  out += "],";
  AppendEscaped(trace_tools::JsonText(rest).substr(1), out);
}

}  // namespace

std::string LadderPage(const std::vector<Record>& records, const std::vector<LadderFile>& files,
                       size_t& left_out) {
  const std::string_view page = Source("page.html");
  std::string out;
  // The page has a line "@include FILE" for each part of it.
  constexpr std::string_view kInclude = "@include ";
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string_view line = page.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(kInclude)) {
      out.append(line).append("\n");
    } else if (line.substr(kInclude.size()) == "data") {
      AppendData(records, files, left_out, out);
      out += "\n";
    } else {
      out += Source(line.substr(kInclude.size()));
    }
  }
  return out;
}

}  // namespace rdmaemu::cli
