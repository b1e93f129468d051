// What a host has written to its log while a program ran, and which of its files were cut.
#pragma once

#include <string>

#include "emulator/runtime/host_client.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::cli {

// The log of the host that a `run` is on. Lines from before the run are of interest only when the
// program has failed.
class HostLog {
 public:
  static constexpr size_t kMaxLines = 20;                // printed; the last ones
  static constexpr size_t kMaxBytes = size_t{64} << 10;  // read; the last ones

  // Call before the host is found or started.
  HostLog(const runtime::Registry& registry, const std::string& name);
  // The host that was joined. Its log is read from the start when this run started the host.
  void Joined(pid_t host);
  // Prints on stderr the lines that were added since then, and where the log lies; with
  // `is_complete` all lines. Prints nothing where there are none.
  void Print(bool is_complete) const;
  // The host wrote a line that begins with "error: ".
  bool HasError() const { return New().find("error: ") != std::string::npos; }

 private:
  std::string New() const { return Read(offset_); }
  std::string Read(size_t from) const;

  std::string name_, path_;
  pid_t host_ = 0;     // the one that had the name before, then the joined one
  size_t offset_ = 0;  // where this run's lines begin
};

// Says on stderr which traces and captures of the host miss records, because a write failed. True
// when none does. A host that has gone cannot be asked: its files count as whole unless it was
// killed.
bool ReportCutFiles(runtime::HostClient& client, const HostLog& log,
                    const runtime::Registry& registry, const runtime::HostOptions& options);

}  // namespace rdmaemu::cli
