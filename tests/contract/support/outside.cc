#include "tests/contract/support/outside.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/contract/support/command.h"
#include "tests/contract/support/environment.h"

namespace rdma_contract {
namespace {

// Runs the system's own programs without the libraries under test.
std::string Shell(const std::string& command) {
  return OnTheEmulator() ? command : "LD_LIBRARY_PATH= " + command;
}
bool Try(const std::string& command) {
  return system((Shell(command) + " >/dev/null 2>&1").c_str()) == 0;
}
void Must(const std::string& command) {
  if (system(Shell(command).c_str()) != 0) throw std::runtime_error("this failed: " + command);
}

// Runs `rdmaemu ARGUMENTS --host HOST` on the host of this machine.
std::string OnHost(const std::string& arguments) {
  const std::string hosts = Variable("RDMA_TEST_HOSTS");
  return "'" + Variable("RDMA_TEST_RDMAEMU") + "' " + arguments + " --host " +
         hosts.substr(0, hosts.find(','));
}

pid_t Begin(const std::string& command) {
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", Shell("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  return pid;
}

// Returns the beginning of what a command prints.
std::string OutputOf(const std::string& command) {
  FILE* told = popen(Shell(command).c_str(), "r");
  if (told == nullptr) return "";
  char text[2048] = {};
  const size_t bytes = fread(text, 1, sizeof text - 1, told);
  pclose(told);
  return std::string(text, bytes);
}

// Returns the word after `word` in a command's output, "" when `word` is missing.
std::string WordAfter(const std::string& word, const std::string& command) {
  std::istringstream words(OutputOf(command));
  std::string one, wanted;
  while (words >> one) {
    if (one == word) words >> wanted;
  }
  return wanted;
}

// Returns the interface under a device of rdma_rxe or siw, "" when there is none.
std::string NetdevOf(const std::string& device) {
  return WordAfter("netdev", "rdma link show " + device + "/1");
}

// Returns the commands that add an interface's known neighbours and routes again. The kernel
// removes both with the link, and other tests use them.
std::string NeighboursAndRoutesOf(const std::string& netdev) {
  const std::string at = " dev " + netdev;
  return OutputOf("ip neigh show nud permanent" + at +
                  " | sed 's/^/ip neigh replace /; s/ PERMANENT.*/ nud permanent" + at + "/'") +
         OutputOf("ip route show" + at + " | grep -v 'proto kernel'" +
                  " | sed 's/^/ip route replace /; s/$/" + at + "/'");
}

// Returns the driver of the device under test. The kernel's devices are named after their driver.
std::string Driver() {
  const std::string name = DeviceName();
  return name.substr(0, name.find_first_of("0123456789"));
}

void LetGoOf(pid_t& command) {
  if (command > 0) waitpid(command, nullptr, 0);
  command = -1;
}

}  // namespace

std::string NeighbourOf(const std::string& address, int last) {
  return address.substr(0, address.rfind('.') + 1) + std::to_string(last);
}

std::string WhyNothingChanges() {
  if (OnTheEmulator()) return "";
  if (geteuid() != 0) return "changing the machine's links needs root";
  if (NetdevOf(DeviceName()).empty()) return "not a device that `rdma link` adds and deletes";
  return "";
}

// ---- the device under test

TestDevice::~TestDevice() {
  try {
    if (OnTheEmulator()) {
      if (removed_) Return();
      if (down_) SetPort(true);
      return;
    }
    if (down_) SetPort(true);
    // The kernel's GSI does not survive a message that it could not transmit.
    if (used_ && !removed_) Remove();
    if (removed_) Return();
  } catch (const std::exception&) {  // the next test reports that the device is missing
  }
}

void TestDevice::Remove() {
  removed_ = true;
  if (OnTheEmulator()) return Must(OnHost("device remove " + DeviceName()));
  netdev_ = NetdevOf(DeviceName());
  removal_ = Begin("rdma link del " + DeviceName());
}

void TestDevice::Return() {
  removed_ = false;
  if (OnTheEmulator()) return Must(OnHost("device add " + DeviceName()));
  LetGoOf(removal_);
  Must("rdma link add " + DeviceName() + " type " + Driver() + " netdev " + netdev_);
}

void TestDevice::SetPort(bool up) {
  down_ = !up;
  used_ = true;
  const std::string word = up ? "up" : "down";
  if (OnTheEmulator()) return Must(OnHost("port " + word + " " + DeviceName()));
  const std::string netdev = NetdevOf(DeviceName());
  // Without it the interface loses its IPv6 addresses, which other tests use.
  Try("echo 1 >/proc/sys/net/ipv6/conf/" + netdev + "/keep_addr_on_down");
  if (!up && lost_while_down_.empty()) lost_while_down_ = NeighboursAndRoutesOf(netdev);
  Must("ip link set " + netdev + " " + word);
  if (up) Must("set -e\n" + std::exchange(lost_while_down_, {}));
}

void TestDevice::AddAddress(const std::string& address) {
  if (OnTheEmulator()) return Must(OnHost("address add " + address + " --device " + DeviceName()));
  Must("ip address add " + address + "/24 dev " + NetdevOf(DeviceName()));
}

void TestDevice::RemoveAddress(const std::string& address) {
  if (OnTheEmulator()) return Must(OnHost("address remove " + address));
  Must("ip address del " + address + "/24 dev " + NetdevOf(DeviceName()));
}

void TestDevice::SetPkey(int index, uint16_t pkey) {
  Must(OnHost("pkey set " + DeviceName() + " " + std::to_string(index) + " " +
              std::to_string(pkey)));
}

// ---- another device

SecondDevice::SecondDevice() {
  if (OnTheEmulator()) {
    address_ = NeighbourOf(LocalAddress(), 249);
    neighbour_ = NeighbourOf(LocalAddress(), 250);
    Must(OnHost("device add " + name_ + "=" + Driver() + " --address " + address_ + "/30"));
    return;
  }
  address_ = "10.67.0.1";
  neighbour_ = "10.67.0.9";
  Must("ip link add second type dummy");
  Must("ip address add " + address_ + "/24 dev second");
  Must("ip link set second up");
  Must("rdma link add " + name_ + " type " + Driver() + " netdev second");
}

SecondDevice::~SecondDevice() {
  if (OnTheEmulator()) {
    Try(OnHost("device remove " + name_));
    Try(OnHost("address remove " + address_));
    return;
  }
  Try("rdma link del " + name_);
  Try("ip link del second");
}

// ---- a neighbour with another MAC

ChangedNeighbour::ChangedNeighbour() : address_(SilentAddress()) {
  if (OnTheEmulator()) {
    why_not_ = "an emulated neighbour's MAC is its address, for ever";
    return;
  }
  netdev_ = NetdevOf(DeviceName());
  mac_ = WordAfter("lladdr", "ip neigh show " + address_ + " dev " + netdev_);
  if (mac_.empty()) why_not_ = "no neighbour here is known and silent";
}

ChangedNeighbour::~ChangedNeighbour() {
  if (changed_) Try("ip neigh replace " + address_ + " lladdr " + mac_ + " dev " + netdev_);
}

void ChangedNeighbour::Change() {
  changed_ = true;
  Must("ip neigh replace " + address_ + " lladdr 02:00:00:00:99:99 dev " + netdev_);
}

// ---- an address that moves

MovingAddress::MovingAddress(LinksMac mac) {
  if (OnTheEmulator()) {
    if (mac == LinksMac::kStays) {
      why_not_ = "an emulated address that keeps its MAC stays on its device";
      return;
    }
    address_ = NeighbourOf(LocalAddress(), 252);
    Must(OnHost("device add " + device_ + "=" + Driver() + " --address " + address_));
    return;
  }
  address_ = "10.68.0.1";
  if (!Try("modprobe bonding")) {
    why_not_ = "this kernel has no bonding";
    return;
  }
  Must(std::string("ip link add bond9 type bond mode active-backup miimon 50 fail_over_mac ") +
       (mac == LinksMac::kDiffers ? "active" : "none"));
  for (const char* link : {"link1", "link2"}) {
    Must(std::string("ip link add ") + link + " type dummy");
    Must(std::string("ip link set ") + link + " master bond9");
  }
  Must("ip address add " + address_ + "/24 dev bond9");
  Must("ip link set bond9 up");
  Must("rdma link add " + device_ + " type " + Driver() + " netdev bond9");
}

MovingAddress::~MovingAddress() {
  if (!why_not_.empty()) return;
  if (OnTheEmulator()) {
    Try(OnHost("device remove " + device_));
    Try(OnHost("address remove " + address_));
    return;
  }
  Try("rdma link del " + device_);
  for (const char* link : {"bond9", "link1", "link2"}) Try(std::string("ip link del ") + link);
}

void MovingAddress::Move() {
  if (OnTheEmulator()) {
    return Must(OnHost("address move " + address_ + " --device " + DeviceName()));
  }
  Must(
      "active=$(cat /sys/class/net/bond9/bonding/active_slave); other=link1;"
      " [ $active = link1 ] && other=link2; ip link set bond9 type bond active_slave $other");
}

}  // namespace rdma_contract
