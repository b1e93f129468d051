#include "tools/trace/show.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "emulator/trace/seconds.h"

namespace rdmaemu::trace_tools {
namespace {

// Column widths. A longer value shifts the rest of its line to the right.
constexpr size_t kTimeColumn = 13, kProcessColumn = 9, kKindColumn = 10, kObjectColumn = 9;

// Keys that have a fixed place in a line.
constexpr std::array<std::string_view, 12> kPlaced = {"time",      "took_ns", "host",  "process",
                                                      "thread",    "kind",    "what",  "object",
                                                      "arguments", "result",  "errno", "injected"};

// Appends a value without the quotes of JSON: {qp_type=RC, cap={max_send_wr=16}}.
void AppendValue(const Json& value, std::string& out) {
  if (value.is_string()) {
    out += value.get_ref<const std::string&>();
  } else if (value.is_object() || value.is_array()) {
    out += value.is_object() ? '{' : '[';
    bool is_first = true;
    for (const auto& [key, each] : value.items()) {
      if (!is_first) out += ", ";
      is_first = false;
      if (value.is_object()) out += key + "=";
      AppendValue(each, out);
    }
    out += value.is_object() ? '}' : ']';
  } else {
    out += JsonText(value);
  }
}

std::string WhoOf(const Record& record) {
  if (!record.host.empty()) {
    return record.host + (record.process == 0 ? "" : " p" + std::to_string(record.process));
  }
  return std::to_string(record.process) +
         (record.thread > 1 ? "/" + std::to_string(record.thread) : "");
}

}  // namespace

std::string DescribeRecord(const Record& record) {
  const Json fields = FieldsOf(record);
  std::string out = record.what.empty() ? record.kind : record.what;
  if (const auto it = fields.find("arguments"); it != fields.end() && it->is_object()) {
    std::string arguments;
    AppendValue(*it, arguments);
    out += "(" + arguments.substr(1, arguments.size() - 2) + ")";
  }
  if (const auto it = fields.find("result"); it != fields.end()) {
    out += " = ";
    AppendValue(*it, out);
  }
  if (const auto it = fields.find("errno"); it != fields.end()) {
    // A call in a host's trace has no result, so errno is a field of its own there.
    out += record.host.empty() ? " " : "  errno=";
    AppendValue(*it, out);
  }
  for (const auto& [key, value] : fields.items()) {
    if (std::ranges::find(kPlaced, key) != kPlaced.end()) continue;
    out += "  " + key + "=";
    AppendValue(value, out);
  }
  if (const auto it = fields.find("injected"); it != fields.end()) {
    out += "  [injected by ";
    AppendValue(*it, out);
    out += "]";
  }
  if (record.took_ns != kNotTimed) out += "  [" + ShortDuration(record.took_ns) + "]";
  return out;
}

void AppendLine(const Record& record, int64_t origin_ns, std::string& out) {
  std::string time;
  trace::AppendSeconds(Duration(record.time_ns - origin_ns), time);
  if (time.size() < kTimeColumn) out.append(kTimeColumn - time.size(), ' ');
  out += time + "  ";
  AppendColumn(Printable(WhoOf(record)), kProcessColumn, out);
  AppendColumn(Printable(record.kind), kKindColumn, out);
  AppendColumn(Printable(record.object), kObjectColumn, out);
  out += Printable(DescribeRecord(record)) + "\n";
}

std::string ShortDuration(int64_t ns) {
  static constexpr std::array<std::pair<double, const char*>, 4> kUnits = {
      {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}}};
  const auto value = static_cast<double>(ns);
  // With three digits, 999.6 us is 1 ms.
  const auto unit = std::ranges::find_if(
      kUnits, [&](const auto& each) { return value >= each.first * 0.9995 || each.first == 1; });
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g %s", value / unit->first, unit->second);
  // %g writes an exponent beyond 999 s.
  if (value >= 999.5e9) std::snprintf(text.data(), text.size(), "%.0f s", value / 1e9);
  return text.data();
}

std::string Printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return out;
}

void AppendColumn(std::string_view text, size_t width, std::string& out) {
  out += text;
  if (text.size() < width) out.append(width - text.size(), ' ');
  out += "  ";
}

}  // namespace rdmaemu::trace_tools
