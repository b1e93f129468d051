// --trace and --pcap: a host's records as JSON lines and its packets as pcapng, written in large
// pieces and whenever the host has nothing else to do.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/trace/trace.h"

namespace rdmaemu::runtime {

// A file that grows at its end. A write that fails is reported once; the rest is dropped.
class AppendFile {
 public:
  static constexpr size_t kMaxBufferedBytes = size_t{1} << 20;

  OrMessage<void> Create(const std::string& path, const char* option);
  bool is_open() const { return static_cast<bool>(fd_); }
  void Append(std::string_view bytes);
  void Flush();

 private:
  UniqueFd fd_;
  std::string path_;
  std::string buffer_;
};

class TraceFiles final : public trace::Sink {
 public:
  // Creates (truncates) the files that the options name.
  OrMessage<void> Open(const HostOptions& options);
  void Flush();

  bool wants_records() const override { return json_.is_open(); }
  void Write(const trace::Record& record) override;
  bool wants_packets() const override { return pcap_.is_open(); }
  void WritePacket(Time time, const wire::UdpFlow& flow,
                   std::span<const std::byte> udp_payload) override;

 private:
  std::string host_name_;
  // Adds up with a record's time to the time of day, for the capture.
  Duration wall_clock_offset_{};
  AppendFile json_, pcap_;
};

}  // namespace rdmaemu::runtime
