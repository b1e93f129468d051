// The call that changes a running host's devices: what a program sent is checked here, once.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/base/time.h"
#include "emulator/host/devices.h"
#include "emulator/host/host.h"

namespace rdmaemu {

// `body` is a ChangeDeviceIn, and a profile's TOML behind it where a device is added with one.
// EINVAL for one of another size, an unknown change, a name that no device can have, a profile that
// is not built in or not one, or an address that is not one host's; else as HostDevices.
Reply ChangeDevice(HostDevices& devices, Time now, std::span<const std::byte> body);

}  // namespace rdmaemu
