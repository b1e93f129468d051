// What happens to a machine's devices from outside the program: a device is removed and returns, a
// link goes down, an address comes, goes or moves. On the emulator `rdmaemu device|port|address` do
// it, on the kernel `rdma link` and `ip`. Only for tests that have the machine for themselves
// (exclusive in BUILD), whose programs are other processes (Place::kLocalProcess): the kernel
// removes a device when the last process has let it go.
#pragma once

#include <sys/types.h>

#include <string>

namespace rdma_contract {

// Why this backend has no way to do it, for GTEST_SKIP; "" when it has one.
std::string WhyNothingChanges();

// The device under test, on this machine.
class TestDevice {
 public:
  TestDevice() = default;
  TestDevice(const TestDevice&) = delete;
  // All is as it was before: the port up, the device there. Its users have to be gone.
  ~TestDevice();

  // Begins the removal; programs hear of it at once.
  void Remove();
  // Ends it, and brings the device back. Nobody may hold it any more.
  void Return();
  void SetPort(bool up);
  // An address beside the one it has.
  void AddAddress(const std::string& address);
  void RemoveAddress(const std::string& address);

 private:
  pid_t removal_ = -1;  // the command that waits, on the kernel
  bool removed_ = false, down_ = false, used_ = false;
  std::string netdev_;  // under it, on the kernel
};

// Another device of this machine, with an address of its own in a network of its own.
class SecondDevice {
 public:
  SecondDevice();
  ~SecondDevice();
  SecondDevice(const SecondDevice&) = delete;
  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  // An address of the device's network that resolves and that nobody has.
  const std::string& neighbour() const { return neighbour_; }

 private:
  std::string name_ = "second0", address_, neighbour_;
};

// The MAC of the link that takes an address over: its own, or that of the link before it.
enum class LinksMac { kDiffers, kStays };

// An address that another link takes over: a bond's failover on the kernel (fail_over_mac=active,
// or none when the MAC stays), an address that moves to another device on the emulator.
class MovingAddress {
 public:
  explicit MovingAddress(LinksMac mac);
  ~MovingAddress();
  MovingAddress(const MovingAddress&) = delete;
  const std::string& address() const { return address_; }
  // Of the device that has the address before it moves.
  const std::string& device() const { return device_; }
  // "" or why this machine has no such address, for GTEST_SKIP.
  const std::string& why_not() const { return why_not_; }
  void Move();

 private:
  std::string address_, device_ = "moving0", why_not_;
};

// A neighbour of the device under test that is silent, and has another MAC from some moment on.
class ChangedNeighbour {
 public:
  ChangedNeighbour();
  ~ChangedNeighbour();
  ChangedNeighbour(const ChangedNeighbour&) = delete;
  const std::string& address() const { return address_; }
  // "" or why this machine has none, for GTEST_SKIP.
  const std::string& why_not() const { return why_not_; }
  void Change();

 private:
  std::string address_, netdev_, mac_, why_not_;
  bool changed_ = false;
};

// An address of the machine's network that nobody has: `last` is its last number.
std::string NeighbourOf(const std::string& address, int last);

}  // namespace rdma_contract
