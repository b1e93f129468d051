// The trace of an embedded host: the latest records as text in memory, for the message of a test
// that failed, and all of them in files where they were asked for.
#pragma once

#include <deque>
#include <string>

#include "emulator/runtime/trace_files.h"
#include "emulator/trace/text_timeline.h"

namespace rdmaemu::embedded {

class RecentTrace final : public trace::Sink {
 public:
  static constexpr size_t kMaxLines = 4096;

  explicit RecentTrace(const std::string& host) : timeline_(host) {}
  // As TraceFiles::Open.
  runtime::OrMessage<void> Open(const runtime::HostOptions& options, Time now) {
    return files_.Open(options, now);
  }
  void Flush() { files_.Flush(); }

  bool wants_records() const override { return true; }
  void Write(const trace::Record& record) override {
    if (lines_.size() == kMaxLines) lines_.pop_front();
    lines_.emplace_back();
    timeline_.Append(record, lines_.back());
    files_.Write(record);
  }
  bool wants_packets() const override { return files_.wants_packets(); }
  void WritePacket(Time time, const wire::UdpFlow& flow,
                   std::span<const std::byte> udp_payload) override {
    files_.WritePacket(time, flow, udp_payload);
  }

  std::string Text() const {
    std::string text;
    for (const std::string& line : lines_) text += line;
    return text;
  }

 private:
  trace::TextTimeline timeline_;
  std::deque<std::string> lines_;
  runtime::TraceFiles files_;
};

}  // namespace rdmaemu::embedded
