// The command lines of `rdmaemu run`, `env` and `host`, which share the options of a host.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

// The options of a host that a command starts.
class SharedHostOptions {
 public:
  // `failed` is the command's exit status for wrong values.
  explicit SharedHostOptions(int failed);
  void AddTo(CLI::App& command);
  void AddNameTo(CLI::App& command, const std::string& names, const std::string& help);
  void AddProgramTimeTo(CLI::App& command);

  // Completes and checks the values. With `reads_environment`, options that are not given come from
  // the environment. Prints an error and returns the exit status if a value is wrong.
  std::optional<int> Check(bool reads_environment);
  runtime::HostOptions& values() { return options_; }

 private:
  int failed_;
  runtime::HostOptions options_;
  std::vector<std::string> profiles_;
  bool program_time_ = false;
};

// `rdmaemu run`.
class RunCommand {
 public:
  explicit RunCommand(CLI::App& app);
  bool given() const { return run_->parsed(); }
  // `command` has the words after "--".
  int Do(const std::vector<std::string>& command);

 private:
  void AddTrace();
  void AddChecks();
  void AddPlace();
  int DoOnSystem(const std::vector<std::string>& command);

  CLI::App* run_;
  SharedHostOptions host_;
  std::string backend_ = "emulator", replay_, check_, sysfs_ = "auto";
  bool strict_ = false, is_private_ = false;
  ProgramTraceRequest program_trace_;
  ChecksRequest checks_;
  ReportRequest report_;
};

// `rdmaemu env`.
class EnvCommand {
 public:
  explicit EnvCommand(CLI::App& app);
  bool given() const { return env_->parsed(); }
  int Do();

 private:
  CLI::App* env_;
  SharedHostOptions host_;
};

// `rdmaemu host`.
class HostCommand {
 public:
  explicit HostCommand(CLI::App& app);
  bool given() const { return command_->parsed(); }
  int Do();

 private:
  CLI::App* command_;
  SharedHostOptions host_;
  bool daemonize_ = false;
};

// Returns the version, and the build: the compiler, and the version of the calls between a program
// and its host.
std::string VersionText();

}  // namespace rdmaemu::cli
