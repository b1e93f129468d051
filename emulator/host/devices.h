// The devices of a running host and their changes. Devices are removed and return, ports go down
// and up, and addresses are added, removed and moved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cm/cm.h"
#include "emulator/host/address_table.h"
#include "emulator/host/faults/changing_devices.h"
#include "emulator/host/host.h"
#include "emulator/verbs/verbs.h"

namespace rdmaemu {

class HostDevices final : public ChangingDevices {
 public:
  // Names of devices that a host stores, including those of removed devices.
  static constexpr size_t kMaxNames = 64;
  // The most addresses of one host. Each address on the wire needs a socket, and the index of a GID
  // has 8 bits in an address vector.
  static constexpr size_t kMaxAddresses = 254;

  using Entry = HostDevice;

  HostDevices(Verbs& verbs, Network& network, AddressTable& addresses)
      : verbs_(verbs), network_(network), addresses_(addresses) {}

  // Call this before any removal. `cm` is not owned.
  void SetCm(cm::Cm* cm) { cm_ = cm; }

  // ---- changes. They return ENODEV when there is no device of that name, or it was removed.

  // Starts a device of the host's configuration. The network serves its addresses already.
  void Start(const DeviceConfig& config);
  // Sends DEVICE_REMOVAL to the device's ids, then removes the device. The host keeps the device's
  // addresses, without a device.
  Status Remove(Time now, const std::string& name,
                std::optional<RemovalHabits> habits = {}) override;
  // Adds a removed device again, with `profile` unless that is nullptr. For a new name, creates a
  // device without an address. EEXIST when the device is present. EINVAL for a new device without a
  // profile. ENOSPC when the host has kMaxDevices, or stores kMaxNames names.
  Status Add(const std::string& name, const Profile* profile);
  Status Return(const std::string& name) override { return Add(name, nullptr); }
  Status SetPort(Time now, const std::string& name, bool up) override;
  std::optional<uint16_t> PkeyOf(const std::string& name, uint32_t index) override;
  Status SetPkey(const std::string& name, uint32_t index, uint16_t pkey) override;
  Status AddAddress(const std::string& name, const HostAddress& address) override;
  Status RemoveAddress(const NetAddress& address) override;
  Status MoveAddress(Time now, const NetAddress& address, const std::string& to) override;

  // ---- queries

  // Returns the devices in the order in which they were first named.
  const std::vector<Entry*>& entries() const { return addresses_.all_devices(); }
  std::vector<std::string> PresentNames() const override;
  std::optional<std::pair<std::string, HostAddress>> OwnerOf(
      const NetAddress& address) const override;

 private:
  // nullptr when the name is unknown, or its device was removed.
  Entry* Find(const std::string& name);
  Entry* FindPresent(const std::string& name);
  Entry& NewEntry(const DeviceConfig& config);
  void Attach(Entry& entry);
  // Removes the address from the device's lists, but not from addresses_.
  void TakeFrom(Entry& from, const NetAddress& address);
  Status GiveTo(Entry& entry, const HostAddress& address);

  Verbs& verbs_;
  Network& network_;
  AddressTable& addresses_;
  cm::Cm* cm_ = nullptr;
  std::map<std::string, Entry> by_name_;  // entries keep their place in memory
};

}  // namespace rdmaemu
