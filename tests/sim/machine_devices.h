// Changes to the devices of a running machine (rdmaemu device, port, address), and their effect on
// its addresses: which device has each address, and which address sends a packet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/sim/process.h"

namespace rdmaemu::sim {

class MachineDevices {
 public:
  explicit MachineDevices(Machine& machine) : machine_(machine) {}

  // The machine has started with its initial setup. `numbers` gives each added device a new number;
  // never 0.
  void Start(Process& process, uint32_t& numbers);
  uint32_t life() const { return life_; }

  // ---- changes. `process` requests each of them; a refusal is a complaint.

  // Returns the number of the removed device; nullopt when no device could be removed.
  std::optional<uint32_t> RemoveOne(Process& process);
  void TakePortDown(Process& process);
  struct Move {
    NetAddress address;
    uint32_t to;
  };
  std::optional<Move> MoveOne(Process& process);
  void TakeAddressAway(Process& process);
  // Restores one changed thing to its initial setup. Returns false when nothing differs.
  bool Mend(Process& process, uint32_t& numbers);
  // The numbers of changes and of removals so far.
  uint32_t changes() const { return changes_; }
  uint32_t removals() const { return removals_; }

  // ---- the current state

  bool Has(const NetAddress& address) const { return Find(address) != nullptr; }
  // Returns the number of the device that has the address; 0: no device.
  uint32_t DeviceOf(const NetAddress& address) const;
  // Returns the local address by which the destination is reached. This is the destination itself,
  // or the first address of its family on a link that is up. A removed device's interface does not
  // count. With `from`, the address to which the id is bound, only the link of its device counts.
  std::optional<NetAddress> SourceFor(const NetAddress& destination,
                                      const std::optional<NetAddress>& from = {}) const;
  // Returns the number of the device with this ibdev_index; 0: no device.
  uint32_t NumberOf(uint32_t index) const;

 private:
  struct Device {
    std::string name;
    bool there = true, up = true;
    uint32_t number = 0, index = 0;
  };
  struct Address {
    NetAddress address;
    size_t device = 0;
    bool there = true;
  };
  const Address* Find(const NetAddress& address) const;
  void Change(Process& process, DeviceChange change, const Device& device,
              const NetAddress& address = {});
  // Numbers the added devices.
  void Number(Process& process, uint32_t& numbers);

  Machine& machine_;
  uint32_t life_ = 0, changes_ = 0, removals_ = 0;
  std::vector<Device> devices_;
  std::vector<Address> addresses_;  // in the host's order
};

}  // namespace rdmaemu::sim
