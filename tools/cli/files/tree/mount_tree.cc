#include "tools/cli/files/tree/mount_tree.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "emulator/fault/scenario.h"
#include "emulator/trace/seconds.h"
#include "tools/cli/files/tree/file_reply.h"

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kDirectoryMode = 0700, kReadMode = 0400, kWriteMode = 0600;
constexpr size_t kMaxNameBytes = 255;  // NAME_MAX

// The place of a directory's files in the host's own tree.
struct Source {
  std::string_view directory, path;
};
constexpr Source kSources[] = {{"cqs", "/state/cqs"},
                               {"devices", "/sys/devices/virtual/infiniband"},
                               {"ids", "/state/ids"},
                               {"mrs", "/state/mrs"},
                               {"qps", "/state/qps"}};

std::optional<StreamKind> StreamOf(std::string_view name) {
  if (name == "trace.jsonl") return StreamKind::kTrace;
  if (name == "packets.pcapng") return StreamKind::kPackets;
  return std::nullopt;
}

// Removes the first part of a path and returns it.
std::string_view TakePart(std::string_view& path) {
  while (path.starts_with('/')) path.remove_prefix(1);
  const size_t end = std::min(path.find('/'), path.size());
  const std::string_view part = path.substr(0, end);
  path.remove_prefix(end);
  while (path.starts_with('/')) path.remove_prefix(1);
  return part;
}

struct Place {
  std::string_view host, what, rest;
};
Place PlaceOf(std::string_view path) {
  Place place;
  place.host = TakePart(path);
  place.what = TakePart(path);
  place.rest = path;
  return place;
}

HostFile DirectoryOf(std::vector<std::pair<std::string, FileKind>> entries) {
  HostFile file{};
  file.kind = FileKind::kDirectory;
  file.mode = kDirectoryMode;
  file.entries = std::move(entries);
  return file;
}

HostFile TextOf(std::string text, uint32_t mode = kReadMode) {
  HostFile file{};
  file.kind = FileKind::kText;
  file.mode = mode;
  file.bytes = text.size();
  file.text = std::move(text);
  return file;
}

// Returns a line. Programs chose some of the texts, so control characters are replaced.
std::string LineOf(std::string_view name, std::string value) {
  for (char& each : value) {
    if (static_cast<unsigned char>(each) < ' ' || each == '\x7f') each = '?';
  }
  return std::string(name) + ": " + value + "\n";
}

// Converts the errno of a call for the files of a mount.
int ErrorOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ETIMEDOUT:
    case EOPNOTSUPP:
      return error;
    default:
      return EIO;
  }
}

Result<Json> JsonOf(const Result<std::string>& answer) {
  if (!answer) return Fail(ErrorOf(answer.error().code));
  Json json = Json::parse(*answer, nullptr, false);
  if (json.is_discarded()) return Fail(EIO);
  return json;
}

std::string NumberOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? "0" : found->dump();
}

std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "?";
}

std::string RuleText(const Json& rule) {
  std::string text =
      LineOf("name", TextIn(rule, "name")) + LineOf("at", TextIn(rule, "at")) +
      LineOf("does", TextIn(rule, "does")) + LineOf("matched", NumberOf(rule, "matched")) +
      LineOf("fired", NumberOf(rule, "fired")) + LineOf("held", NumberOf(rule, "held"));
  if (const auto seen = rule.find("seen"); seen != rule.end() && seen->is_array()) {
    for (const Json& each : *seen) {
      text += LineOf("seen", NumberOf(each, "times") + " at " + TextIn(each, "at"));
    }
  }
  return text;
}

std::string_view WithoutLineEnds(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r') || text.ends_with(' ')) {
    text.remove_suffix(1);
  }
  return text;
}

void AppendEscaped(char letter, std::string& name) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(letter);
  name += '%';
  name += kDigits[value >> 4];
  name += kDigits[value & 15];
}

}  // namespace

std::string RuleFileName(std::string_view rule) {
  std::string name;
  const bool is_taken = rule == "new" || rule == "error" || rule == "." || rule == "..";
  for (size_t i = 0; i < rule.size(); i++) {
    if (rule[i] == '/' || rule[i] == '%' || (i == 0 && is_taken)) {
      AppendEscaped(rule[i], name);
    } else {
      name += rule[i];
    }
  }
  return name.size() > kMaxNameBytes ? std::string() : name;
}

std::string RuleOfFileName(std::string_view name) {
  std::string rule;
  for (size_t i = 0; i < name.size(); i++) {
    unsigned value = 0;
    if (name[i] == '%' && i + 2 < name.size()) {
      const char* const digits = name.data() + i + 1;
      const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
      if (error == std::errc() && end == digits + 2) {
        rule += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    rule += name[i];
  }
  return rule;
}

Result<HostFile> MountTree::At(std::string_view path) const {
  const Place place = PlaceOf(path);
  if (place.host.empty()) {
    std::vector<std::pair<std::string, FileKind>> hosts;
    for (std::string& name : hosts_.Names()) {
      hosts.emplace_back(std::move(name), FileKind::kDirectory);
    }
    return DirectoryOf(std::move(hosts));
  }
  if (place.what.empty()) return HostDirectory(place.host);
  for (const Source& source : kSources) {
    if (place.what != source.directory) continue;
    std::string at(source.path);
    if (!place.rest.empty()) at.append("/").append(place.rest);
    return FileOfHost(place.host, at);
  }
  if (place.what == "counters") return CounterFile(place.host, place.rest);
  if (place.what == "faults") return FaultFile(place.host, place.rest);
  const std::optional<StreamKind> stream = StreamOf(place.what);
  if (!stream && place.what != "clock" && place.what != "status") return Fail(ENOENT);
  if (!place.rest.empty()) return Fail(ENOTDIR);
  if (stream) return StreamFile(place.host, *stream);
  return place.what == "clock" ? ClockFile(place.host) : StatusFile(place.host);
}

Result<HostFile> MountTree::HostDirectory(std::string_view host) const {
  if (!hosts_.IsRunning(host)) return Fail(ENOENT);
  return DirectoryOf({{"clock", FileKind::kText},
                      {"counters", FileKind::kDirectory},
                      {"cqs", FileKind::kDirectory},
                      {"devices", FileKind::kDirectory},
                      {"faults", FileKind::kDirectory},
                      {"ids", FileKind::kDirectory},
                      {"mrs", FileKind::kDirectory},
                      {"packets.pcapng", FileKind::kText},
                      {"qps", FileKind::kDirectory},
                      {"status", FileKind::kText},
                      {"trace.jsonl", FileKind::kText}});
}

// This file is readable even if the host does not reply.
Result<HostFile> MountTree::StatusFile(std::string_view host) const {
  const Result<Json> status = JsonOf(hosts_.Call(host, CallOp::kHostStatus, {}));
  if (!status && status.error().code == ENOENT) return Fail(ENOENT);
  std::string text = LineOf("name", std::string(host));
  if (!status || !status->is_object()) return TextOf(text + LineOf("answers", "no"));
  text += LineOf("answers", "yes") + LineOf("pid", NumberOf(*status, "pid"));
  for (const Json& client : status->value("clients", Json::array())) {
    if (client.value("group", 0u) == 0) continue;  // it only makes queries
    text += LineOf("client", TextIn(client, "program") + " " + NumberOf(client, "pid"));
  }
  return TextOf(text);
}

Result<HostFile> MountTree::ClockFile(std::string_view host) const {
  const ClockIn in{static_cast<uint32_t>(ClockAction::kShow), 0, 0};
  const Result<std::string> answer = hosts_.Call(
      host, CallOp::kClock, std::string_view(reinterpret_cast<const char*>(&in), sizeof in));
  if (!answer) return Fail(ErrorOf(answer.error().code));
  ClockOut out;
  if (answer->size() != sizeof out) return Fail(EIO);
  std::memcpy(&out, answer->data(), sizeof out);
  out.mode[sizeof out.mode - 1] = '\0';
  std::string seconds;
  trace::AppendSeconds(Duration(out.now_ns), seconds);
  return TextOf(LineOf("mode", out.mode) + LineOf("now", seconds) +
                    LineOf("moving", out.moving != 0 ? "yes" : "no") +
                    LineOf("program_awaited", out.awaits_application != 0 ? "yes" : "no"),
                kWriteMode);
}

Result<HostFile> MountTree::CounterFile(std::string_view host, std::string_view rest) const {
  const Result<Json> status = JsonOf(hosts_.Call(host, CallOp::kHostStatus, {}));
  if (!status) return Fail(status.error().code);
  if (!status->is_object()) return Fail(EIO);
  Json found = status->value("counters", Json::object());
  while (!rest.empty()) {
    if (!found.is_object()) return Fail(ENOTDIR);
    const auto next = found.find(std::string(TakePart(rest)));
    if (next == found.end()) return Fail(ENOENT);
    Json inner = *next;
    found = std::move(inner);
  }
  if (!found.is_object()) return TextOf(found.dump() + "\n");
  std::vector<std::pair<std::string, FileKind>> entries;
  for (const auto& [name, value] : found.items()) {
    entries.emplace_back(name, value.is_object() ? FileKind::kDirectory : FileKind::kText);
  }
  return DirectoryOf(std::move(entries));
}

Result<HostFile> MountTree::FaultFile(std::string_view host, std::string_view name) const {
  if (name.find('/') != name.npos) return Fail(ENOTDIR);
  if (name == "new" || name == "error") {
    if (!hosts_.IsRunning(host)) return Fail(ENOENT);
    if (name == "new") return TextOf({}, kWriteMode);
    const std::string refusal = hosts_.Refusal(host);
    return TextOf(refusal.empty() ? "" : refusal + "\n");
  }
  const Result<Json> rules = JsonOf(hosts_.Call(host, CallOp::kFaultList, {}));
  if (!rules) return Fail(rules.error().code);
  if (!rules->is_array()) return Fail(EIO);
  std::vector<std::pair<std::string, FileKind>> entries = {{"error", FileKind::kText},
                                                           {"new", FileKind::kText}};
  for (const Json& rule : *rules) {
    const std::string file_name = RuleFileName(TextIn(rule, "name"));
    if (!name.empty() && file_name == name) return TextOf(RuleText(rule), kWriteMode);
    if (!file_name.empty()) entries.emplace_back(file_name, FileKind::kText);
  }
  if (!name.empty()) return Fail(ENOENT);
  return DirectoryOf(std::move(entries));
}

// Omits links, because they lead to places that only /sys has. Only the owner has access.
Result<HostFile> MountTree::FileOfHost(std::string_view host, const std::string& path) const {
  const Result<std::string> answer = hosts_.Call(host, CallOp::kReadFile, path);
  if (!answer) return Fail(ErrorOf(answer.error().code));
  Result<HostFile> file = ParseFileReply(*answer);
  if (!file) return file;
  if (file->kind != FileKind::kDirectory && file->kind != FileKind::kText) return Fail(ENOENT);
  file->mode = file->kind == FileKind::kDirectory ? kDirectoryMode : kReadMode;
  if (path.starts_with("/state/")) file->bytes = file->text.size();
  std::erase_if(file->entries, [](const auto& entry) { return entry.second == FileKind::kLink; });
  return file;
}

Result<HostFile> MountTree::StreamFile(std::string_view host, StreamKind kind) const {
  const Result<uint64_t> bytes = hosts_.StreamBytes(host, kind);
  if (!bytes) return Fail(ErrorOf(bytes.error().code));
  HostFile file = TextOf({});
  file.is_stream = true;
  file.bytes = *bytes;
  return file;
}

Result<std::unique_ptr<Stream>> MountTree::OpenStream(std::string_view path) {
  const Place place = PlaceOf(path);
  const std::optional<StreamKind> kind = StreamOf(place.what);
  if (!kind || !place.rest.empty()) return Fail(EINVAL);
  return hosts_.OpenStream(place.host, *kind);
}

Status MountTree::ChangeRules(std::string_view host, CallOp op, std::string_view text) {
  const Result<Json> answer = JsonOf(hosts_.Call(host, op, text));
  if (!answer) return Fail(answer.error().code);
  const bool is_refused = answer->is_object() && answer->contains("error");
  hosts_.SetRefusal(host, is_refused ? TextIn(*answer, "error") : "");
  if (is_refused) return Fail(EINVAL);
  return {};
}

Status MountTree::Write(std::string_view path, std::string_view text) {
  const Place place = PlaceOf(path);
  const std::string_view line = WithoutLineEnds(text);
  if (place.what == "clock" && place.rest.empty()) return hosts_.MoveClock(place.host, line);
  if (place.what != "faults" || place.rest.empty() || place.rest == "error") return Fail(EACCES);
  if (place.rest == "new") {
    if (line.size() <= fault::kMaxRuleBytes) {
      return ChangeRules(place.host, CallOp::kFaultAdd, line);
    }
    hosts_.SetRefusal(place.host, fault::RuleTooLong());
    return Fail(EINVAL);
  }
  if (line == "release") {
    return ChangeRules(place.host, CallOp::kFaultRelease, RuleOfFileName(place.rest));
  }
  hosts_.SetRefusal(place.host,
                    "a rule's file takes the word release, which releases what the rule holds; to "
                    "change a rule, remove its file and write the rule to faults/new");
  return Fail(EINVAL);
}

Status MountTree::Remove(std::string_view path) {
  const Place place = PlaceOf(path);
  if (place.what != "faults" || place.rest.empty() || place.rest == "new" ||
      place.rest == "error") {
    return Fail(EPERM);
  }
  return ChangeRules(place.host, CallOp::kFaultRemove, RuleOfFileName(place.rest));
}

}  // namespace rdmaemu::cli
