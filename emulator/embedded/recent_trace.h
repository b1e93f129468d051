// The trace of the hosts inside a process. Keeps the latest records of all hosts in memory as text,
// in order, for the message of a failed test. Each host also writes its records to files on
// request.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "emulator/embedded/host_report.h"
#include "emulator/runtime/trace_files.h"
#include "emulator/trace/text_timeline.h"

namespace rdmaemu::embedded {

class RecentLines {
 public:
  static constexpr size_t kMaxLines = 4096;

  // Returns the buffer for the next line.
  std::string& Next() {
    if (lines_.size() == kMaxLines) lines_.pop_front();
    return lines_.emplace_back();
  }
  std::string Text() const {
    std::string text;
    for (const std::string& line : lines_) text += line;
    return text;
  }

 private:
  std::deque<std::string> lines_;
};

// The trace of one host.
class RecentTrace final : public trace::Sink {
 public:
  RecentTrace(const std::string& host, RecentLines& lines) : timeline_(host), lines_(lines) {}
  // Opens the files as TraceFiles::Open.
  runtime::OrMessage<void> Open(const runtime::HostOptions& options, Time now) {
    return files_.Open(options, now);
  }
  void Flush() { files_.Flush(); }
  // Keeps the latest records and packets for a report, at most so many bytes of each.
  void KeepReport(const std::string& host, Time now, size_t max_bytes) {
    report_.emplace(host, now, max_bytes);
  }
  // nullptr without KeepReport.
  HostReport* report() { return report_ ? &*report_ : nullptr; }

  bool wants_records() const override { return true; }
  void Write(const trace::Record& record) override {
    timeline_.Append(record, lines_.Next());
    files_.Write(record);
    if (report_) report_->Add(record);
  }
  bool wants_packets() const override { return report_ || files_.wants_packets(); }
  void WritePacket(Time time, const wire::UdpFlow& flow,
                   std::span<const std::byte> udp_payload) override {
    files_.WritePacket(time, flow, udp_payload);
    if (report_) report_->AddPacket(time, flow, udp_payload);
  }

 private:
  trace::TextTimeline timeline_;
  RecentLines& lines_;
  runtime::TraceFiles files_;
  std::optional<HostReport> report_;
};

}  // namespace rdmaemu::embedded
