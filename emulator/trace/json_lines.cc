#include "emulator/trace/json_lines.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "emulator/trace/seconds.h"

namespace rdmaemu::trace {
namespace {

constexpr std::string_view kOwnKeys[] = {"time", "host", "process", "kind", "object", "what"};

std::string Quote(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Value(const Field& field) {
  struct {
    std::string operator()(const std::string& text) const { return Quote(text); }
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(uint64_t number) const { return std::to_string(number); }
  } const write;
  return std::visit(write, field.value);
}

std::string RecordKey(std::string_view key) {
  const bool taken = std::find(std::begin(kOwnKeys), std::end(kOwnKeys), key) != std::end(kOwnKeys);
  return Quote(taken ? "field." + std::string(key) : std::string(key));
}

}  // namespace

JsonLines::JsonLines(std::string_view host) : quoted_host_(Quote(host)) {}

void JsonLines::Append(const Record& record, std::string& out) const {
  out += "{\"time\":";
  AppendSeconds(record.time.time_since_epoch(), out);
  out += ",\"host\":";
  out += quoted_host_;
  out += ",\"process\":";
  out += std::to_string(static_cast<uint32_t>(record.process));
  out += ",\"kind\":";
  out += Quote(record.kind);
  out += ",\"object\":";
  out += Quote(record.object);
  out += ",\"what\":";
  out += Quote(record.what);
  for (const Field& field : record.fields) {
    out += ',';
    out += RecordKey(field.key);
    out += ':';
    out += Value(field);
  }
  out += "}\n";
}

}  // namespace rdmaemu::trace
