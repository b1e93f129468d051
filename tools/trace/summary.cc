#include "tools/trace/summary.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "emulator/trace/seconds.h"
#include "tools/trace/objects.h"
#include "tools/trace/show.h"

namespace rdmaemu::trace_tools {
namespace {

// Calls `take` with each string in a value, at any depth.
void ForEachString(const Json& value, const std::function<void(const std::string&)>& take) {
  if (value.is_string()) take(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const Json& each : value) ForEachString(each, take);
}

bool HasFailed(const Json& fields) {
  if (fields.contains("errno")) return fields["errno"] != 0;
  const auto result = fields.find("result");
  return result != fields.end() && result->is_number_integer() && result->get<int64_t>() < 0;
}

// The objects that program traces create and do not destroy.
class OpenObjects {
 public:
  void Take(const Record& record) {
    if (!record.host.empty()) return;
    if (record.kind == "start" || record.kind == "end") {
      // A `start` record follows exec(3), which frees all objects of the earlier image. The list
      // drops these objects. The kernel frees the objects of a process that has ended. These
      // objects remain in the list.
      if (record.kind == "start") Forget(record);
      return;
    }
    const bool is_request = record.kind == "event" && record.what == "CONNECT_REQUEST";
    const std::string_view created = is_request ? "id" : KindCreatedBy(record.what);
    const std::string_view destroyed = KindDestroyedBy(record.what);
    if (record.kind != "call" && !is_request) return;
    if (created.empty() && destroyed.empty() && record.what != "rdma_create_ep") return;
    const Json fields = FieldsOf(record);
    if (HasFailed(fields)) return;
    if (!created.empty()) Create(record, fields, created);
    if (!destroyed.empty()) Destroy(record, fields, destroyed);
  }
  std::vector<LeftOpen> Left() const {
    std::vector<LeftOpen> left;
    for (const auto& [key, record] : open_) left.push_back({key.object, record});
    std::ranges::stable_sort(left, {}, [](const LeftOpen& each) {
      return std::tuple(each.created_by.time_ns, each.created_by.file, each.created_by.line);
    });
    return left;
  }

 private:
  struct Key {
    uint32_t file;
    int64_t process;
    std::string object;
    auto operator<=>(const Key&) const = default;
  };

  void Forget(const Record& start) {
    std::erase_if(open_, [&](const auto& each) {
      return each.first.file == start.file && each.first.process == start.process;
    });
    std::erase_if(seen_, [&](const Key& key) {
      return key.file == start.file && key.process == start.process;
    });
  }
  // The call may also name existing objects. An object is new when no earlier creating call of the
  // process named the object.
  void Create(const Record& record, const Json& fields, std::string_view kind) {
    const auto take = [&](const std::string& text) {
      if (KindOfName(text) != kind) return;
      Key key{record.file, record.process, std::string(NameIn(text))};
      if (!seen_.insert(key).second) return;
      if (record.what == "rdma_create_qp" || record.what == "rdma_create_qp_ex") {
        qp_of_id_[Key{record.file, record.process, record.object}] = key;
      }
      open_.emplace(std::move(key), record);
    };
    for (const char* where : {"result", "object", "arguments"}) {
      if (const auto it = fields.find(where); it != fields.end()) ForEachString(*it, take);
    }
  }
  void Destroy(const Record& record, const Json& fields, std::string_view kind) {
    bool found = false;
    const auto take = [&](const std::string& text) {
      if (found || KindOfName(text) != kind) return;
      found = true;
      open_.erase(Key{record.file, record.process, std::string(NameIn(text))});
    };
    for (const char* where : {"object", "arguments"}) {
      if (const auto it = fields.find(where); it != fields.end()) ForEachString(*it, take);
    }
    // These calls name the id, not its QP.
    const bool takes_qp = record.what == "rdma_destroy_qp" || record.what == "rdma_destroy_ep";
    const auto qp = qp_of_id_.find(Key{record.file, record.process, record.object});
    if (takes_qp && qp != qp_of_id_.end()) open_.erase(qp->second);
  }

  std::map<Key, Record> open_;
  std::map<Key, Key> qp_of_id_;
  std::set<Key> seen_;
};

CallTimes TimesOf(const std::string& what, std::vector<int64_t>& took) {
  CallTimes times;
  times.what = what;
  times.timed = took.size();
  if (took.empty()) return times;
  std::ranges::sort(took);
  // Returns the smallest value that at least `hundredths` hundredths of all values do not exceed.
  const auto percentile = [&](size_t hundredths) {
    return took[(took.size() * hundredths + 99) / 100 - 1];
  };
  times.min_ns = took.front();
  times.median_ns = percentile(50);
  times.p99_ns = percentile(99);
  times.max_ns = took.back();
  return times;
}

void KeepLongest(std::vector<Record>& waits) {
  const auto by_time = [](const Record& one, const Record& other) {
    return one.took_ns > other.took_ns;
  };
  std::ranges::stable_sort(waits, by_time);
  if (waits.size() > kLongestWaits) waits.resize(kLongestWaits);
}

std::string Seconds(int64_t ns) {
  std::string text;
  trace::AppendSeconds(Duration(ns), text);
  return text + " s";
}

void AppendRow(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
               std::string& out) {
  out += "  ";
  for (size_t i = 0; i < cells.size(); i++) {
    // Names are left-aligned. Numbers are right-aligned.
    if (i == 0) {
      AppendColumn(cells[i], widths[i], out);
    } else {
      if (cells[i].size() < widths[i]) out.append(widths[i] - cells[i].size(), ' ');
      out += cells[i] + "  ";
    }
  }
  out.erase(out.find_last_not_of(' ') + 1);
  out += '\n';
}

void AppendTable(const std::vector<std::vector<std::string>>& rows, std::string& out) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) AppendRow(row, widths, out);
}

}  // namespace

Summary Summarize(const std::vector<Record>& merged) {
  Summary summary;
  summary.records = merged.size();
  if (!merged.empty()) summary.length_ns = merged.back().time_ns - merged.front().time_ns;
  OpenObjects objects;
  std::map<std::string, std::vector<int64_t>> took;
  std::map<std::string, size_t> counts, failed;
  for (const Record& record : merged) {
    summary.counts[{record.kind, record.what}]++;
    if (record.kind == "lost") summary.lost++;
    objects.Take(record);
    if (record.kind != "call") continue;
    const Json fields = FieldsOf(record);
    // Consecutive polls that found no completion are one record.
    const auto times = fields.find("times");
    const bool is_several = times != fields.end() && times->is_number_unsigned();
    counts[record.what] += is_several ? times->get<uint64_t>() : 1;
    if (HasFailed(fields) && !is_several) failed[record.what]++;
    if (record.took_ns == kNotTimed) continue;
    took[record.what].push_back(record.took_ns);
    summary.longest_waits.push_back(record);
    if (summary.longest_waits.size() >= 2 * kLongestWaits) KeepLongest(summary.longest_waits);
  }
  KeepLongest(summary.longest_waits);
  for (const auto& [what, count] : counts) {
    CallTimes times = TimesOf(what, took[what]);
    times.count = count;
    times.failed = failed[what];
    summary.calls.push_back(std::move(times));
  }
  summary.left_open = objects.Left();
  return summary;
}

std::string PlaceOf(const Record& record, const std::vector<std::string>& names) {
  return names.at(record.file) + ":" + std::to_string(record.line);
}

std::string SummaryText(const Summary& summary, const std::vector<std::string>& names) {
  std::string out =
      std::to_string(summary.records) + " records in " + Seconds(summary.length_ns) + "\n";
  if (summary.lost > 0) {
    out += "warning: " + std::to_string(summary.lost) +
           " records say that records were lost; the figures are too low\n";
  }
  if (!summary.calls.empty()) {
    out += "\ncalls\n";
    std::vector<std::vector<std::string>> rows = {
        {"name", "count", "failed", "min", "median", "99 %", "max"}};
    for (const CallTimes& call : summary.calls) {
      rows.push_back(
          {Printable(call.what), std::to_string(call.count), std::to_string(call.failed)});
      for (const int64_t ns : {call.min_ns, call.median_ns, call.p99_ns, call.max_ns}) {
        rows.back().push_back(call.timed == 0 ? "-" : ShortDuration(ns));
      }
    }
    AppendTable(rows, out);
  }
  std::vector<std::vector<std::string>> others = {{"kind and name", "count"}};
  for (const auto& [key, count] : summary.counts) {
    if (key.first == "call") continue;
    others.push_back({Printable(key.first + " " + key.second), std::to_string(count)});
  }
  if (others.size() > 1) {
    out += "\nothers\n";
    AppendTable(others, out);
  }
  if (!summary.longest_waits.empty()) out += "\nlongest waits\n";
  for (const Record& wait : summary.longest_waits) {
    out += "  " + PlaceOf(wait, names) + ": " + std::to_string(wait.process) + "/" +
           std::to_string(wait.thread) + " " + Printable(DescribeRecord(wait)) + "\n";
  }
  out += "\nobjects left open: " + std::to_string(summary.left_open.size()) + "\n";
  for (const LeftOpen& left : summary.left_open) {
    out += "  " + left.object + " of process " + std::to_string(left.created_by.process) +
           ", created at " + PlaceOf(left.created_by, names) + ": " +
           Printable(DescribeRecord(left.created_by)) + "\n";
  }
  return out;
}

Json SummaryJson(const Summary& summary, const std::vector<std::string>& names) {
  Json json = {
      {"records", summary.records}, {"length_ns", summary.length_ns}, {"lost", summary.lost}};
  json["counts"] = Json::array();
  for (const auto& [key, count] : summary.counts) {
    json["counts"].push_back({{"kind", key.first}, {"what", key.second}, {"count", count}});
  }
  json["calls"] = Json::array();
  for (const CallTimes& call : summary.calls) {
    json["calls"].push_back({{"what", call.what}, {"count", call.count}, {"failed", call.failed}});
    if (call.timed == 0) continue;
    json["calls"].back().update(Json{{"min_ns", call.min_ns},
                                     {"median_ns", call.median_ns},
                                     {"p99_ns", call.p99_ns},
                                     {"max_ns", call.max_ns}});
  }
  const auto place = [&](const Record& record) {
    return Json{
        {"file", names.at(record.file)}, {"line", record.line}, {"record", FieldsOf(record)}};
  };
  json["longest_waits"] = Json::array();
  for (const Record& wait : summary.longest_waits) json["longest_waits"].push_back(place(wait));
  json["left_open"] = Json::array();
  for (const LeftOpen& left : summary.left_open) {
    Json one = {{"object", left.object}, {"process", left.created_by.process}};
    one.update(place(left.created_by));
    json["left_open"].push_back(std::move(one));
  }
  return json;
}

}  // namespace rdmaemu::trace_tools
