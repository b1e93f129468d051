// --trace and --pcap: a host's records as JSON lines and its packets as pcapng, written in large
// pieces and whenever the host has nothing else to do.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/trace/json_lines.h"
#include "emulator/trace/pcapng.h"
#include "emulator/trace/trace.h"

namespace rdmaemu::runtime {

// A file that grows at its end. A write that fails is reported once; the rest is dropped.
class AppendFile {
 public:
  static constexpr size_t kMaxBufferedBytes = size_t{1} << 20;

  OrMessage<void> Create(const std::string& path, const char* option);
  bool is_open() const { return static_cast<bool>(fd_); }
  // Where the next bytes are added; Appended then writes when enough has gathered.
  std::string& buffer() { return buffer_; }
  void Appended();
  void Flush();

 private:
  UniqueFd fd_;
  std::string path_;
  std::string buffer_;
};

class TraceFiles final : public trace::Sink {
 public:
  // Creates (truncates) the files that the options name; `now` is the host's time.
  OrMessage<void> Open(const HostOptions& options, Time now);
  void Flush();

  bool wants_records() const override { return json_file_.is_open(); }
  void Write(const trace::Record& record) override;
  bool wants_packets() const override { return pcap_file_.is_open(); }
  void WritePacket(Time time, const wire::UdpFlow& flow,
                   std::span<const std::byte> udp_payload) override;

 private:
  AppendFile json_file_, pcap_file_;
  std::optional<trace::JsonLines> json_;
  std::optional<trace::PcapngWriter> pcap_;
};

}  // namespace rdmaemu::runtime
