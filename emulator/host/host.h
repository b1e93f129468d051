// A host: a kernel in user space. Devices, verbs objects, transports and connection management of
// one machine behind one entry point per kind of input: calls, doorbells, packets, time. It does no
// I/O, starts no thread and reads no clock; the runtime, a test or a simulation drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/base/id_space.h"
#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/net_prefix.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/fault/rule.h"
#include "emulator/host/calls/reply.h"
#include "emulator/trace/trace.h"
#include "emulator/verbs/device.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu {

struct HostConfig {
  std::string name;
  uint32_t pid = 0;  // of the host process, told to clients; 0 where a host is embedded
  std::vector<DeviceConfig> devices;
  std::vector<NetPrefix> silent_nets = {};  // nobody answers for their addresses
  // Next hops of destinations outside the networks of all devices; without one they have no route.
  std::vector<NetAddress> gateways = {};
  RandomSeed seed;                       // of keys, numbers and tokens; the same one repeats them
  std::vector<fault::Rule> faults = {};  // at most fault::Rules::kMaxRules, with names of their own
  IdSpace ids = {};                      // of what clients name by number, but for segments
  // False: every payload goes from program memory to program memory when it is posted and delivered
  // (transport/payload_owner.h). Slower; tests show that nothing else differs.
  bool payload_shortcuts = true;
};

// Where a host's UDP payloads go; they are sealed and complete.
class Network {
 public:
  virtual ~Network() = default;
  // Room for one UDP payload; empty when the network takes no more now.
  virtual std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                        size_t bytes) = 0;
  // Room for several payloads of one flow that leave one after the other; answers how many of
  // them got room (DatagramSink::AllocateRun).
  virtual size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                             std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
    rooms[0] = Allocate(flow, traffic_class, bytes[0]);
    return rooms[0].empty() ? 0 : 1;
  }
  // Sends what the last Allocate or AllocateRun gave.
  virtual void Commit() = 0;
  // From now on packets to the multicast group that come to the link of the own address `local` go
  // to Host::Receive, with that address, until LeaveGroup; never asked twice for the same pair. An
  // errno when the system has no more of what it takes. A network that brings every packet
  // everywhere has nothing to do.
  virtual Status JoinGroup(const NetAddress&, const NetAddress&) { return {}; }
  virtual void LeaveGroup(const NetAddress&, const NetAddress&) {}
  // From now on the host is told by Host::Refused when nobody listens where it sends to. Networks
  // that cannot know have nothing to do.
  virtual void ReportRefusals() {}
  // A host that runs gets another address, which it is to be reached at from now on, or loses one.
  // Open answers as bind(2). Networks that carry whatever they are given have nothing to do.
  virtual Status Open(const HostAddress&) { return {}; }
  virtual void Close(const NetAddress&) {}
};

struct ProcessInfo {
  uint32_t pid;
  std::string program;
};

class Host {
 public:
  struct Environment {
    Memory& memory;
    SharedMemory& shared_memory;
    EventCounters& counters;
    Network& network;
    trace::Sink& trace;
  };
  Host(HostConfig config, Environment environment);
  ~Host();

  // A process connected (its Hello carries the rest), or its connection ended.
  ProcessId Attach(Time now, const ProcessInfo& info);
  void Detach(Time now, ProcessId process);
  // The process has ended, but not its connection: a child that it forked, and that made no call
  // yet, holds it. What the process made after its last fork ends; the rest awaits the child, or
  // Detach.
  void ProcessEnded(Time now, ProcessId process);
  // One message of calls.h, header included. Anything malformed answers EINVAL.
  Reply Call(Time now, ProcessId process, std::span<const std::byte> message);
  // A reply whose time has come (Reply::is_late), after Expire. What a process waits for is
  // forgotten when it is detached.
  std::optional<LateReply> TakeLateReply();
  // The process does not wait any longer: what it was owed is never done, where it was not yet.
  void AbandonCalls(ProcessId process);
  // UDP payloads of one flow as they came, ICRC included, in the order of their arrival. Together
  // they do what they would do one by one (Engine::Receive). `at`: the own address by which packets
  // to a multicast group came; nullptr: any. A rule may close that address (Network::Close) before
  // Receive returns: the payloads must outlive the port, `flow` and `at` need not.
  void Receive(Time now, const wire::UdpFlow& flow,
               std::span<const std::span<const std::byte>> udp_payloads,
               const NetAddress* at = nullptr);
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
               const NetAddress* at = nullptr) {
    Receive(now, flow, {&udp_payload, 1}, at);
  }
  // Nobody listens at the UDP port 4791 of `remote`, to which `local` has sent (ICMP port
  // unreachable, Network::ReportRefusals).
  void Refused(Time now, const NetAddress& local, const NetAddress& remote);
  // Looks at all doorbells; true when something was found.
  bool PollDoorbells(Time now);
  // Tells the programs whether a doorbell must wake the host. After PrepareSleep(true) the caller
  // polls the doorbells once more before it really sleeps.
  void PrepareSleep(bool asleep);
  // Work that is ready; true when some is left. Call until false or until other input waits.
  bool Work(Time now);
  // Programs copy for the host, and make no call when they have: look again without sleeping.
  bool AwaitsCopies() const;
  void Expire(Time now);
  // When Expire must be called. May be too early, because timers of answered requests stay armed.
  std::optional<Time> NextDeadline() const;
  // Makes the next NextDeadline exact. A clock that jumps to deadlines calls it before each jump:
  // time must not jump to a timer that nothing waits for.
  void DropStaleDeadlines();
  // A deadline, here or at a peer, runs against an application: it has a REQ or SIDR_REQ that it
  // has not answered, a REP without RTU or a DREQ (for no longer than the peer repeats them), or a
  // QP waits for a receive to be posted. Time that jumps would declare that application dead, so
  // while this holds for one of the hosts that talk to each other, time only runs. Looks at every
  // connection and queue pair.
  bool AwaitsApplication(Time now) const;
  // How far time may jump when nothing is ready and nothing on its way: to the next deadline;
  // nothing when there is none, or while an application is awaited.
  std::optional<Time> NextJump(Time now);

  // The group a process belongs to, kNone before its Hello.
  GroupId GroupOf(ProcessId process) const;
  size_t processes() const;
  bool stop_requested() const;  // kHostStop was called
  // A fault rule ended the host: it does nothing any more, and who runs it ends it as by SIGKILL.
  bool crashed() const;
  std::string StatusJson() const;
  std::string RulesJson() const;  // as kFaultList answers, without what is held; also when crashed

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu
