#include "tests/sim/machine_devices.h"

#include <algorithm>

namespace rdmaemu::sim {
namespace {

const char* NameOf(DeviceChange change) {
  switch (change) {
    case DeviceChange::kRemoveDevice:
      return "remove_device";
    case DeviceChange::kAddDevice:
      return "add_device";
    case DeviceChange::kPortDown:
      return "port_down";
    case DeviceChange::kPortUp:
      return "port_up";
    case DeviceChange::kAddAddress:
      return "add_address";
    case DeviceChange::kRemoveAddress:
      return "remove_address";
    case DeviceChange::kMoveAddress:
      return "move_address";
    case DeviceChange::kSetPkey:
      return "set_pkey";
  }
  return "unknown";
}

}  // namespace

void MachineDevices::Start(Process& process, uint32_t& numbers) {
  life_ = machine_.life();
  devices_ = {{.name = "rxe0"}, {.name = "rxe1"}};
  addresses_.clear();
  for (const NetAddress& address : machine_.addresses()) {
    addresses_.push_back({address, address == machine_.second_ipv4() ? 1u : 0u});
  }
  Number(process, numbers);
}

void MachineDevices::Number(Process& process, uint32_t& numbers) {
  ListDevicesOut out{};
  if (process.Call(CallOp::kListDevices, Nothing{}, out) != 0) return;
  for (Device& device : devices_) {
    if (device.number != 0) continue;
    for (uint32_t i = 0; i < out.count; i++) {
      if (out.devices[i].name != device.name) continue;
      device.number = ++numbers;
      device.index = out.devices[i].index;
    }
  }
}

// ---- changes

void MachineDevices::Change(Process& process, DeviceChange change, const Device& device,
                            const NetAddress& address) {
  ChangeDeviceIn in{};
  in.change = static_cast<uint32_t>(change);
  in.on_wire = 1;
  in.link_mtu_bytes = 1500;
  if (address.IsIpv4()) in.prefix_bits = kIpv4PrefixBits;
  device.name.copy(in.device, sizeof in.device - 1);
  std::ranges::copy(address.bytes, in.address);
  changes_++;
  World& world = process.world();
  const std::string name = NameOf(change);
  world.tally().Count("change." + name);
  const int error = process.Call(CallOp::kChangeDevice, in);
  const std::string what =
      name + " of " + device.name + (address.IsZero() ? "" : " " + address.ToString());
  if (world.recorder().tells_story()) world.recorder().Say(world.now(), machine_.name(), what);
  if (error != 0) {
    world.verdict().Complain(
        "devices", machine_.name() + ": " + what + " is refused, errno " + std::to_string(error));
  }
}

std::optional<uint32_t> MachineDevices::RemoveOne(Process& process) {
  Device& device = devices_[process.world().random().Below(2)];
  if (!device.there) return std::nullopt;
  Change(process, DeviceChange::kRemoveDevice, device);
  device.there = false;
  removals_++;
  return std::exchange(device.number, 0);
}

void MachineDevices::TakePortDown(Process& process) {
  Device& device = devices_[process.world().random().Below(2)];
  if (!device.there || !device.up) return;
  Change(process, DeviceChange::kPortDown, device);
  device.up = false;
}

std::optional<MachineDevices::Move> MachineDevices::MoveOne(Process& process) {
  Address& moving =
      addresses_[process.world().random().Below(static_cast<uint32_t>(addresses_.size()))];
  const size_t to = 1 - moving.device;
  if (!moving.there || !devices_[to].there) return std::nullopt;
  Change(process, DeviceChange::kMoveAddress, devices_[to], moving.address);
  moving.device = to;
  return Move{moving.address, devices_[to].number};
}

void MachineDevices::TakeAddressAway(Process& process) {
  // Removes the last address, so that its position is the same after its return.
  Address& last = addresses_.back();
  if (!last.there) return;
  Change(process, DeviceChange::kRemoveAddress, devices_[last.device], last.address);
  last.there = false;
}

bool MachineDevices::Mend(Process& process, uint32_t& numbers) {
  for (Device& device : devices_) {
    if (!device.there) {
      Change(process, DeviceChange::kAddDevice, device);
      device.there = device.up = true;
      Number(process, numbers);
      return true;
    }
    if (!device.up) {
      Change(process, DeviceChange::kPortUp, device);
      device.up = true;
      return true;
    }
  }
  Address& last = addresses_.back();
  if (last.there) return false;
  Change(process, DeviceChange::kAddAddress, devices_[last.device], last.address);
  last.there = true;
  return true;
}

// ---- the current state

const MachineDevices::Address* MachineDevices::Find(const NetAddress& address) const {
  const auto found = std::ranges::find_if(
      addresses_, [&](const Address& each) { return each.there && each.address == address; });
  return found == addresses_.end() ? nullptr : &*found;
}

uint32_t MachineDevices::DeviceOf(const NetAddress& address) const {
  const Address* found = Find(address);
  return found == nullptr ? 0 : devices_[found->device].number;
}

std::optional<NetAddress> MachineDevices::SourceFor(const NetAddress& destination,
                                                    const std::optional<NetAddress>& from) const {
  if (Has(destination)) return destination;
  if (const Address* const bound = from ? Find(*from) : nullptr) {
    const Device& device = devices_[bound->device];
    return device.up || !device.there ? from : std::nullopt;
  }
  for (const Address& own : addresses_) {
    const Device& device = devices_[own.device];
    if (own.there && (device.up || !device.there) && own.address.IsIpv4() == destination.IsIpv4()) {
      return own.address;
    }
  }
  return std::nullopt;
}

uint32_t MachineDevices::NumberOf(uint32_t index) const {
  for (const Device& device : devices_) {
    if (device.there && device.index == index) return device.number;
  }
  return 0;
}

}  // namespace rdmaemu::sim
