// Functions of rdmaemu.h for devices. They make calls through the process's libibverbs.so.1. The
// calls therefore reach the host that the process uses: one in this process, or a host process.

#include <algorithm>
#include <cstring>
#include <string>

#include "emulator/abi/calls.h"
#include "emulator/embedded/call_host.h"
#include "emulator/embedded/last_error.h"
#include "emulator/verbs/device.h"
#include "rdmaemu/rdmaemu.h"

namespace rdmaemu::embedded {
namespace {

// Copies a name. Returns false if the name does not fit. A longer name is no device's name.
template <size_t N>
bool PutName(const char* name, char (&to)[N]) {
  if (name == nullptr || std::strlen(name) >= sizeof to) return false;
  std::strcpy(to, name);
  return true;
}

int ChangeErrno(int error, const char* device) {
  const std::string name = device == nullptr ? "" : device;
  if (error == -ENODEV || error == -ENOENT) {
    return Refuse(-error, "there is no device or address \"" + name + "\" on this host");
  }
  if (error < 0 && LastError().empty()) LastError() = std::strerror(-error);
  return error;
}

int Change(DeviceChange what, const char* device, const char* profile, const char* address) {
  ChangeDeviceIn in{};
  in.change = static_cast<uint32_t>(what);
  in.link_mtu_bytes = 1500;
  in.on_wire = 1;
  if (device != nullptr && !PutName(device, in.device)) {
    return Refuse(EINVAL, "a device's name has 1 to 63 letters, digits, '-' and '_'");
  }
  if (profile != nullptr && !PutName(profile, in.profile)) {
    return Refuse(EINVAL, "a running host takes its profiles by name: \"rxe\" or \"siw\"");
  }
  if (address != nullptr) {
    const auto parsed = ParseHostAddress(address);
    if (!parsed) {
      return Refuse(EINVAL, "\"" + std::string(address) +
                                "\" is no address of one host; give one as in \"10.0.0.1\" or "
                                "\"10.0.0.1/24\"");
    }
    std::ranges::copy(parsed->address.bytes, in.address);
    in.prefix_bits = parsed->prefix_bits;
  }
  const int error = CallHost(CallOp::kChangeDevice, &in, sizeof in, nullptr);
  return ChangeErrno(error, device != nullptr ? device : address);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_device_remove(const char* device) {
  return AtDoor([&] {
    return device == nullptr ? NoText("device")
                             : Change(DeviceChange::kRemoveDevice, device, nullptr, nullptr);
  });
}

int rdmaemu_device_add(const char* device, const char* profile) {
  return AtDoor([&] {
    return device == nullptr ? NoText("device")
                             : Change(DeviceChange::kAddDevice, device, profile, nullptr);
  });
}

int rdmaemu_port_set(const char* device, int up) {
  return AtDoor([&] {
    const DeviceChange change = up != 0 ? DeviceChange::kPortUp : DeviceChange::kPortDown;
    return device == nullptr ? NoText("device") : Change(change, device, nullptr, nullptr);
  });
}

int rdmaemu_address_add(const char* device, const char* address) {
  return AtDoor([&] {
    if (device == nullptr || address == nullptr) return NoText("device or address");
    return Change(DeviceChange::kAddAddress, device, nullptr, address);
  });
}

int rdmaemu_address_remove(const char* address) {
  return AtDoor([&] {
    return address == nullptr ? NoText("address")
                              : Change(DeviceChange::kRemoveAddress, nullptr, nullptr, address);
  });
}

int rdmaemu_address_move(const char* address, const char* to_device) {
  return AtDoor([&] {
    if (to_device == nullptr || address == nullptr) return NoText("to_device or address");
    return Change(DeviceChange::kMoveAddress, to_device, nullptr, address);
  });
}
