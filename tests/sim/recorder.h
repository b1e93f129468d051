// The record of one run: a hash over everything, and on request the story. The story has the
// programs' operations, the network's faults and the hosts' trace records, in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "emulator/base/time.h"
#include "emulator/trace/trace.h"

namespace rdmaemu::sim {

class Recorder {
 public:
  enum class Detail : uint8_t {
    kPackets,  // hash packets only: fast
    kRecords,  // hash trace records too
    kStory,    // the same hash as kRecords, and lines to read
  };
  // Keeps the story's last lines. A line sink gets all lines.
  static constexpr size_t kMaxLines = 400;

  explicit Recorder(Detail detail) : detail_(detail) {}

  bool wants_records() const { return detail_ != Detail::kPackets; }
  bool tells_story() const { return detail_ == Detail::kStory; }
  // Adds a trace record of a machine's host, or a packet that the host sends or receives.
  void Add(std::string_view machine, const trace::Record& record);
  void AddPacket(Time time, uint32_t direction, std::span<const std::byte> bytes);
  // Adds an operation or fault. Call it only if tells_story(), because building the text is slow.
  void Say(Time time, std::string_view who, std::string_view what);
  // The sink gets each line as JSON; for --trace.
  void SetLineSink(std::function<void(const std::string&)> sink) { sink_ = std::move(sink); }

  uint64_t hash() const { return hash_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  void Mix(uint64_t value);
  void Mix(std::string_view text);
  void Keep(std::string line);

  Detail detail_;
  uint64_t hash_ = 0x9E3779B97F4A7C15ull;
  std::deque<std::string> lines_;
  std::function<void(const std::string&)> sink_;
};

}  // namespace rdmaemu::sim
