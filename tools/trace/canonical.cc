#include "tools/trace/canonical.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <tuple>
#include <utility>

#include "emulator/base/net_address.h"
#include "tools/trace/canonical_host.h"
#include "tools/trace/canonical_rules.h"
#include "tools/trace/objects.h"
#include "tools/trace/processes.h"
#include "tools/trace/show.h"

namespace rdmaemu::trace_tools {
namespace {

using ThreadNumbers = std::map<int64_t, int64_t>;

// Returns the indexes of the records, sorted by the time at which the records began. A thread may
// record a completion before another thread's call that posted the request has returned.
std::vector<size_t> InOrderOfBeginning(const std::vector<Record>& records) {
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return BeginOf(records[i]); });
  return order;
}

// Returns the power of ten that contains the duration: "1 ms to 10 ms".
std::string Decade(int64_t ns) {
  int64_t from = 1000;
  if (ns < from) return "below 1 us";
  while (from <= INT64_MAX / 10 && ns >= from * 10) from *= 10;
  return ShortDuration(from) + " to " + ShortDuration(from * 10);
}

// Splits "127.0.1.1:7174" and "[::1]:7174" into address and port. The port is empty when `text` has
// none.
std::pair<std::string, std::string> SplitPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool is_v6 = std::ranges::count(text, ':') > 1;
  if (colon == text.npos || (is_v6 && !text.starts_with('['))) return {text, ""};
  std::string address = text.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) {
    address = address.substr(1, address.size() - 2);
  }
  return {address, text.substr(colon + 1)};
}

bool IsWord(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_.#@:/-").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// Returns whether the trace has hashes of payloads (`--payload-hashes`).
bool HasHashes(const Trace& trace) {
  return std::ranges::any_of(trace.records, [](const Record& record) {
    return record.kind == "start" &&
           FieldsOf(record).value("arguments", Json::object()).contains("payload_hashes");
  });
}

// Canonicalises the records of one trace, in the order in which they began.
class Canonicalizer {
 public:
  // `with_hashes` is true when hashes of payloads count.
  Canonicalizer(const Trace& trace, const Processes& processes,
                const std::vector<ThreadNumbers>& threads, const CanonicalOptions& options,
                bool with_hashes, std::string_view side)
      : trace_(trace),
        processes_(processes),
        threads_(threads),
        options_(options),
        with_hashes_(with_hashes),
        side_(side) {}

  CanonicalTrace Run() && {
    result_.records = trace_.records.size();
    for (const size_t i : InOrderOfBeginning(trace_.records)) Take(i);
    return std::move(result_);
  }

 private:
  // The scope of a value's name. The scope of a wr_id is its queue pair. The scope of each other
  // value is its thread.
  struct Scope {
    uint32_t image = 0;
    int64_t thread = 0;
    std::string object;
    std::string key;
    auto operator<=>(const Scope&) const = default;
  };

  void Take(size_t index) {
    const Record& record = trace_.records[index];
    const Json fields = FieldsOf(record);
    image_ = processes_.of_record[index];
    const auto thread = threads_[image_].find(record.thread);
    thread_ = thread == threads_[image_].end() ? record.thread : thread->second;
    // Records that do not count also mention objects.
    MeetObjects(fields);
    if (!Counts(record, fields)) return;
    object_ = ObjectOf(record, fields);
    Item item;
    item.line = record.line;
    item.since_start_ns = record.time_ns - trace_.records.front().time_ns;
    item.text = TextOf(record, fields);
    result_.compared++;
    result_.streams[StreamOf(record, fields)].push_back(std::move(item));
  }

  // Gives a name to each object that this record is the first to mention.
  void MeetObjects(const Json& value) {
    if (value.is_string()) ObjectName(value.get_ref<const std::string&>());
    if (!value.is_structured()) return;
    for (const Json& each : value) MeetObjects(each);
  }

  // Returns the canonical name of "qp1" or "qp1.qp_num". Returns an empty text when `text` names no
  // object.
  std::string ObjectName(const std::string& text) {
    const std::string_view name = NameIn(text);
    if (name.empty()) return {};
    const auto [it, is_new] = objects_.try_emplace({image_, std::string(name)});
    if (is_new) {
      const std::string kind(KindOfName(name));
      const uint64_t number = ++created_[{image_, thread_, kind}];
      it->second = kind + std::to_string(number);
      if (thread_ > 1) it->second += "@" + std::to_string(thread_);
    }
    return it->second + text.substr(name.size());
  }

  // Returns the object of the record's stream. The object of a completion is its queue pair.
  std::string ObjectOf(const Record& record, const Json& fields) {
    if (record.kind == "completion") {
      if (const std::string qp = MentionedQp(fields); !qp.empty()) return qp;
    }
    const std::string name = ObjectName(record.object);
    if (!name.empty() || record.object.empty()) return name;
    return NameOf("device", Json(record.object));
  }

  std::string MentionedQp(const Json& value) {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (KindOfName(text) == "qp") return ObjectName(std::string(NameIn(text)));
    }
    if (!value.is_structured()) return {};
    for (const Json& each : value) {
      if (std::string qp = MentionedQp(each); !qp.empty()) return qp;
    }
    return {};
  }

  StreamKey StreamOf(const Record& record, const Json& fields) {
    StreamKey key{processes_.images[image_].name, static_cast<uint32_t>(thread_), object_, ""};
    // Any thread may fetch asynchronous events.
    if (record.kind == "async") key.thread = 0;
    if (record.kind != "completion") return key;
    key.thread = 0;
    const auto arguments = fields.find("arguments");
    const bool has = arguments != fields.end() && arguments->is_object();
    if (record.what != "SUCCESS") {
      // A failed completion has no opcode, so its direction is unknown. Only the completions of one
      // CQ have an order, so each CQ of the QP has a stream of its own.
      const std::string cq = has ? arguments->value("cq", record.object) : record.object;
      key.part = "failed " + ObjectName(cq);
      return key;
    }
    const Json& from = has && arguments->contains("opcode") ? *arguments : fields;
    const auto opcode = from.find("opcode");
    if (opcode == from.end() || !opcode->is_string()) return key;
    key.part = opcode->get_ref<const std::string&>().starts_with("RECV") ? "receives" : "sends";
    return key;
  }

  std::string TextOf(const Record& record, const Json& fields) {
    std::string text =
        record.kind + (record.what.empty() ? "" : " " + Printable(record.what)) + "\n";
    // The program, its arguments and the versions depend on the backend.
    if (record.kind == "start") return text;
    // Two traces with lost records are never the same.
    if (record.kind == "lost") text += "trace=" + std::string(side_) + "\n";
    for (const auto& [key, value] : fields.items()) {
      // Only the system backend marks records that a fault rule changed.
      static constexpr std::array<std::string_view, 9> kNotParts = {
          "time", "took_ns", "process",   "thread",  "kind",
          "what", "object",  "arguments", "injected"};
      if (key == "arguments" && value.is_object()) {
        for (const auto& [name, each] : value.items()) AddParts(name, name, each, text);
      } else if (key == "result" && HasMachineResult(record)) {
        continue;
      } else if (key == "result" && ReturnsPort(record)) {
        text += "result=" + PortOf(JsonText(value)) + "\n";
      } else if (std::ranges::find(kNotParts, key) == kNotParts.end()) {
        AddParts(key, key, value, text);
      }
    }
    if (options_.with_timing && record.took_ns != kNotTimed) {
      text += "took=" + Decade(record.took_ns) + "\n";
    }
    return text;
  }

  // Appends the parts of one value. `path` is the part's whole name ("attr.cap.max_send_wr"). `key`
  // is the last word of `path`.
  void AddParts(const std::string& path, const std::string& key, const Json& value,
                std::string& text) {
    const bool is_list = value.is_array() && std::ranges::none_of(value, [](const Json& each) {
                           return each.is_structured();
                         });
    if (value.is_structured() && !is_list) {
      size_t number = 0;
      for (const auto& [name, each] : value.items()) {
        const std::string below =
            value.is_array() ? path + "[" + std::to_string(number++) + "]" : path + "." + name;
        AddParts(below, value.is_array() ? key : name, each, text);
      }
      return;
    }
    if (RuleOf(key, value) == ValueRule::kDrop) return;
    if (key == "payload_hash" && !with_hashes_) return;
    std::string shown;
    if (is_list) {
      for (const Json& each : value) shown += (shown.empty() ? "" : ", ") + ValueOf(key, each);
      shown = "[" + shown + "]";
    } else {
      shown = ValueOf(key, value);
    }
    text += Printable(path) + "=" + shown + "\n";
  }

  std::string ValueOf(const std::string& key, const Json& value) {
    const bool is_zero = value.is_number() && value == 0;
    if (key.ends_with("port") || key == "service") {
      return PortOf(value.is_string() ? value.get<std::string>() : JsonText(value));
    }
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (std::string name = ObjectName(text); !name.empty()) return name;
      if (text.starts_with("device ")) return NameOf("device", value);
      if (std::string address = AddressOf(text); !address.empty()) return address;
      if (RuleOf(key, value) != ValueRule::kName && IsWord(text)) return text;
    }
    const bool is_scalar = value.is_string() || (value.is_number() && !is_zero);
    if (is_scalar && RuleOf(key, value) == ValueRule::kName) return NameOf(key, value);
    return JsonText(value);
  }

  // Returns "address#1:port#1". Returns an empty text when `text` is no address. Returns the
  // unspecified address unchanged.
  std::string AddressOf(const std::string& text) {
    const auto [address, port] = SplitPort(text);
    const auto parsed = NetAddress::Parse(address);
    if (!parsed) return {};
    const bool is_unspecified = address.find_first_not_of("0.:") == address.npos;
    std::string shown = is_unspecified ? address : NameOf("address", Json(address));
    if (port.empty()) return shown;
    return shown + ":" + PortOf(port);
  }

  // Returns "port#1". Programs often use a port that the system chooses, and send the port to their
  // peers.
  std::string PortOf(const std::string& text) {
    const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return is_number && text != "0" ? NameOf("port", Json(text)) : text;
  }

  std::string NameOf(const std::string& key, const Json& value) {
    const bool of_qp = key == "wr_id";
    auto& names = names_[Scope{image_, of_qp ? 0 : thread_, of_qp ? object_ : "", key}];
    const auto it = names.try_emplace(JsonText(value), names.size() + 1).first;
    return key + "#" + std::to_string(it->second);
  }

  const Trace& trace_;
  const Processes& processes_;
  const std::vector<ThreadNumbers>& threads_;
  const CanonicalOptions options_;
  const bool with_hashes_;
  const std::string_view side_;
  CanonicalTrace result_;
  // State of the record that is being canonicalised.
  uint32_t image_ = 0;
  int64_t thread_ = 0;
  std::string object_;

  std::map<std::pair<uint32_t, std::string>, std::string> objects_;
  std::map<std::tuple<uint32_t, int64_t, std::string>, uint64_t> created_;
  std::map<Scope, std::map<std::string, size_t>> names_;
};

std::vector<ThreadNumbers> OwnNumbers(const Processes& processes) {
  return std::vector<ThreadNumbers>(processes.images.size());
}

// Returns the thread numbers of each process of `b`. The numbers are those of the matching threads
// in the process of `a` with the same name.
std::vector<ThreadNumbers> NumbersOf(const Processes& a, const Processes& b) {
  std::vector<ThreadNumbers> numbers;
  for (const ProcessImage& image : b.images) {
    const auto same = std::ranges::find(a.images, image.name, &ProcessImage::name);
    numbers.push_back(same == a.images.end() ? ThreadNumbers() : MatchThreads(*same, image));
  }
  return numbers;
}

}  // namespace

tl::expected<std::pair<CanonicalTrace, CanonicalTrace>, std::string> Canonicalize(
    const Trace& a, const Trace& b, const CanonicalOptions& options) {
  for (const Trace* trace : {&a, &b}) {
    if (trace->records.empty()) return tl::unexpected(trace->name + " has no records");
    if (trace->of_capture) return tl::unexpected(trace->name + " is a capture; compare traces");
  }
  if (a.of_host != b.of_host) {
    return tl::unexpected((a.of_host ? a : b).name + " is the trace of a host, and " +
                          (a.of_host ? b : a).name +
                          " that of a program; compare two traces of one kind");
  }
  if (a.of_host) return std::pair(CanonicalizeHost(a), CanonicalizeHost(b));
  const Processes in_a = FindProcesses(a.records), in_b = FindProcesses(b.records);
  const bool hashes = HasHashes(a) && HasHashes(b);
  return std::pair(Canonicalizer(a, in_a, OwnNumbers(in_a), options, hashes, "a").Run(),
                   Canonicalizer(b, in_b, NumbersOf(in_a, in_b), options, hashes, "b").Run());
}

std::string HeadOf(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string ItemLine(const std::string& text, size_t part_bytes) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    line += (line.empty() ? "" : "  ") + text.substr(at, std::min(end - at, part_bytes));
    if (end - at > part_bytes) line += "...";
    at = end + 1;
  }
  return line;
}

}  // namespace rdmaemu::trace_tools
