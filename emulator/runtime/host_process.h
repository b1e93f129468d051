// A host as a process: the parts that are not pure around one Host, and the loop that carries
// calls, doorbells, datagrams and time to it.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <string>

#include "emulator/host/host.h"
#include "emulator/runtime/call_server.h"
#include "emulator/runtime/clock.h"
#include "emulator/runtime/domain_traffic.h"
#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/idle_policy.h"
#include "emulator/runtime/registry.h"
#include "emulator/runtime/time_domain.h"
#include "emulator/runtime/trace_files.h"
#include "emulator/runtime/udp_network.h"

namespace rdmaemu::runtime {

class HostProcess {
 public:
  // A host that no client has used yet waits this long for its first.
  static constexpr Duration kFirstClientGrace = std::chrono::seconds(10);
  // After its last client a host lives on for what is pending (a DREQ to repeat), at most so long.
  static constexpr Duration kLinger = std::chrono::seconds(3);
  // Scans of shared memory between looks at the descriptors while there is work.
  static constexpr int kScansPerPoll = 8;
  static constexpr int kMaxReceivesPerTurn = 4;  // batches of one port
  static constexpr Duration kBlockedRetry = std::chrono::milliseconds(1);

  // Opens all that can fail. `lock` is the host's lock, held until the process has ended; with
  // `ends_alone` the host ends after its last client.
  static OrMessage<std::unique_ptr<HostProcess>> Start(const Registry& registry,
                                                       const HostOptions& options, UniqueFd lock,
                                                       bool ends_alone);
  ~HostProcess();

  // Until the host is stopped (a call, SIGTERM, SIGINT) or ends by itself.
  void Run();

 private:
  HostProcess(const Registry& registry, const HostOptions& options, UniqueFd lock, bool ends_alone);

  OrMessage<void> Open();
  OrMessage<void> WatchDescriptors();
  bool Scan(Time now);
  bool ExpireIfDue(Time now);
  // Handles what is ready; waits for it at most that long. True when something was.
  bool PollDescriptors(Duration timeout);
  // `now`: the host's time, not the real one.
  bool Dispatch(Time now, const epoll_event& event);
  UdpNetwork::Handler ReceiveHandler(Time now);
  // From a UDP port or a multicast group.
  void ReceiveFrom(Time now, EventKind kind, uint32_t number);
  void TraceStart();
  OrMessage<void> OpenClock(const HostConfig& config);
  Time Now() const { return clock_->At(RealNow()); }
  // Tells the host where nobody listens; true when there was something.
  bool HearRefusals(Time now);
  void Sleep();
  // How long it may sleep, in real time; zero when the time that it shares has moved for it.
  Duration SleepTime();
  // When the host may end by itself, in real time; nothing while it has clients.
  std::optional<Time> EndOfLife() const;
  void EndIfUnused(Time real);
  Result<ClockOut> AskClock(const ClockIn& in);
  // Adds to a host's status (JSON) what only its process knows: its files.
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
  bool heap_may_shrink_ = false;  // a client has left since the last sleep
  bool ended_ = false;
  int scans_since_poll_ = 0;
  UniqueFd epoll_fd_, signal_fd_;

  MemfdSegments segments_;
  EventfdCounters counters_;
  ProcessMemory memory_;
  UdpNetwork network_;
  std::unique_ptr<Clock> clock_;
  bool did_work_ = true;          // since it was idle
  TimeDomain* domain_ = nullptr;  // the clock, where hosts share it
  std::optional<DomainTraffic> counted_network_;
  TraceFiles trace_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<CallServer> server_;
  IdlePolicy policy_;
};

}  // namespace rdmaemu::runtime
