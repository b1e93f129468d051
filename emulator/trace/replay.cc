#include "emulator/trace/replay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "emulator/base/call_spelling.h"

namespace rdmaemu::trace {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 8> kKinds = {
    "call", "fault", "cm.event", "cm.send", "cm.receive", "qp.state", "async", "wc.error"};
constexpr std::array<const char*, 4> kFields = {"errno", "status", "reason", "at"};

// Kinds of records about events for a process, whether or not the process fetches them.
constexpr std::array<std::string_view, 3> kArrivals = {kFetch, "cm.event", "async"};
constexpr std::array<std::string_view, 2> kFetchCalls = {"get_event", "get_async_event"};

template <class List, class Value>
bool Contains(const List& list, const Value& value) {
  return std::ranges::find(list, value) != list.end();
}

// Returns true for calls that tools make to observe a host.
bool IsOfATool(const std::string& kind, const std::string& what) {
  return kind == "call" && (what == "host_status" || what == "fault_list" || what == "fault_wait" ||
                            what == "clock" || what == "host_stop");
}

// Before the spelling of rules, traces named calls "RegMr" and "CONNECT". A trace of such a run is
// compared with a new one by the present names.
std::string WhatOf(const Json& record, const std::string& kind) {
  std::string what = record.at("what").get<std::string>();
  if (kind != "call") return what;
  std::string name;
  SpellCall(what, [&](char letter) { name += letter; });
  return name;
}

std::string ValueText(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string TextOf(const Json& record, const std::string& kind, const std::string& what) {
  std::string text = kind + " " + what;
  if (kind == "fault") text += " \"" + record.value("object", "") + "\"";
  for (const char* field : kFields) {
    if (record.contains(field)) text += std::string(" ") + field + " " + ValueText(record[field]);
  }
  return text;
}

using Key = std::pair<uint32_t, std::string>;
using Sequences = std::map<Key, std::vector<const Decision*>>;

Sequences ByProcessAndKind(const Run& run) {
  Sequences sequences;
  for (const Decision& decision : run.decisions) {
    sequences[{decision.process, decision.kind}].push_back(&decision);
  }
  return sequences;
}

// The runs in which the process ended. They may lack its last events.
struct MayEndEarly {
  bool earlier = false, later = false;
};

// Returns true when the run may lack the last records of the sequence. Those records would have
// followed the end of its process or, for the host itself, of all processes.
bool MayLackTheLast(const Run& run, const Key& sequence) {
  const auto& [process, kind] = sequence;
  if (process == 0) return run.all_ended && kind == kDisconnects;
  return run.ended.contains(process) && Contains(kArrivals, kind);
}

std::optional<Departure> Compare(uint32_t process, const std::vector<const Decision*>& earlier,
                                 const std::vector<const Decision*>& later, MayEndEarly may) {
  const auto same = [](const Decision* a, const Decision* b) { return a->text == b->text; };
  const auto [there, here] = std::ranges::mismatch(earlier, later, same);
  const bool ended = there == earlier.end(), ends = here == later.end();
  if ((ended && (ends || may.earlier)) || (ends && may.later)) return std::nullopt;
  return Departure{ended ? 0 : (*there)->line, process, ended ? "" : (*there)->text,
                   ends ? "" : (*here)->text};
}

bool ComesBefore(const Departure& one, const Departure& other) {
  if (one.line == 0 || other.line == 0) return one.line != 0;
  return one.line < other.line;
}

}  // namespace

tl::expected<std::optional<Decision>, std::string> RunReader::Take(std::string_view line) {
  lines_++;
  const auto wrong = [&](const char* why) {
    return tl::unexpected("line " + std::to_string(lines_) + " " + why);
  };
  const Json record = Json::parse(line, nullptr, false);
  if (!record.is_object()) return wrong("is not a record of a trace");
  try {
    const std::string kind = record.at("kind").get<std::string>();
    const std::string what = WhatOf(record, kind);
    const auto process = record.at("process").get<int64_t>();
    if (kind == "process" && what == "END") {
      if (const auto it = numbers_.find(process); it != numbers_.end()) ended_.insert(it->second);
    }
    if (kind == "host" && what == "START") seed_ = record.value("seed", "");
    if (!Contains(kKinds, kind) || IsOfATool(kind, what)) return std::nullopt;
    if (decisions_++ >= kMaxDecisions) return wrong("is one too many to compare");
    const auto next = static_cast<uint32_t>(numbers_.size());
    const uint32_t number = numbers_.try_emplace(process, next).first->second;
    const bool is_fetch = kind == "call" && Contains(kFetchCalls, what);
    // The program destroyed the channel while one of its threads was about to fetch.
    if (is_fetch && record.value("errno", 0) == EBADF) return std::nullopt;
    if (kind != "call" || what != "hello") active_.insert(number);
    const bool disconnects = kind.starts_with("cm.") && (what == "DREQ" || what == "DREP");
    return Decision{lines_, number,
                    std::string(is_fetch      ? kFetch
                                : disconnects ? kDisconnects
                                              : kind),
                    TextOf(record, kind, what)};
  } catch (const Json::exception&) {
    return wrong("lacks the keys of a trace's record");
  }
}

tl::expected<Run, std::string> ParseRun(std::string_view json_lines) {
  Run run;
  RunReader reader;
  while (!json_lines.empty()) {
    const size_t end = std::min(json_lines.find('\n'), json_lines.size());
    auto decision = reader.Take(json_lines.substr(0, end));
    if (!decision) return tl::unexpected(decision.error());
    if (*decision) run.decisions.push_back(std::move(**decision));
    json_lines.remove_prefix(std::min(end + 1, json_lines.size()));
  }
  run.seed = reader.seed();
  run.ended = reader.ended();
  run.all_ended = reader.all_ended();
  return run;
}

std::optional<Departure> FirstDeparture(const Run& earlier, const Run& later) {
  const Sequences there = ByProcessAndKind(earlier);
  Sequences here = ByProcessAndKind(later);
  std::optional<Departure> first;
  const auto consider = [&](const Key& key, const std::vector<const Decision*>& before,
                            const std::vector<const Decision*>& after) {
    const MayEndEarly may{MayLackTheLast(earlier, key), MayLackTheLast(later, key)};
    const auto found = Compare(key.first, before, after, may);
    if (found && (!first || ComesBefore(*found, *first))) first = found;
  };
  for (const auto& [key, decisions] : there) {
    consider(key, decisions, here[key]);
    here.erase(key);
  }
  for (const auto& [key, decisions] : here) consider(key, {}, decisions);
  return first;
}

RunFollower::RunFollower(const Run& earlier) : ends_{{}, {}, earlier.ended, earlier.all_ended} {
  for (const Decision& decision : earlier.decisions) {
    earlier_[{decision.process, decision.kind}].decisions.push_back(decision);
  }
}

tl::expected<std::optional<Departure>, std::string> RunFollower::Take(std::string_view line) {
  const auto taken = reader_.Take(line);
  if (!taken) return tl::unexpected(taken.error());
  if (!*taken) return std::nullopt;
  const Decision& here = **taken;
  const auto it = earlier_.find({here.process, here.kind});
  if (it == earlier_.end() || it->second.next == it->second.decisions.size()) {
    if (MayLackTheLast(ends_, {here.process, here.kind})) return std::nullopt;
    return Departure{0, here.process, "", here.text};
  }
  const Decision& there = it->second.decisions[it->second.next++];
  if (there.text == here.text) return std::nullopt;
  return Departure{there.line, here.process, there.text, here.text};
}

}  // namespace rdmaemu::trace
