// One machine of a run: a Host with what it needs from outside, which can be paused, can crash, and
// starts anew with nothing left of its last life.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "emulator/host/host.h"
#include "emulator/verbs/testing/fakes.h"
#include "tests/sim/address_space.h"
#include "tests/sim/network.h"
#include "tests/sim/recorder.h"

namespace rdmaemu::sim {

struct MachineSetup {
  uint32_t index = 0;
  Profile profile;
  SimNetwork* network = nullptr;
  Recorder* recorder = nullptr;
  Verdict* verdict = nullptr;
  const Time* now = nullptr;
};

class Machine {
 public:
  // A socket's receive buffer while the machine is paused, in datagrams; more are lost.
  static constexpr size_t kSocketDatagrams = 256;

  explicit Machine(MachineSetup setup);
  ~Machine();

  const std::string& name() const { return name_; }
  const NetAddress& ipv4() const { return ipv4_; }
  const NetAddress& ipv6() const { return ipv6_; }
  bool Owns(const NetAddress& address) const { return address == ipv4_ || address == ipv6_; }

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

  AddressSpaces memory;
  testing::FakeSharedMemory segments;
  testing::FakeCounters counters;

 private:
  class Port;
  class Trace;

  MachineSetup setup_;
  std::string name_;
  NetAddress ipv4_, ipv6_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<Host> host_;
  std::deque<Datagram> socket_;
  bool paused_ = false;
  uint32_t life_ = 0;
};

}  // namespace rdmaemu::sim
