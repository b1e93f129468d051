#include "tests/sim/recorder.h"

#include <cstring>

#include "emulator/trace/json_lines.h"
#include "emulator/trace/text_timeline.h"

namespace rdmaemu::sim {

void Recorder::Mix(uint64_t value) {
  hash_ ^= value;
  hash_ *= 0xFF51AFD7ED558CCDull;
  hash_ ^= hash_ >> 32;
}

void Recorder::Mix(std::string_view text) {
  Mix(text.size());
  while (text.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, text.data(), sizeof word);
    Mix(word);
    text.remove_prefix(sizeof word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  Mix(rest);
}

void Recorder::Keep(std::string line) {
  lines_.push_back(std::move(line));
  if (lines_.size() > kMaxLines) lines_.pop_front();
}

void Recorder::Add(std::string_view machine, const trace::Record& record) {
  Mix(static_cast<uint64_t>(record.time.time_since_epoch().count()));
  Mix(machine);
  Mix(record.kind);
  Mix(record.object);
  Mix(record.what);
  for (const trace::Field& field : record.fields) {
    Mix(field.key);
    std::visit(
        [this](const auto& value) {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
            Mix(std::string_view(value));
          } else {
            Mix(static_cast<uint64_t>(value));
          }
        },
        field.value);
  }
  if (!tells_story()) return;
  std::string text;
  trace::TextTimeline(machine).Append(record, text);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  Keep(std::move(text));
  if (!sink_) return;
  std::string json;
  trace::JsonLines(machine).Append(record, json);
  sink_(json);
}

void Recorder::AddPacket(Time time, uint32_t direction, std::span<const std::byte> bytes) {
  Mix(static_cast<uint64_t>(time.time_since_epoch().count()) << 8 | direction);
  Mix(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void Recorder::Say(Time time, std::string_view who, std::string_view what) {
  trace::Record record{time, ProcessId::kNone, "sim", {}, std::string(what), {}};
  std::string text;
  trace::TextTimeline(who).Append(record, text);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  Keep(std::move(text));
  if (!sink_) return;
  std::string json;
  trace::JsonLines(who).Append(record, json);
  sink_(json);
}

}  // namespace rdmaemu::sim
