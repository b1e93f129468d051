// Converts a recording of the layer (shim/layer/trace/record.h) to the JSON lines of docs/trace.md.
// `run` creates the recording before a program starts, and converts it when the program has ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace rdmaemu::cli {

class Recording;

// The default limit of a recording's size. The limit prevents a program that posts forever from
// filling the disk.
inline constexpr uint64_t kMaxRecordingBytes = uint64_t{4} << 30;

// A recording that becomes a trace. The recording's directory is beside the trace. When programs
// cannot map files there, the recording's directory is in the temporary directory or /dev/shm. The
// destructor removes the directory.
class ProgramTrace {
 public:
  // Creates the directory and the empty trace `path`. Returns an error message for the user when a
  // file cannot be created.
  // `hashes_payloads`: the trace has hashes of payloads.
  static tl::expected<ProgramTrace, std::string> Begin(const std::string& path,
                                                       uint64_t limit_bytes, bool hashes_payloads);
  ProgramTrace(ProgramTrace&& other) noexcept { *this = std::move(other); }
  ProgramTrace& operator=(ProgramTrace&& other) noexcept {
    path_ = std::move(other.path_);
    directory_ = std::exchange(other.directory_, "");
    begin_ = other.begin_;
    socket_ = std::exchange(other.socket_, -1);
    return *this;
  }
  ~ProgramTrace();

  // Returns the value of RDMAEMU_LAYER_TRACE.
  const std::string& directory() const { return directory_; }
  // Writes the trace after the process `child` has ended with a status of wait(2). Returns an error
  // message for each reason why the trace is incomplete, or none.
  std::vector<std::string> End(pid_t child, int wait_status);

 private:
  // One moment on the recording's clock and on CLOCK_REALTIME.
  struct Moment {
    uint64_t ticks, ns;
  };
  static Moment Now(bool has_ticks);

  ProgramTrace() = default;
  // Binds the socket to which processes report that they cannot open the recording. Without the
  // socket, only the links of these processes report the failure.
  void BindSocket();
  // Adds the processes that have reported a failure on the socket.
  void TakeUnopened(Recording& recording) const;

  std::string path_, directory_;
  int socket_ = -1;
  Moment begin_{};
};

}  // namespace rdmaemu::cli
