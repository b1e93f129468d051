// The call that changes a running host's devices. This file checks the program's input, once.
#pragma once

#include <cstddef>
#include <span>

#include "emulator/base/time.h"
#include "emulator/host/devices.h"
#include "emulator/host/host.h"

namespace rdmaemu {

// `body` is a ChangeDeviceIn, followed by a profile's TOML when a device is added with its own
// profile. EINVAL for a body of another size, an unknown change or an invalid device name. EINVAL
// also for an invalid profile, an unknown profile name, or an address that no single host can have.
// Else the error of HostDevices.
Reply ChangeDevice(HostDevices& devices, Time now, std::span<const std::byte> body);

}  // namespace rdmaemu
