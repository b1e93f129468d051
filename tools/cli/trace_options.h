// The command lines of `rdmaemu trace`, its subcommands, and `rdmaemu ab`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/cli/ab.h"
#include "tools/cli/trace.h"

namespace rdmaemu::cli {

class TraceOptions {
 public:
  explicit TraceOptions(CLI::App& app);
  bool given() const { return trace_->parsed(); }
  int Do() const;

 private:
  void AddShow();
  void AddSummary();
  void AddLadder();
  void AddDiff();

  CLI::App* trace_;
  CLI::App *show_ = nullptr, *summary_ = nullptr, *ladder_ = nullptr, *diff_ = nullptr;
  TraceShowRequest shown_;
  std::vector<std::string> summed_up_;
  bool summary_json_ = false;
  TraceLadderRequest ladder_request_;
  std::string a_, b_;
  CompareOptions compare_;
};

class AbOptions {
 public:
  explicit AbOptions(CLI::App& app);
  bool given() const { return ab_->parsed() || programs_->parsed(); }
  // `command` has the words after "--".
  int Do(const std::vector<std::string>& command);

 private:
  void AddPrograms(CLI::App& app);

  CLI::App *ab_, *programs_ = nullptr;
  AbRequest request_;
  std::string programs_request_;
};

}  // namespace rdmaemu::cli
