#include "tools/trace/select.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace rdmaemu::trace_tools {
namespace {

// Returns true when a string of the record is the object's name ("qp1") or one of its numbers
// ("qp1.qp_num"). A name that does not end in a digit is a kind. The kind "qp" matches "qp7" and,
// in a host's trace, "qp 7".
bool NamesObject(std::string_view text, std::string_view name) {
  if (name.empty()) return false;
  const std::string quoted = "\"" + std::string(name);
  const bool is_kind = name.back() < '0' || name.back() > '9';
  for (size_t at = text.find(quoted); at != text.npos; at = text.find(quoted, at + 1)) {
    std::string_view rest = text.substr(at + quoted.size());
    if (is_kind) {
      if (rest.starts_with(' ')) rest.remove_prefix(1);
      const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      if (digits == 0) continue;
      rest.remove_prefix(digits);
    }
    if (rest.starts_with('"') || rest.starts_with('.')) return true;
  }
  return false;
}

bool IsSelected(const Record& record, int64_t origin, const Selection& selection) {
  const int64_t at = record.time_ns - origin;
  if (selection.from_ns && at < *selection.from_ns) return false;
  if (selection.to_ns && at > *selection.to_ns) return false;
  if (!selection.kinds.empty() && !selection.kinds.contains(record.kind)) return false;
  if (!selection.whats.empty() && !selection.whats.contains(record.what)) return false;
  if (!selection.processes.empty() &&
      !selection.processes.contains(std::to_string(record.process)) &&
      (record.host.empty() || !selection.processes.contains(record.host))) {
    return false;
  }
  return selection.objects.empty() ||
         std::ranges::any_of(selection.objects, [&](const std::string& object) {
           return NamesObject(record.text, object);
         });
}

}  // namespace

std::vector<Record> Merge(const std::vector<Trace*>& traces) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t first = kNone, first_own = kNone;  // on the wall clock, and on clocks of hosts
  for (const Trace* trace : traces) {
    int64_t& earliest = trace->has_own_clock ? first_own : first;
    for (const Record& record : trace->records) earliest = std::min(earliest, record.time_ns);
  }
  const int64_t shift = first == kNone || first_own == kNone ? 0 : first - first_own;
  std::vector<Record> merged;
  for (size_t i = 0; i < traces.size(); i++) {
    for (Record record : traces[i]->records) {
      record.file = static_cast<uint32_t>(i);
      if (traces[i]->has_own_clock) record.time_ns += shift;
      merged.push_back(std::move(record));
    }
  }
  std::ranges::stable_sort(merged, {}, &Record::time_ns);
  return merged;
}

std::vector<Record> Select(const std::vector<Record>& records, const Selection& selection) {
  std::vector<Record> selected;
  for (const Record& record : records) {
    if (IsSelected(record, records.front().time_ns, selection)) selected.push_back(record);
  }
  return selected;
}

}  // namespace rdmaemu::trace_tools
