// A recording of the layer (shim/layer/trace/record.h): made before a program runs, converted to
// the JSON lines of docs/trace.md when it has ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace rdmaemu::cli {

// A recording has at most this size, so that a program that posts forever does not fill the disk.
inline constexpr uint64_t kMaxRecordingBytes = uint64_t{4} << 30;

// A recording on its way into a trace. Its directory is beside the trace, or where files are kept
// for a while when programs cannot map files there, and is removed at the end.
class ProgramTrace {
 public:
  // Creates the directory and the (empty) trace; the error says what to do.
  static tl::expected<ProgramTrace, std::string> Begin(const std::string& path,
                                                       uint64_t limit_bytes);
  ProgramTrace(ProgramTrace&& other) noexcept { *this = std::move(other); }
  ProgramTrace& operator=(ProgramTrace&& other) noexcept {
    path_ = std::move(other.path_);
    directory_ = std::exchange(other.directory_, "");
    begin_ = other.begin_;
    return *this;
  }
  ~ProgramTrace();

  // For RDMAEMU_LAYER_TRACE.
  const std::string& directory() const { return directory_; }
  // Writes the trace after the process `child` ended with a status of wait(2). Returns what the
  // trace lacks, and why; nothing when it is whole.
  std::vector<std::string> End(pid_t child, int wait_status);

 private:
  // The recording's clock and CLOCK_REALTIME at one moment.
  struct Moment {
    uint64_t ticks, ns;
  };
  static Moment Now(bool has_ticks);

  ProgramTrace() = default;
  std::string path_, directory_;
  Moment begin_{};
};

}  // namespace rdmaemu::cli
