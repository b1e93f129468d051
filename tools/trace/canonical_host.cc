#include "tools/trace/canonical_host.h"

#include <algorithm>
#include <span>
#include <utility>

#include "tools/trace/canonical_rules.h"
#include "tools/trace/show.h"

namespace rdmaemu::trace_tools {
namespace {

// Calls whose number depends on timing: those of commands such as `rdmaemu wait`, and those that
// fetch an event or a completion.
constexpr std::string_view kUncounted[] = {
    "hello",      "map_segment", "host_status", "host_stop", "clock",          "read_file",
    "fault_list", "fault_wait",  "get_event",   "poll_cq",   "get_async_event"};

constexpr std::string_view kNotFields[] = {"time", "host", "process", "kind", "object", "what"};

bool IsOneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

class HostCanonicalizer {
 public:
  explicit HostCanonicalizer(const Trace& trace) : trace_(trace) {}

  CanonicalTrace Run() && {
    result_.records = trace_.records.size();
    for (const Record& record : trace_.records) Take(record);
    return std::move(result_);
  }

 private:
  void Take(const Record& record) {
    const Json fields = FieldsOf(record);
    host_ = record.host;
    const std::string object = ObjectName(record.object);
    if (!IsCounted(record, fields)) return;
    StreamKey key{host_, 0, object, ""};
    if (record.kind == "call" && object.empty()) {
      key.part = "calls of client " + std::to_string(ClientOf(record.process));
    }
    Item item;
    item.line = record.line;
    item.since_start_ns = record.time_ns - trace_.records.front().time_ns;
    item.text = TextOf(record, fields);
    result_.compared++;
    result_.streams[key].push_back(std::move(item));
  }

  // A client that made no counted call is a command.
  bool IsCounted(const Record& record, const Json& fields) const {
    if (record.kind == "clock" && record.what == "jump") return false;  // jumps depend on timing
    if (record.kind == "process") return clients_.contains({record.host, record.process});
    if (record.kind != "call" || !IsOneOf(record.what, kUncounted)) return true;
    const auto error = fields.find("errno");
    return error != fields.end() && *error != 0;
  }

  size_t ClientOf(int64_t process) {
    return clients_.try_emplace({host_, process}, clients_.size() + 1).first->second;
  }

  std::string NameOf(const std::string& kind, const std::string& value) {
    auto& names = names_[{host_, kind}];
    return kind + "#" + std::to_string(names.try_emplace(value, names.size() + 1).first->second);
  }

  // "qp 17" -> "qp#1". The names of devices do not change: "device rxe0".
  std::string ObjectName(const std::string& object) {
    const size_t blank = object.find(' ');
    if (blank == object.npos || blank + 1 == object.size() ||
        object.find_first_not_of("0123456789", blank + 1) != object.npos) {
      return object;
    }
    return NameOf(object.substr(0, blank), object.substr(blank + 1));
  }

  std::string ValueOf(const std::string& key, const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : JsonText(value);
    if (key.ends_with("comm_id")) return NameOf("comm_id", text);
    if (key == "listener") return NameOf("id", text);
    if (key == "request_id") return NameOf(key, text);
    if (value.is_string()) {
      if (const std::string name = ObjectName(text); name != text) return name;
    }
    const bool is_zero = value.is_number() && value == 0;
    return RuleOf(key, value) == ValueRule::kName && key != "name" && !is_zero ? NameOf(key, text)
                                                                               : JsonText(value);
  }

  std::string TextOf(const Record& record, const Json& fields) {
    std::string text =
        record.kind + (record.what.empty() ? "" : " " + Printable(record.what)) + "\n";
    if (record.kind == "host") return text;  // its fields are the clock, the seed and the time
    for (const auto& [key, value] : fields.items()) {
      if (IsOneOf(key, kNotFields) || RuleOf(key, value) == ValueRule::kDrop) continue;
      text += Printable(key) + "=" + ValueOf(key, value) + "\n";
    }
    return text;
  }

  const Trace& trace_;
  CanonicalTrace result_;
  std::string host_;  // of the record that is being canonicalised
  std::map<std::pair<std::string, int64_t>, size_t> clients_;
  std::map<std::pair<std::string, std::string>, std::map<std::string, size_t>> names_;
};

}  // namespace

CanonicalTrace CanonicalizeHost(const Trace& trace) { return HostCanonicalizer(trace).Run(); }

}  // namespace rdmaemu::trace_tools
