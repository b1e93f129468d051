// The lines that a host wrote to its log while a program ran, and the host's truncated files.
#pragma once

#include <string>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// The log of the host of a `run`. Lines from before the run matter only if the program failed.
class HostLog {
 public:
  static constexpr size_t kMaxLines = 20;                // printed lines, the last ones
  static constexpr size_t kMaxBytes = size_t{64} << 10;  // bytes read, the last ones

  // Create the object before the host is found or started.
  HostLog(const runtime::Registry& registry, const std::string& name);
  // Sets the joined host. If this run started the host, its log is read from the start.
  void Joined(pid_t host);
  // Prints the lines added since then and the path of the log on stderr. With `is_complete` prints
  // all lines. Prints nothing if there are none.
  void Print(bool is_complete) const;
  // Returns true if the host wrote a line that begins with "error: ".
  bool HasError() const { return New().find("error: ") != std::string::npos; }

 private:
  std::string New() const { return Read(offset_); }
  std::string Read(size_t from) const;

  std::string name_, path_;
  pid_t host_ = 0;     // the host that had the name before, then the joined host
  size_t offset_ = 0;  // where this run's lines begin
};

// Prints on stderr which traces and captures of the host lack records because a write failed.
// Returns true if none does. A host that has ended cannot be queried. Its files count as complete
// unless it was killed.
bool ReportCutFiles(runtime::HostClient& client, const HostLog& log,
                    const runtime::Registry& registry, const runtime::HostOptions& options);

}  // namespace rdmaemu::cli
