#include "tools/cli/device_options.h"

#include "tools/cli/running_host_options.h"

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
  CLI::App* const list =
      device->add_subcommand("list", "List the host's devices, including removed ones");
  AddCommon(*list, "rdmaemu device list --host a --json");
  AddName(
      Command(*device, "remove",
              "Remove a device as `rdma link del` does, but at once, even while programs hold it",
              DeviceChange::kRemoveDevice, "rdmaemu device remove rxe0 --host a"),
      "The device. Its ids get DEVICE_REMOVAL");
  CLI::App* const add = Command(*device, "add", "Add a removed device again, or create a new one",
                                DeviceChange::kAddDevice, "rdmaemu device add rxe0 --host a");
  AddName(add,
          "NAME[=PROFILE][@IP[/BITS]...], where PROFILE is a profile's name or file. A removed "
          "device returns unchanged, with its addresses");
  add->add_option("--address", request_.addresses, "More addresses of the device")
      ->type_name("IP[/BITS][,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void DeviceOptions::AddPortCommands(CLI::App& app) {
  CLI::App* const port =
      Group(app, "port", "Set a device's port down or up, as `ip link set` does",
            "rdmaemu port down rxe0 --host a; sleep 1; rdmaemu port up rxe0 --host a");
  AddName(Command(*port, "down", "Set the port down: it sends and receives no packets",
                  DeviceChange::kPortDown, "rdmaemu port down rxe0 --host a"),
          "The device");
  AddName(Command(*port, "up", "Set the port up", DeviceChange::kPortUp,
                  "rdmaemu port up rxe0 --host a"),
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
    command->add_option("--device", request_.device, "The new device of the address")
        ->type_name("NAME")
        ->required();
  };
  CLI::App* const address =
      Group(app, "address", "Add, remove and move addresses of a running host",
            "rdmaemu address add 127.0.1.9 --device rxe0 --host a");
  add_device(
      add_address(Command(*address, "add", "Add an address to a device", DeviceChange::kAddAddress,
                          "rdmaemu address add 127.0.1.9 --device rxe0 --host a")));
  add_address(Command(*address, "remove", "Remove an address from its device and from the network",
                      DeviceChange::kRemoveAddress, "rdmaemu address remove 127.0.1.9 --host a"));
  add_device(add_address(Command(
      *address, "move",
      "Move an address to another device of the host, as after a failover of a bond. Ids that are "
      "bound to the address get ADDR_CHANGE",
      DeviceChange::kMoveAddress, "rdmaemu address move 127.0.1.9 --device rxe1 --host a")));
}

void DeviceOptions::AddPkeyCommands(CLI::App& app) {
  const char* const example = "rdmaemu pkey set rxe0 0 0x7fff --host a";
  CLI::App* const pkey = Group(app, "pkey",
                               "Change the P_Key table of a device, as a subnet"
                               " manager does",
                               example);
  CLI::App* const set =
      Command(*pkey, "set", "Set one entry of the table. Programs get IBV_EVENT_PKEY_CHANGE",
              DeviceChange::kSetPkey, example);
  AddName(set, "The device");
  set->add_option("INDEX", request_.pkey_index, "Index of the entry, from 0")->required();
  set->add_option(
         "PKEY", request_.pkey,
         "A number of 16 bits, such as 0x8001. The top bit means full membership. 0: no partition")
      ->required();
}

DeviceOptions::DeviceOptions(CLI::App& app) {
  request_.host = DefaultHostName();
  AddDeviceCommands(app);
  AddPortCommands(app);
  AddAddressCommands(app);
  AddPkeyCommands(app);
}

}  // namespace rdmaemu::cli
