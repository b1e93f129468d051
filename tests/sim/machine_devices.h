// What is done to the devices of a machine while it runs (rdmaemu device, port, address), and what
// follows for its addresses: which device has them, which of them a packet leaves by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/sim/process.h"

namespace rdmaemu::sim {

class MachineDevices {
 public:
  explicit MachineDevices(Machine& machine) : machine_(machine) {}

  // The machine has started: all is as it was set up. `numbers` names devices, each time that one
  // comes; never 0.
  void Start(Process& process, uint32_t& numbers);
  uint32_t life() const { return life_; }

  // ---- changes. Each is asked for by `process`, and a complaint when it is refused.

  // The number of the device that has gone; nothing when no device could.
  std::optional<uint32_t> RemoveOne(Process& process);
  void TakePortDown(Process& process);
  struct Move {
    NetAddress address;
    uint32_t to;
  };
  std::optional<Move> MoveOne(Process& process);
  void TakeAddressAway(Process& process);
  // One thing that is not as it was set up is again. False when all is.
  bool Mend(Process& process, uint32_t& numbers);
  // So many changes and removals there were.
  uint32_t changes() const { return changes_; }
  uint32_t removals() const { return removals_; }

  // ---- what there is

  bool Has(const NetAddress& address) const { return Find(address) != nullptr; }
  // The number of the device that has the address; 0: none.
  uint32_t DeviceOf(const NetAddress& address) const;
  // The own address by which the destination is reached: itself, or the first of its family on a
  // link that is up; a removed device says nothing of its interface.
  // `from`: the address to which the id is bound, whose device's link is asked alone.
  std::optional<NetAddress> SourceFor(const NetAddress& destination,
                                      const std::optional<NetAddress>& from = {}) const;
  // The number of the device with this ibdev_index; 0: none.
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
  // Devices that came get their numbers.
  void Number(Process& process, uint32_t& numbers);

  Machine& machine_;
  uint32_t life_ = 0, changes_ = 0, removals_ = 0;
  std::vector<Device> devices_;
  std::vector<Address> addresses_;  // in the order in which the host knows them
};

}  // namespace rdmaemu::sim
