#include "tools/cli/device_options.h"

namespace rdmaemu::cli {

CLI::App* DeviceOptions::Group(CLI::App& app, const char* name, const char* help,
                               const char* example) {
  CLI::App* const group = app.add_subcommand(name, help);
  group->require_subcommand(1);
  group->footer(std::string("Example:\n  ") + example);
  return group;
}

void DeviceOptions::AddCommon(CLI::App& command, const char* example) {
  command.add_option("--host", request_.host, "Name of the host")->type_name("NAME");
  command.add_flag("--json", request_.json, "Print the host's devices afterwards, for a program");
  command.callback([this] { chosen_ = true; });
  command.footer(std::string("Example:\n  ") + example);
}

CLI::App* DeviceOptions::Command(CLI::App& of, const char* name, const char* help,
                                 DeviceChange change, const char* example) {
  CLI::App* const command = of.add_subcommand(name, help);
  AddCommon(*command, example);
  command->callback([this, change] {
    chosen_ = true;
    request_.change = change;
  });
  return command;
}

void DeviceOptions::AddName(CLI::App* command, const char* help) {
  command->add_option("NAME", request_.device, help)->required();
}

void DeviceOptions::AddDeviceCommands(CLI::App& app) {
  CLI::App* const device = Group(app, "device", "List, remove and add devices of a running host",
                                 "rdmaemu device remove rxe0 --host a");
  CLI::App* const list = device->add_subcommand("list", "What the host has, removed devices too");
  AddCommon(*list, "rdmaemu device list --host a --json");
  AddName(Command(*device, "remove", "As `rdma link del`, but at once, whoever holds the device",
                  DeviceChange::kRemoveDevice, "rdmaemu device remove rxe0 --host a"),
          "The device; its ids get DEVICE_REMOVAL");
  CLI::App* const add = Command(*device, "add", "Bring a removed device back, or make a new one",
                                DeviceChange::kAddDevice, "rdmaemu device add rxe0 --host a");
  AddName(add,
          "NAME[=PROFILE][@IP[/BITS]...], a profile's name or file; a removed one comes back as it "
          "was, with its addresses");
  add->add_option("--address", request_.addresses, "More addresses for it")
      ->type_name("IP[/BITS][,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void DeviceOptions::AddPortCommands(CLI::App& app) {
  CLI::App* const port =
      Group(app, "port", "Take a device's port down and up again, as `ip link set` does",
            "rdmaemu port down rxe0 --host a; sleep 1; rdmaemu port up rxe0 --host a");
  AddName(Command(*port, "down", "Nothing passes any more", DeviceChange::kPortDown,
                  "rdmaemu port down rxe0 --host a"),
          "The device");
  AddName(
      Command(*port, "up", "Back to work", DeviceChange::kPortUp, "rdmaemu port up rxe0 --host a"),
      "The device");
}

void DeviceOptions::AddAddressCommands(CLI::App& app) {
  const auto add_address = [this](CLI::App* command) {
    command->add_option("IP", request_.addresses, "The address: IP or IP/BITS")
        ->required()
        ->expected(1);
    return command;
  };
  const auto add_device = [this](CLI::App* command) {
    command->add_option("--device", request_.device, "The device that gets it")
        ->type_name("NAME")
        ->required();
  };
  CLI::App* const address =
      Group(app, "address", "Add, remove and move addresses of a running host",
            "rdmaemu address add 127.0.1.9 --device rxe0 --host a");
  add_device(
      add_address(Command(*address, "add", "A new address for a device", DeviceChange::kAddAddress,
                          "rdmaemu address add 127.0.1.9 --device rxe0 --host a")));
  add_address(Command(*address, "remove", "Takes it from its device and off the network",
                      DeviceChange::kRemoveAddress, "rdmaemu address remove 127.0.1.9 --host a"));
  add_device(add_address(Command(*address, "move",
                                 "To another device of the host, as after a bond's failover: ids"
                                 " that are bound to it get ADDR_CHANGE",
                                 DeviceChange::kMoveAddress,
                                 "rdmaemu address move 127.0.1.9 --device rxe1 --host a")));
}

void DeviceOptions::AddPkeyCommands(CLI::App& app) {
  const char* const example = "rdmaemu pkey set rxe0 0 0x7fff --host a";
  CLI::App* const pkey = Group(app, "pkey",
                               "Change the P_Key table of a device, as a subnet"
                               " manager does",
                               example);
  CLI::App* const set = Command(*pkey, "set", "Its programs get IBV_EVENT_PKEY_CHANGE",
                                DeviceChange::kSetPkey, example);
  AddName(set, "The device");
  set->add_option("INDEX", request_.pkey_index, "Entry of the table, from 0 on")->required();
  set->add_option("PKEY", request_.pkey,
                  "16 bits, such as 0x8001; the top bit is full membership; 0: no partition")
      ->required();
}

void DeviceOptions::AddTo(CLI::App& app, const std::string& host) {
  request_.host = host;
  AddDeviceCommands(app);
  AddPortCommands(app);
  AddAddressCommands(app);
  AddPkeyCommands(app);
}

const DeviceRequest* DeviceOptions::Chosen() { return chosen_ ? &request_ : nullptr; }

}  // namespace rdmaemu::cli
