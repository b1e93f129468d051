// Runs one Host as a process. Owns the impure parts around the Host, and the loop that delivers
// calls, doorbells, datagrams and time to the Host.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <string>

#include "emulator/host/host.h"
#include "emulator/runtime/call_server.h"
#include "emulator/runtime/clock.h"
#include "emulator/runtime/contention_policy.h"
#include "emulator/runtime/domain_traffic.h"
#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/idle_policy.h"
#include "emulator/runtime/own_processor.h"
#include "emulator/runtime/placement_policy.h"
#include "emulator/runtime/registry.h"
#include "emulator/runtime/runnable_threads.h"
#include "emulator/runtime/time_domain.h"
#include "emulator/runtime/trace_files.h"
#include "emulator/runtime/turn_policy.h"
#include "emulator/runtime/udp_network.h"

namespace rdmaemu::runtime {

class HostProcess {
 public:
  // How long a host waits for its first client.
  static constexpr Duration kFirstClientGrace = std::chrono::seconds(10);
  // How long a host with pending work (a DREQ to retransmit) still runs after its last client
  // detached.
  static constexpr Duration kLinger = std::chrono::seconds(3);
  // How long an awake host goes without a poll of the descriptors, except after a poll that found
  // something: more events are likely then.
  static constexpr Duration kPollAfter = std::chrono::microseconds(4);
  static constexpr int kMaxReceivesPerTurn = 4;  // batches received from one port per turn
  static constexpr Duration kBlockedRetry = std::chrono::milliseconds(1);
  // How long a host sleeps at most that waits for a program's copy (UnfilledForm::mark). A host is
  // awake for IdlePolicy::kAwake, so most copies end before the host sleeps.
  static constexpr Duration kPayloadRetry = std::chrono::microseconds(200);

  // Opens everything that can fail. `lock` is the host's lock, which the process holds until it
  // ends. With `ends_alone` the host ends after its last client detaches.
  static OrMessage<std::unique_ptr<HostProcess>> Start(const Registry& registry,
                                                       const HostOptions& options, UniqueFd lock,
                                                       bool ends_alone);
  ~HostProcess();

  // Runs until a call, SIGTERM, SIGINT or SIGHUP stops the host, or until the host ends by itself.
  void Run();

 private:
  HostProcess(const Registry& registry, const HostOptions& options, UniqueFd lock, bool ends_alone);

  OrMessage<void> Open();
  bool HasRealClock() const;
  OrMessage<void> WatchDescriptors();
  bool Scan(Time real);
  // Shows the programs on which processor the host runs. Lets threads run that wait for it.
  void KeepTurn(bool found_work, Time real);
  // Lets threads on other processors wait for the turn, too, while they would take processors that
  // hosts need.
  void OpenTurn(Time real);
  // Chooses the processor on which the host runs.
  void KeepPlace(Time real);
  bool ExpireIfDue(Time now);
  // Handles ready descriptors and waits at most `timeout` for one. Returns true if it handled an
  // event.
  bool PollDescriptors(Duration timeout);
  // Polls without a wait, in a scan that began at `real`. Also notes which programs have ended.
  bool PollNow(Time real);
  // `now` is the host's time, not real time.
  bool Dispatch(Time now, const epoll_event& event);
  // As CallServer::HearEnds.
  void HearEnds(Time now);
  // Ends the programs that fault rules end.
  void EndPrograms(Time now);
  void TraceCannotEnd(ProcessId process, int error);
  void NoteClients();
  UdpNetwork::Handler ReceiveHandler(Time now);
  // Receives from a UDP port or a multicast group.
  void ReceiveFrom(Time now, EventKind kind, uint32_t number);
  void TraceStart();
  void TraceClock(Time now, const ClockIn& in);
  // Traces that time has jumped since the last call. Call this before the host does anything at a
  // time that it has read again.
  void TraceJump();
  OrMessage<void> OpenClock(const HostConfig& config);
  Time Now() const { return clock_->At(RealNow()); }
  // Reports ICMP port-unreachable errors to the host. Returns true if there was one.
  bool HearRefusals(Time now);
  void Sleep();
  // Returns how long the process may sleep, in real time. Returns zero when a shared time has
  // reached this host's deadline.
  Duration SleepTime();
  // Returns when the host may end by itself, in real time. Returns nullopt while it has
  // connections, or if it does not end by itself.
  std::optional<Time> EndOfLife() const;
  void EndIfUnused(Time real);
  Result<ClockOut> AskClock(const ClockIn& in);
  // Completes a host's status (JSON) with data that the Host does not have: its files and socket
  // drops.
  void CompleteStatus(Reply& reply);
  void ShutDown();
  void Crash(Time now);

  Registry registry_;
  HostOptions options_;
  std::string seed_;  // as SeedText
  std::string scenario_mark_;
  uint64_t scenario_rules_ = 0;
  UniqueFd lock_;
  bool ends_alone_;
  Time started_;             // real
  Time last_client_left_{};  // real
  size_t clients_before_ = 0;
  bool heap_may_shrink_ = false;  // a client has detached since the host last slept
  bool ended_ = false;
  Time polled_at_{};             // real
  bool ends_are_heard_ = false;  // in the last poll
  UniqueFd epoll_fd_, signal_fd_;

  MemfdSegments segments_;
  EventfdCounters counters_;
  ProcessMemory memory_;
  UdpNetwork network_;
  std::unique_ptr<Clock> clock_;
  bool caller_is_next_ = false;   // IdlePolicy::Next
  bool did_work_ = true;          // since the host was idle
  TimeDomain* domain_ = nullptr;  // clock_ if hosts share the time, else nullptr
  Duration jumps_traced_{};       // TimeDomain::jumped at the latest TraceJump
  std::optional<DomainTraffic> counted_network_;
  TraceFiles trace_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<CallServer> server_;
  IdlePolicy policy_;
  TurnPolicy turns_;
  int processor_ = -1;  // as programs see it
  ContentionPolicy contention_;
  RunnableThreads runnable_;
  PlacementPolicy placement_;
  OwnProcessor own_processor_;
};

}  // namespace rdmaemu::runtime
