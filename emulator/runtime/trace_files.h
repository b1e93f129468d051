// Writes --trace (a host's records as JSON lines) and --pcap (its packets as pcapng). Writes are
// large, or happen when the host is idle.
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

// Returns the offset from the host's time to the wall clock.
Duration WallClockOffset(Time now);

// A file that only grows. The first failed write is printed and stored in `error`. Later bytes are
// dropped.
class AppendFile {
 public:
  static constexpr size_t kMaxBufferedBytes = size_t{1} << 20;
  // How long Create waits for another host that is ending and will close the same file.
  static constexpr std::chrono::seconds kOtherWriterPatience{5};

  // Creates or empties the file. Fails if another host, or another option of this host, writes it.
  OrMessage<void> Create(const std::string& path, const char* option);
  bool is_open() const { return static_cast<bool>(fd_); }
  const std::string& path() const { return path_; }
  // The error text of the first failed write(2). Empty while every write has succeeded.
  const std::string& error() const { return error_; }
  void Close() { fd_.Reset(); }
  // Callers append to this buffer, then call Appended. Appended writes when the buffer is large
  // enough.
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
  // Creates (truncates) the files named in the options. `now` is the host's time.
  OrMessage<void> Open(const HostOptions& options, Time now);
  void Flush();
  // Flushes. Fails if a file has lost data.
  OrMessage<void> Check();
  // Closes the files. Unflushed data is lost.
  void Close();

  // The state of one file. States returns one for each file named in the options.
  struct State {
    const char* option;
    std::string path;
    std::string error;  // empty: all writes succeeded so far
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
