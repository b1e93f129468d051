// --trace and --pcap: a host's records as JSON lines and its packets as pcapng, written in large
// pieces and whenever the host has nothing else to do.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/trace/json_lines.h"
#include "emulator/trace/pcapng.h"
#include "emulator/trace/trace.h"

namespace rdmaemu::runtime {

// A file that grows at its end. A write that fails is printed once and kept in `error`; the rest is
// dropped.
class AppendFile {
 public:
  static constexpr size_t kMaxBufferedBytes = size_t{1} << 20;
  // How long Create waits for another host that ends to close the same file.
  static constexpr std::chrono::seconds kOtherWriterPatience{5};

  // Creates or empties the file. A file that another host writes, or another option of this one, is
  // an error.
  OrMessage<void> Create(const std::string& path, const char* option);
  bool is_open() const { return static_cast<bool>(fd_); }
  const std::string& path() const { return path_; }
  // The error text of the first failed write(2); empty while every write succeeds.
  const std::string& error() const { return error_; }
  void Close() { fd_.Reset(); }
  // Where the next bytes are added; Appended then writes when enough has gathered.
  std::string& buffer() { return buffer_; }
  void Appended();
  void Flush();

 private:
  UniqueFd fd_;
  std::string path_;
  std::string error_;
  std::string buffer_;
};

class TraceFiles final : public trace::Sink {
 public:
  // Creates (truncates) the files that the options name; `now` is the host's time.
  OrMessage<void> Open(const HostOptions& options, Time now);
  void Flush();
  // Flushes; an error when a file has lost something already.
  OrMessage<void> Check();
  // Closes the files. What was not flushed is lost.
  void Close();

  // One for each file that the options name.
  struct State {
    const char* option;
    std::string path;
    std::string error;  // empty: everything could be written so far
  };
  std::vector<State> States() const;

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
