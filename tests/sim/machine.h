// One machine of a run: a Host with what it needs from outside, which can be paused, can crash, and
// starts anew with nothing left of its last life.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/verbs/testing/fakes.h"
#include "tests/sim/address_space.h"
#include "tests/sim/network.h"
#include "tests/sim/recorder.h"

namespace rdmaemu::sim {

struct MachineSetup {
  uint32_t index = 0;
  uint32_t devices = 1;
  Profile profile;
  SimNetwork* network = nullptr;
  Recorder* recorder = nullptr;
  Verdict* verdict = nullptr;
  const Time* now = nullptr;
};

// 10.0.0.0/16: all machines' IPv4 addresses are of one network.
inline constexpr uint8_t kIpv4PrefixBits = 96 + 16;

class Machine {
 public:
  // A socket's receive buffer while the machine is paused, in datagrams; more are lost.
  static constexpr size_t kSocketDatagrams = 256;

  explicit Machine(MachineSetup setup);
  ~Machine();

  const std::string& name() const { return name_; }
  const NetAddress& ipv4() const { return ipv4_; }
  const NetAddress& ipv6() const { return ipv6_; }
  // Of the second device, where there is one.
  const NetAddress& second_ipv4() const { return second_ipv4_; }
  // All of them, in the order in which its host knows them: those of its first device first.
  std::vector<NetAddress> addresses() const;
  bool Owns(const NetAddress& address) const;

  bool up() const { return host_ != nullptr; }
  bool paused() const { return paused_; }
  bool runs() const { return up() && !paused_; }
  // How often it has started: a process knows by it whether its host is still the same.
  uint32_t life() const { return life_; }
  Host& host() { return *host_; }

  void Start(uint64_t seed);
  // The host process is killed: nothing is said to anybody.
  void Crash();
  void Pause() { paused_ = true; }
  // Hands over what its socket has kept meanwhile.
  std::deque<Datagram> Resume();
  // False: the datagram is lost.
  bool KeepForLater(const Datagram& datagram);
  // Multicast groups that its host is a member of.
  size_t memberships() const;

  AddressSpaces memory;
  testing::FakeSharedMemory segments;
  testing::FakeCounters counters;

 private:
  class Port;
  class Trace;

  MachineSetup setup_;
  std::string name_;
  NetAddress ipv4_, ipv6_, second_ipv4_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Host> host_;
  std::deque<Datagram> socket_;
  bool paused_ = false;
  uint32_t life_ = 0;
};

}  // namespace rdmaemu::sim
