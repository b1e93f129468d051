#include "emulator/embedded/host_report.h"

#include <nlohmann/json.hpp>

#include "emulator/runtime/trace_files.h"
#include "emulator/trace/json_lines.h"

namespace rdmaemu::embedded {
namespace {

using Json = nlohmann::ordered_json;

size_t BytesOf(const trace::Record& record) {
  size_t bytes = sizeof record + record.object.size() + record.what.size();
  for (const trace::Field& field : record.fields) {
    bytes += sizeof field;
    if (const auto* text = std::get_if<std::string>(&field.value)) bytes += text->size();
  }
  return bytes;
}

std::string RuleText(const Json& rule, const std::string& host, bool is_removed) {
  Json shown = {{"host", host}};
  shown.update(rule);
  if (is_removed) shown["removed"] = true;
  return shown.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

HostReport::HostReport(std::string host, Time now, size_t max_bytes)
    : host_(std::move(host)),
      max_bytes_(max_bytes),
      pcap_(runtime::WallClockOffset(now), host_),
      records_(max_bytes),
      packets_(max_bytes) {}

void HostReport::Add(const trace::Record& record) { records_.Add(record, BytesOf(record)); }

void HostReport::AddPacket(Time time, const wire::UdpFlow& flow,
                           std::span<const std::byte> udp_payload) {
  std::string block;
  pcap_.AppendPacket(time, flow, udp_payload, block);
  const size_t bytes = block.size();
  packets_.Add(std::move(block), bytes);
}

void HostReport::AddEndedRules(std::string_view rules, std::optional<std::string_view> name) {
  const Json list = Json::parse(rules, nullptr, false);
  if (!list.is_array()) return;
  for (const Json& rule : list) {
    if (name && rule.at("name") != *name) continue;
    if (ended_rules_.size() == kMaxEndedRules) ended_rules_.pop_front();
    ended_rules_.push_back(RuleText(rule, host_, true));
  }
}

HostReport::File HostReport::Trace() const {
  // A line may be longer than the record in memory, so the file has a limit of its own.
  const trace::JsonLines json(host_);
  std::deque<std::string> lines;
  size_t bytes = 0;
  for (auto each = records_.items().rbegin(); each != records_.items().rend(); ++each) {
    std::string line;
    json.Append(each->first, line);
    if (bytes + line.size() > max_bytes_) break;
    bytes += line.size();
    lines.push_front(std::move(line));
  }
  File file{{}, records_.dropped() + records_.items().size() - lines.size()};
  for (const std::string& line : lines) file.bytes += line;
  return file;
}

HostReport::File HostReport::Capture() const {
  File file{{}, packets_.dropped()};
  pcap_.AppendStart(file.bytes);
  for (const auto& [block, bytes] : packets_.items()) file.bytes += block;
  return file;
}

std::vector<std::string> HostReport::Rules(std::string_view rules) const {
  std::vector<std::string> all(ended_rules_.begin(), ended_rules_.end());
  const Json list = Json::parse(rules, nullptr, false);
  if (!list.is_array()) return all;
  for (const Json& rule : list) all.push_back(RuleText(rule, host_, false));
  return all;
}

}  // namespace rdmaemu::embedded
