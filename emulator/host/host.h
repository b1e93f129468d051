// A host: a kernel in user space. A host contains the devices, verbs objects, transports and
// connection management of one machine. There is one entry point per kind of input: calls,
// doorbells, packets, time. A host does no I/O, starts no thread and reads no clock. The runtime, a
// test or a simulation drives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/abi/copy_jobs.h"
#include "emulator/base/id_space.h"
#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/net_prefix.h"
#include "emulator/base/random.h"
#include "emulator/base/result.h"
#include "emulator/base/time.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/fault/rule.h"
#include "emulator/host/calls/reply.h"
#include "emulator/host/group_waits.h"
#include "emulator/trace/trace.h"
#include "emulator/verbs/device.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu {

struct HostConfig {
  std::string name;
  uint32_t pid = 0;  // of the host process, reported to clients; 0 for an embedded host
  std::vector<DeviceConfig> devices;
  std::vector<NetPrefix> silent_nets = {};  // networks without an answering neighbour
  // Next hops of destinations outside the networks of all devices. Without a gateway such a
  // destination has no route.
  std::vector<NetAddress> gateways = {};
  RandomSeed seed;                       // of keys, numbers and tokens; the same seed repeats them
  std::vector<fault::Rule> faults = {};  // at most fault::Rules::kMaxRules, with unique names
  IdSpace ids = {};                      // of clients' numbers, except those of segments
  // False: the driver cannot end single programs. The host then refuses rules with end_program.
  bool ends_programs = true;
  // False: the host copies every payload between program memories when it is posted and delivered
  // (transport/payload_owner.h). This is slower. Tests check that programs see no other difference.
  bool payload_shortcuts = true;
  // True: programs may act without a call: they fetch events of connection management
  // (event_offers.h), and execute small WRITEs and READs (transport/permits.h). A trace lacks these
  // acts, and a clock that waits for programs or hosts to become idle misses them.
  bool programs_act_alone = false;
};

// A network transmits UDP payloads with ICRC (kDatagrams). A network between hosts that share
// memory also transmits forms of trains (transport/train_form.h), which have no ICRC.
// The payload of kPlacedTrains is at the place that Host::Direct has named, and not in the form.
// kPermitOffers are no packets (transport/permit_offer.h).
enum class WireForm : uint8_t { kDatagrams, kTrains, kPlacedTrains, kPermitOffers };

// Sends a host's UDP payloads, which are sealed and complete, and its forms of trains.
class Network {
 public:
  virtual ~Network() = default;
  // Returns a buffer for one UDP payload, or an empty span when the network accepts none now.
  virtual std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                        size_t bytes) = 0;
  // Returns buffers for consecutive payloads of one flow, and how many of the payloads got one
  // (DatagramSink::AllocateRun).
  virtual size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                             std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
    rooms[0] = Allocate(flow, traffic_class, bytes[0]);
    return rooms[0].empty() ? 0 : 1;
  }
  // Returns a buffer for `bytes` of one train's form (transport/train_form.h). Acts as
  // transport::DatagramSink::AllocateForm.
  virtual std::optional<std::span<std::byte>> AllocateForm(const wire::UdpFlow&,
                                                           uint8_t /*traffic_class*/,
                                                           size_t /*bytes*/, bool /*may_wait*/) {
    return std::nullopt;
  }
  // Sends what the last Allocate, AllocateRun or AllocateForm returned.
  virtual void Commit() = 0;
  // Sends the form of the last AllocateForm before its payload is there. Act as those of
  // transport::DatagramSink.
  virtual std::unique_ptr<UnfilledForm> CommitUnfilled(size_t /*payload_bytes*/) { return nullptr; }
  virtual bool takes_unfilled() const { return false; }
  // Sends the offer of a permit (transport/permit_offer.h). Returns false if the destination shares
  // no memory with this host, or if there is no room now.
  virtual bool SendOffer(const wire::UdpFlow&, std::span<const std::byte> /*offer*/) {
    return false;
  }
  // Returns the page to which an offer refers. Call it only while Host::Receive receives the offer.
  // nullptr: the reference is wrong. The page stays mapped while it is used.
  virtual std::shared_ptr<JobPage> OpenJobPage(const JobReference&) { return nullptr; }
  // Opens the lane to which an offer refers (abi/send_lane.h), as a segment of `own`. Call it as
  // OpenJobPage. EINVAL: the reference is wrong.
  virtual Result<Segment> OpenLane(const JobReference&, SharedMemory& /*own*/) {
    return Fail(EINVAL);
  }
  // Returns a duplicate of the counter `fd` of the host at `peer`, for a program of this host.
  // nullptr: that host shares no memory with this one, the system denies it, or there is no such
  // counter.
  virtual std::shared_ptr<const int> OpenCounter(const NetAddress& /*peer*/, int /*fd*/) {
    return nullptr;
  }
  // Adds 1 to such a counter.
  virtual void AddToCounter(const NetAddress& /*peer*/, int /*fd*/) {}
  // Calls `before` whenever the network begins to wait for another host.
  virtual void BeforeWaiting(std::function<void()> /*before*/) {}
  // Joins a multicast group on the link of the own address `local`, until LeaveGroup. The network
  // passes the group's packets from that link to Host::Receive, with that address. The host never
  // joins the same pair twice. Returns an errno when the system has no resources left. A network
  // that delivers every packet everywhere does nothing here.
  virtual Status JoinGroup(const NetAddress&, const NetAddress&) { return {}; }
  virtual void LeaveGroup(const NetAddress&, const NetAddress&) {}
  // Asks the network to call Host::Refused when no host listens at a destination. A network that
  // cannot detect this does nothing.
  virtual void ReportRefusals() {}
  // Open adds an address to a running host, Close removes one. The network delivers packets to the
  // added address. Open returns the errors of bind(2). A network that carries all packets does
  // nothing.
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

  // Attach adds a process that has connected. The process's Hello completes the process's data.
  // Detach ends a connection.
  ProcessId Attach(Time now, const ProcessInfo& info);
  void Detach(Time now, ProcessId process);
  // Handles the end of a process whose connection is still open. A forked child that has made no
  // call yet holds the connection open. Destroys the objects that the process created after its
  // last fork. Keeps the other objects for the child, at most until Detach.
  void ProcessEnded(Time now, ProcessId process);
  // Executes one message of calls.h, including its header. EINVAL for a malformed message. `caller`
  // is a number of the process's own, which LateReply repeats. Each caller waits for its reply.
  Reply Call(Time now, ProcessId process, std::span<const std::byte> message, uint32_t caller = 0);
  // Returns a delayed reply (Reply::is_late) that is due. Call this after Expire. Detach drops a
  // process's delayed replies.
  std::optional<LateReply> TakeLateReply();
  // Cancels the process's delayed calls. Calls that have not been executed yet never will be.
  void AbandonCalls(ProcessId process);
  // Receives UDP payloads of one flow, including the ICRC, in order of arrival. The effect equals
  // that of separate calls (Engine::Receive). `at` is the own address at which packets of a
  // multicast group arrived. nullptr: any address. A rule may close that address (Network::Close)
  // before Receive returns. The payloads must therefore outlive the port. `flow` and `at` need not.
  // With kTrains each of `udp_payloads` is a form of a train. The effect equals that of its
  // packets. With kPermitOffers each is an offer.
  void Receive(Time now, const wire::UdpFlow& flow,
               std::span<const std::span<const std::byte>> udp_payloads,
               const NetAddress* at = nullptr, WireForm form = WireForm::kDatagrams);
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
               const NetAddress* at = nullptr) {
    Receive(now, flow, {&udp_payload, 1}, at);
  }
  // Examines the head of a form whose payload is not there. Names the place of its payload to the
  // sender (DirectForm::Offer), if that is known now. `direct` is nullptr if a form before it has
  // not been read, and this function did not return kNamed for it.
  Naming Direct(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                const std::shared_ptr<DirectForm>& direct);
  // Handles ICMP port unreachable (Network::ReportRefusals): no host listens at UDP port 4791 of
  // `remote`, to which `local` has sent.
  void Refused(Time now, const NetAddress& local, const NetAddress& remote);
  // Reads all doorbells. Returns true when a doorbell was set.
  bool PollDoorbells(Time now);
  // Publishes to the programs whether a doorbell must wake up the host. After PrepareSleep(true)
  // the caller must poll the doorbells once more before it sleeps.
  void PrepareSleep(bool asleep);
  // Publishes the processor on which the host runs, so that threads on it may wait for the host's
  // turn to end (abi/host_turn.h). nullopt: unknown.
  void ShowProcessor(std::optional<uint32_t> processor);
  // Publishes whether threads on other processors may wait for the turn to end, too.
  void OpenTurnToAll(bool is_open);
  // Returns true when the last PollDoorbells found a thread that waits for the turn to end.
  bool IsTurnAwaited() const;
  // As IsTurnAwaited, for threads on the host's processor.
  bool IsTurnAwaitedHere() const;
  // Returns the number of groups with a thread that waits for the turn to end.
  uint32_t groups_awaiting_turn() const;
  // Returns how the threads of each group have waited, of the oldest kMaxGroupWaits groups.
  static constexpr size_t kMaxGroupWaits = 64;
  std::vector<GroupWaits> WaitsOfGroups() const;
  // Ends the turn for waiting threads of the groups concerned. `wake` must wake all threads that
  // wait on this futex.
  void EndTurn(TurnEnd end, const std::function<void(uint32_t& futex)>& wake);
  // Does ready work. Returns true when work is left. Call this until it returns false or other
  // input waits.
  bool Work(Time now);
  // The two halves of Work, as in transport::Engine. The caller may report ended processes between
  // them.
  bool Take(Time now);
  bool Deliver(Time now);
  // Returns true while programs copy on the host's behalf. A program makes no call when a copy
  // ends, so the caller must poll without sleeping.
  bool AwaitsCopies() const;
  // Act as those of transport::Engine.
  bool AwaitsForms() const;
  // Returns how many small SENDs the host has executed between its own programs in all.
  uint64_t direct_sends() const;
  bool HasFilledForms();
  void Expire(Time now);
  // Returns when Expire must be called. May be too early, because timers of answered requests stay
  // armed.
  std::optional<Time> NextDeadline() const;
  // Makes the next NextDeadline exact. A clock that jumps to deadlines calls this before each jump,
  // because time must not jump to a stale timer.
  void DropStaleDeadlines();
  // Returns true while an application must act before a deadline, here or at a peer. There are two
  // cases:
  // - The application must answer a REQ, SIDR_REQ or REP, or a DREQ that the peer still repeats.
  // - A QP waits for the application to post a receive.
  //
  // A jump of time would make a live application miss its deadline. Time must therefore not jump
  // while this is true for any host of a group that communicates. Checks every connection and queue
  // pair.
  bool AwaitsApplication(Time now) const;
  // Returns the time to which time may jump when no work is ready and no packet is in flight. This
  // is the next deadline. Returns nothing without a deadline, or while the host waits for an
  // application.
  std::optional<Time> NextJump(Time now);

  // Returns a process's group. Returns kNone before its Hello.
  GroupId GroupOf(ProcessId process) const;
  size_t processes() const;
  bool stop_requested() const;  // kHostStop was called
  // Returns true after a fault rule has ended the host. The host then does nothing. Its driver must
  // end it as SIGKILL does.
  bool crashed() const;
  // Returns the next process that a fault rule ends (end_program). Call this after each entry into
  // the host. The driver must end the process as SIGKILL does, and report its end, before it sends
  // the reply to the process's call.
  std::optional<ProcessId> TakeEnding();
  std::string StatusJson() const;
  std::string RulesJson() const;  // as kFaultList, without held items; works also after a crash

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu
