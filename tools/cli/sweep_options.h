// The command line of `rdmaemu sweep`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/cli/sweep/sweep.h"

namespace rdmaemu::cli {

class SweepOptions {
 public:
  explicit SweepOptions(CLI::App& app);
  bool given() const { return sweep_->parsed(); }
  // `command` has the words after "--".
  int Do(const std::vector<std::string>& command);

 private:
  void AddTest();
  void AddChoice();
  void AddResults();
  std::string ReadShard();

  std::string ReadBackend();

  CLI::App* sweep_;
  SweepRequest request_;
  std::vector<std::string> devices_, addresses_, profiles_, accepted_;
  std::string shard_, backend_ = "emulator";
  bool has_no_checks_ = false, has_program_time_ = false;
};

}  // namespace rdmaemu::cli
