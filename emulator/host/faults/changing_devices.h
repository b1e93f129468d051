// The interface by which fault rules change a host's devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/verbs/device.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

// Functions return ENODEV when the host has no device of that name, or the device is removed.
class ChangingDevices {
 public:
  virtual ~ChangingDevices() = default;
  // Names of the devices that are not removed.
  virtual std::vector<std::string> PresentNames() const = 0;
  // Returns the device that has the address, even if the device is removed. Empty when no device
  // has the address.
  virtual std::optional<std::pair<std::string, HostAddress>> OwnerOf(
      const NetAddress& address) const = 0;

  // Without habits, the device's profile decides about side effects.
  virtual Status Remove(Time now, const std::string& name,
                        std::optional<RemovalHabits> habits = {}) = 0;
  // Adds a removed device again, in its previous state. EEXIST when the device is not removed.
  virtual Status Return(const std::string& name) = 0;
  virtual Status SetPort(Time now, const std::string& name, bool up) = 0;
  // EEXIST when a device of this host has the address. ENOSPC when a table is full. Else an errno
  // of the network.
  virtual Status AddAddress(const std::string& name, const HostAddress& address) = 0;
  // EADDRNOTAVAIL when no device of this host has the address.
  virtual Status RemoveAddress(const NetAddress& address) = 0;
  // EALREADY when the device has the address already.
  virtual Status MoveAddress(Time now, const NetAddress& address, const std::string& to) = 0;
  // Empty when there is no such device, or its P_Key table has no such entry.
  virtual std::optional<uint16_t> PkeyOf(const std::string& name, uint32_t index) = 0;
  // EINVAL when the device's P_Key table has no such entry.
  virtual Status SetPkey(const std::string& name, uint32_t index, uint16_t pkey) = 0;
};

}  // namespace rdmaemu
