// The command lines of `rdmaemu completion`, `doctor` and `install`, and the options of `run
// --report`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

// Adds --report and --report-always to `run`.
void AddReportOptions(CLI::App& run, ReportRequest& report);

class CompletionOptions {
 public:
  explicit CompletionOptions(CLI::App& app);
  bool given() const { return completion_->parsed() || doctor_->parsed(); }
  int Do() const;

 private:
  CLI::App *app_, *completion_, *doctor_;
  std::string shell_;
  bool json_ = false;
};

// `rdmaemu install`.
class InstallCommand {
 public:
  explicit InstallCommand(CLI::App& app);
  bool given() const { return install_->parsed(); }
  int Do() const { return Install(prefix_); }

 private:
  CLI::App* install_;
  std::string prefix_;
};

// Returns the completion script of a shell ("bash", "zsh" or "fish") for all subcommands and
// options of the command line.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace rdmaemu::cli
