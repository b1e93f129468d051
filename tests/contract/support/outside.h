// Changes to a machine's devices from outside the program: remove and return a device, set a link
// up or down, add, remove or move an address. The emulator uses `rdmaemu device|port|address`, and
// the kernel uses `rdma link` and `ip`. Only for tests that have the machine for themselves
// (exclusive in BUILD) and whose programs are other processes (Place::kLocalProcess). The reason:
// the kernel finishes the removal of a device only when the last process has closed it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace rdma_contract {

// Returns why this backend cannot change devices, for GTEST_SKIP; "" when it can.
std::string WhyNothingChanges();

// The device under test, on this machine.
class TestDevice {
 public:
  TestDevice() = default;
  TestDevice(const TestDevice&) = delete;
  // Restores the earlier state: the port is up and the device exists. The device's users must have
  // ended.
  ~TestDevice();

  // Begins the removal. Programs get the event at once.
  void Remove();
  // Finishes the removal and returns the device. No process may have the device open.
  void Return();
  void SetPort(bool up);
  // Adds a second address to the device.
  void AddAddress(const std::string& address);
  void RemoveAddress(const std::string& address);
  // Sets an entry of the device's P_Key table, as a subnet manager does. On the emulator only.
  static void SetPkey(int index, uint16_t pkey);

 private:
  pid_t removal_ = -1;  // the command that waits for the removal, on the kernel
  bool removed_ = false, down_ = false, used_ = false;
  std::string netdev_;           // the interface under the device, on the kernel
  std::string lost_while_down_;  // commands that add its neighbours and routes again
};

// Another device of this machine, with an address of its own in a network of its own.
class SecondDevice {
 public:
  SecondDevice();
  ~SecondDevice();
  SecondDevice(const SecondDevice&) = delete;
  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  // An address of the device's network that resolves but that no machine has.
  const std::string& neighbour() const { return neighbour_; }

 private:
  std::string name_ = "second0", address_, neighbour_;
};

// Whether the link that takes over an address has its own MAC or the earlier link's.
enum class LinksMac { kDiffers, kStays };

// An address that another link takes over. On the kernel this is a bond's failover
// (fail_over_mac=active, or none when the MAC stays). On the emulator the address moves to another
// device.
class MovingAddress {
 public:
  explicit MovingAddress(LinksMac mac);
  ~MovingAddress();
  MovingAddress(const MovingAddress&) = delete;
  const std::string& address() const { return address_; }
  // The device that has the address before Move.
  const std::string& device() const { return device_; }
  // Returns why this machine has no such address, for GTEST_SKIP; "" when it has one.
  const std::string& why_not() const { return why_not_; }
  void Move();

 private:
  std::string address_, device_ = "moving0", why_not_;
};

// A silent neighbour of the device under test, whose MAC differs after Change.
class ChangedNeighbour {
 public:
  ChangedNeighbour();
  ~ChangedNeighbour();
  ChangedNeighbour(const ChangedNeighbour&) = delete;
  const std::string& address() const { return address_; }
  // Returns why this machine has no such neighbour, for GTEST_SKIP; "" when it has one.
  const std::string& why_not() const { return why_not_; }
  void Change();

 private:
  std::string address_, netdev_, mac_, why_not_;
  bool changed_ = false;
};

// Returns an unused address of the machine's network; `last` is its last number.
std::string NeighbourOf(const std::string& address, int last);

}  // namespace rdma_contract
