// The subcommands of rdmaemu that change a running host: `device`, `port`, `address`, `pkey`.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

class DeviceOptions {
 public:
  explicit DeviceOptions(CLI::App& app);
  bool given() const { return chosen_; }
  int Do() const { return ChangeDevices(request_); }

 private:
  void AddDeviceCommands(CLI::App& app);
  void AddPortCommands(CLI::App& app);
  void AddAddressCommands(CLI::App& app);
  void AddPkeyCommands(CLI::App& app);
  CLI::App* Group(CLI::App& app, const char* name, const char* help, const char* example);
  CLI::App* Command(CLI::App& of, const char* name, const char* help, DeviceChange change,
                    const char* example);
  void AddCommon(CLI::App& command, const char* example);
  void AddName(CLI::App* command, const char* help);

  DeviceRequest request_;
  bool chosen_ = false;
};

}  // namespace rdmaemu::cli
