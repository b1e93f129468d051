// The part of a report (rdmaemu_report) that only a running host has: its latest records and
// packets, and the rules that it no longer has. All of it is in memory until a report is written.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/trace/pcapng.h"
#include "emulator/trace/trace.h"

namespace rdmaemu::embedded {

// The latest items, of at most so many bytes in total.
template <class Item>
class Latest {
 public:
  explicit Latest(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Add(Item item, size_t bytes) {
    items_.emplace_back(std::move(item), bytes);
    for (bytes_ += bytes; bytes_ > max_bytes_; dropped_++) {
      bytes_ -= items_.front().second;
      items_.pop_front();
    }
  }
  const std::deque<std::pair<Item, size_t>>& items() const { return items_; }
  size_t dropped() const { return dropped_; }

 private:
  const size_t max_bytes_;
  std::deque<std::pair<Item, size_t>> items_;
  size_t bytes_ = 0, dropped_ = 0;
};

class HostReport {
 public:
  static constexpr size_t kMaxEndedRules = 256;  // the latest

  // `max_bytes`: the limit of the records, of the packets, and of each file made from them.
  HostReport(std::string host, Time now, size_t max_bytes);

  void Add(const trace::Record& record);
  void AddPacket(Time time, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload);
  // Keeps rules that are about to end. `rules`: the list of the host's rules, as of kFaultList.
  // nullopt: all of them.
  void AddEndedRules(std::string_view rules, std::optional<std::string_view> name);

  // The files' contents, and how many older records or packets they lack.
  struct File {
    std::string bytes;
    size_t dropped;
  };
  File Trace() const;
  File Capture() const;
  // Returns JSON objects: the ended rules, then those of `rules` (as of kFaultList).
  std::vector<std::string> Rules(std::string_view rules) const;

 private:
  std::string host_;
  size_t max_bytes_;
  trace::PcapngWriter pcap_;
  Latest<trace::Record> records_;
  Latest<std::string> packets_;  // blocks of the capture
  std::deque<std::string> ended_rules_;
};

}  // namespace rdmaemu::embedded
