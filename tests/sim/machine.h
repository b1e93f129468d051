// One machine of a run: a Host with its environment. The machine can be paused, can crash, and
// restarts without any earlier state.
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
  bool watched = false;  // as Plan::watched
  bool forms = false;    // as Plan::forms
  bool directs = false;  // as Plan::directs
  Profile profile;
  SimNetwork* network = nullptr;
  Recorder* recorder = nullptr;
  Verdict* verdict = nullptr;
  Tally* tally = nullptr;
  const Time* now = nullptr;
  // Called when this machine has sent a form to the address that refers to a copy job.
  std::function<void(const NetAddress&)> refers;
  // Returns the number that World::AddToCounter accepts for a counter of the machine at an address.
  // -1: there is none.
  std::function<int(const NetAddress&, CounterId)> counter_of;
  std::function<void(int)> add_to_counter;  // adds 1 to such a counter
};

// 10.0.0.0/16: all machines' IPv4 addresses are in one network.
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
  // The address of the second device, if there is one.
  const NetAddress& second_ipv4() const { return second_ipv4_; }
  // All addresses in the host's order: those of its first device first.
  std::vector<NetAddress> addresses() const;
  bool Owns(const NetAddress& address) const;

  bool up() const { return host_ != nullptr; }
  bool paused() const { return paused_; }
  bool runs() const { return up() && !paused_; }
  // The number of starts. A process detects by it whether its host is still the same.
  uint32_t life() const { return life_; }
  Host& host() { return *host_; }

  void Start(uint64_t seed);
  // Kills the host process. No peer gets a message.
  void Crash();
  void Pause() { paused_ = true; }
  // Returns the datagrams that its socket has queued meanwhile.
  std::deque<Datagram> Resume();
  // Gives the datagram to the host.
  void Receive(const Datagram& datagram);
  // Returns false when the datagram is lost.
  bool KeepForLater(const Datagram& datagram);
  // Sends the forms that a program has marked as filled.
  void SendFilledForms();
  // Calls `direct` with each form to the address whose destination can be named now (Host::Direct).
  // It returns false if the receiving host does not name it.
  using DirectHandler =
      std::function<bool(const Datagram&, const std::shared_ptr<DirectForm>& form)>;
  void LookAhead(const NetAddress& at, const DirectHandler& direct);
  // The number of multicast groups that its host has joined.
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
