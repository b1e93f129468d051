// `rdmaemu run --report DIR`: keeps what explains a failed run, in one directory for a CI job.
#pragma once

#include <optional>
#include <string>

#include "emulator/runtime/registry.h"
#include "emulator/runtime/unique_fd.h"
#include "tools/cli/commands.h"

namespace rdmaemu::cli {

// The directory DIR/HOST of one run. docs/command.md lists its files.
class RunReport {
 public:
  // Creates the directory, removes the files of an earlier run in it, and sets the paths of those
  // traces and captures of `run` that have none. Only one run at a time may use a directory.
  static runtime::OrMessage<RunReport> Begin(const ReportRequest& request, RunRequest& run);

  // Writes what only a running host has: its rules, and its log.
  void Ask(const runtime::Registry& registry, runtime::HostClient& client) const;
  // Keeps the directory and prints its path when the run failed or the report is always wanted.
  // Otherwise removes the directory. An error of the report does not change the run's status.
  void End(int status, const RunRequest& run) const;

 private:
  std::string Path(const char* file) const { return directory_ + "/" + file; }
  // Writes a file. Prints an error when that fails.
  void Write(const char* file, const std::string& text) const;
  std::string Environment(int status, const RunRequest& run) const;
  void Remove() const;

  std::string directory_, host_, version_;
  bool is_always_ = false, made_parent_ = false;
  runtime::UniqueFd lock_;
};

// Runs a program as `Run` does, with a report if `run.report` names a directory.
int RunAndReport(const RunRequest& run);

}  // namespace rdmaemu::cli
