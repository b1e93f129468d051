#include "emulator/runtime/host_process.h"

#include <linux/futex.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/host_setup.h"
#include "emulator/trace/seconds.h"

namespace rdmaemu::runtime {
namespace {

using Json = nlohmann::ordered_json;

// Every connection, queue segment and event counter needs a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

timespec ToTimespec(Duration duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

int WaitForEvents(int epoll_fd, std::span<epoll_event> events, Duration timeout) {
  const int count = static_cast<int>(events.size());
  if (timeout <= Duration::zero()) return epoll_wait(epoll_fd, events.data(), count, 0);
  const timespec wait = ToTimespec(timeout);
  const int ready = epoll_pwait2(epoll_fd, events.data(), count, &wait, nullptr);
  // epoll_pwait2 is missing before Linux 5.11, and some seccomp profiles refuse it.
  if (ready >= 0 || (errno != ENOSYS && errno != EPERM)) return ready;
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  return epoll_wait(epoll_fd, events.data(), count,
                    static_cast<int>(std::min<int64_t>(milliseconds, 60'000)));
}

std::string_view TextOf(const Reply& reply) {
  return {reinterpret_cast<const char*>(reply.body.data()), reply.body.size()};
}

void PrintWarning(const std::string& line) { fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace

OrMessage<std::unique_ptr<HostProcess>> HostProcess::Start(const Registry& registry,
                                                           const HostOptions& options,
                                                           UniqueFd lock, bool ends_alone) {
  std::unique_ptr<HostProcess> process(
      new HostProcess(registry, options, std::move(lock), ends_alone));
  if (const OrMessage<void> opened = process->Open(); !opened) {
    return tl::unexpected(opened.error());
  }
  return process;
}

HostProcess::HostProcess(const Registry& registry, const HostOptions& options, UniqueFd lock,
                         bool ends_alone)
    : registry_(registry),
      options_(options),
      lock_(std::move(lock)),
      ends_alone_(ends_alone),
      started_(RealNow()),
      memory_(PrintWarning) {}

HostProcess::~HostProcess() {
  if (!lock_) return;
  // Closing these first lets the next owner of the lock bind the addresses and open the files.
  network_.CloseAll();
  trace_.Close();
  fflush(stderr);
  struct stat log;
  const std::string log_path = registry_.LogPath(options_.name);
  if (stat(log_path.c_str(), &log) == 0 && log.st_size == 0) unlink(log_path.c_str());
  if (server_ != nullptr) unlink(registry_.SocketPath(options_.name).c_str());
  // The process still holds the lock here, so this cannot remove the file of another host.
  unlink(registry_.LockPath(options_.name).c_str());
}

OrMessage<void> HostProcess::Open() {
  RaiseDescriptorLimit();
  OrMessage<HostConfig> config = MakeHostConfig(options_, InterfaceAddresses());
  if (!config) return tl::unexpected(config.error());
  if (const auto lids = CheckLids(*config); !lids) return tl::unexpected(lids.error());
  config->pid = static_cast<uint32_t>(getpid());
  if (!options_.scenario_path.empty()) scenario_mark_ = ScenarioMark(options_.scenario_path);
  scenario_rules_ =
      static_cast<uint64_t>(std::ranges::count_if(config->faults, [this](const fault::Rule& rule) {
        return rule.match.host.empty() || rule.match.host == options_.name;
      }));
  seed_ = SeedText(config->seed);
  // Write the record before the sockets open. Another host that finds a port in use reads there
  // which host uses it.
  Registry::WriteRecord(lock_.get(), {getpid(), options_, seed_, scenario_mark_, scenario_rules_,
                                      /*lives_alone=*/!ends_alone_});
  OrMessage<UdpNetwork> network = OpenNetwork(registry_, options_, *config);
  if (!network) return tl::unexpected(network.error());
  network_ = std::move(*network);
  if (options_.wire == "udp-single") network_.SendPacketsSingly();
  network_.ShareQueues(registry_.directory());
  if (options_.wire.empty() || options_.wire == "shared") network_.ShareRings();
  if (const OrMessage<void> opened = OpenClock(*config); !opened) return opened;
  if (const OrMessage<void> opened = trace_.Open(options_, Now()); !opened) return opened;
  // A trace has each call, and other clocks see when a program calls.
  config->programs_act_alone =
      config->payload_shortcuts && HasRealClock() && !trace_.wants_records();
  TraceStart();
  if (const OrMessage<void> written = trace_.Check(); !written) return written;
  Network& network_of_host = counted_network_ ? static_cast<Network&>(*counted_network_) : network_;
  host_ = std::make_unique<Host>(
      std::move(*config),
      Host::Environment{memory_, segments_, counters_, network_of_host, trace_});
  return WatchDescriptors();
}

bool HostProcess::HasRealClock() const {
  return options_.clock.empty() || options_.clock == "real";
}

// The trace shows only a seed that the user gave. A random seed stays secret, because memory keys
// are derived from it.
void HostProcess::TraceStart() {
  if (!trace_.wants_records()) return;
  trace::Record record{Now(), ProcessId::kNone, "host", {}, "START", {}};
  record.fields.push_back({"clock", options_.clock.empty() ? "real" : options_.clock});
  if (!options_.seed.empty()) record.fields.push_back({"seed", seed_});
  if (HasRealClock()) {
    std::string time_0;
    trace::AppendSeconds(WallClockOffset(Now()), time_0);
    record.fields.push_back({"time_0", time_0});
  }
  trace_.Write(record);
}

OrMessage<void> HostProcess::OpenClock(const HostConfig& config) {
  using Mode = ClockOption::Mode;
  const OrMessage<ClockOption> option = ParseClockOption(options_.clock);
  if (!option) return tl::unexpected(option.error());
  if (option->mode == Mode::kReal) {
    clock_ = std::make_unique<RealClock>();
    return {};
  }
  if (option->mode == Mode::kScaled) {
    clock_ = std::make_unique<ScaledClock>(option->parts_per_million);
    return {};
  }
  std::vector<NetAddress> on_wire;
  for (const DeviceConfig& device : config.devices) {
    for (const HostAddress& address : device.addresses) {
      if (address.on_wire) on_wire.push_back(address.address);
    }
  }
  const auto kind = option->mode == Mode::kVirtual  ? TimeDomain::Kind::kVirtual
                    : option->mode == Mode::kManual ? TimeDomain::Kind::kManual
                                                    : TimeDomain::Kind::kProgram;
  auto domain = TimeDomain::Join(registry_, kind, options_.name, on_wire);
  if (!domain) return tl::unexpected(domain.error());
  domain_ = domain->get();
  jumps_traced_ = domain_->jumped();
  clock_ = std::move(*domain);
  counted_network_.emplace(network_, *domain_);
  if (kind != TimeDomain::Kind::kVirtual) memory_.CopyAlone();
  return {};
}

OrMessage<void> HostProcess::WatchDescriptors() {
  const auto failed = [](const char* what, int error) {
    return tl::unexpected(std::string("cannot ") + what + ": " + std::strerror(error) +
                          "; is a limit of this system reached (ulimit -n)?");
  };
  epoll_fd_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_fd_) return failed("make an epoll descriptor", errno);

  signal(SIGPIPE, SIG_IGN);
  sigset_t stops;
  sigemptyset(&stops);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&stops, number);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
  signal_fd_.Reset(signalfd(-1, &stops, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_event event = EventFor(EventKind::kSignal, 0);
  if (!signal_fd_ || epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, signal_fd_.get(), &event) != 0) {
    return failed("watch for signals", errno);
  }
  if (const Status watched = network_.Watch(epoll_fd_.get()); !watched) {
    return failed("watch a UDP port", watched.error().code);
  }
  event = EventFor(EventKind::kWake, 0);
  if (domain_ != nullptr &&
      epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, domain_->wake_fd(), &event) != 0) {
    return failed("watch for other hosts", errno);
  }
  server_ = std::make_unique<CallServer>(
      epoll_fd_.get(),
      CallServer::Parts{*host_, memory_, segments_, counters_,
                        [this](const ClockIn& in) { return AskClock(in); },
                        [this](Reply& reply) { CompleteStatus(reply); },
                        [this](ProcessId process, int error) { TraceCannotEnd(process, error); }});
  const std::string path = registry_.SocketPath(options_.name);
  unlink(path.c_str());  // of a dead host; a live host would hold the lock
  unlink(registry_.CrashPath(options_.name).c_str());
  const Status listening = server_->Listen(path);
  if (!listening) return failed(("listen on " + path).c_str(), listening.error().code);
  return {};
}

void HostProcess::Run() {
  while (!ended_) {
    const Time real = RealNow();
    const bool found = Scan(real);
    did_work_ |= found;
    KeepTurn(found, real);
    // A copy takes as long as a wake-up. Meanwhile the other host needs this processor.
    if (!found && host_->AwaitsForms()) {
      Sleep();
      continue;
    }
    const IdlePolicy::Step step = policy_.Next(found, real, caller_is_next_);
    const bool awaits_copies = host_->AwaitsCopies();
    if (awaits_copies) policy_.DiscountWait();
    switch (step) {
      case IdlePolicy::Step::kScan:
        break;
      case IdlePolicy::Step::kYield:
        sched_yield();
        break;
      case IdlePolicy::Step::kSleep:
        if (awaits_copies) {
          sched_yield();
          break;
        }
        EndIfUnused(real);
        if (!ended_) Sleep();
        break;
    }
  }
  ShutDown();
}

void HostProcess::KeepTurn(bool found_work, Time real) {
  if (const int processor = sched_getcpu(); processor != processor_) {
    processor_ = processor;
    host_->ShowProcessor(processor < 0 ? std::nullopt
                                       : std::optional(static_cast<uint32_t>(processor)));
  }
  if (placement_.IsSampleDue(real)) KeepPlace(real);
  if (contention_.IsSampleDue(real)) OpenTurn(real);
  if (!host_->IsTurnAwaited()) return turns_.NotAwaited(found_work, real);
  using enum TurnPolicy::Awaits;
  const TurnPolicy::Awaits awaits = host_->AwaitsForms()    ? kForms
                                    : host_->AwaitsCopies() ? kCopies
                                                            : kNothing;
  const auto end = turns_.Next(found_work, awaits, real, host_->IsTurnAwaitedHere());
  if (!end) return;
  host_->EndTurn(*end, [](uint32_t& futex) {
    syscall(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  });
}

void HostProcess::KeepPlace(Time real) {
  const SocketBytes sockets = network_.socket_bytes();
  const auto own = static_cast<uint32_t>(processor_ + 1);
  uint32_t processor =
      placement_.Sample(real, host_->WaitsOfGroups(), own, own_processor_.Other(own),
                        sockets.sent + network_.sent_by_rings(),
                        sockets.received + network_.received_by_rings(), network_.PeersPoller());
  network_.ShowPoller(placement_.poller());
  policy_.StayAwake(domain_ != nullptr || placement_.exceeds_conversation());
  const uint32_t allowed = own_processor_.allowed();
  policy_.HasNoPeers(!placement_.works_for_peers() && allowed > 1);
  if (allowed != PlacementPolicy::kProcessors ||
      (processor != 0 && runnable_.Count() > PlacementPolicy::kMostRunnable)) {
    processor = 0;
  }
  own_processor_.Stay(processor);
}

// A group whose thread waits would have one more runnable thread if it did not.
void HostProcess::OpenTurn(Time real) {
  const auto count_waits_here = [&] {
    uint32_t waits = 0;
    for (const GroupWaits& group : host_->WaitsOfGroups()) {
      if (group.processor != static_cast<uint32_t>(processor_ + 1)) continue;
      waits += group.calls + group.vain_polls + group.copies;
    }
    return waits;
  };
  host_->OpenTurnToAll(contention_.Sample(
      real, {network_.socket_bytes(), host_->direct_sends()}, runnable_.processors(),
      count_waits_here, [&] { return runnable_.Count() + host_->groups_awaiting_turn(); }));
}

bool HostProcess::Scan(Time real) {
  const Time now = clock_->At(real);
  TraceJump();
  if (host_->crashed()) Crash(now);
  bool found = host_->PollDoorbells(now);
  EndPrograms(now);
  CallPages::Served served;
  if (server_->FindAskedPages()) {
    // Programs that have ended must be known before the calls are executed.
    if (real - polled_at_ >= CallServer::kLongestUnheard) found |= PollNow(real);
    served = server_->ServePages(now);
  }
  if (host_->Take(now)) HearEnds(now);
  found |= host_->Deliver(now);
  EndPrograms(now);
  found |= ExpireIfDue(now);
  found |= network_.ReceiveShared(
      ReceiveHandler(now), [this, now](const wire::UdpFlow& flow, std::span<const std::byte> form,
                                       const std::shared_ptr<DirectForm>& direct) {
        return host_->Direct(now, flow, form, direct);
      });
  network_.Flush();
  caller_is_next_ = served.awaits_processor && !found;
  found |= served.any;
  // Polling the descriptors is a system call and costs more than the rest of an empty scan.
  if (real - polled_at_ < kPollAfter || !PollNow(real)) return found;
  caller_is_next_ = false;
  return true;
}

bool HostProcess::PollNow(Time real) {
  polled_at_ = real;
  ends_are_heard_ = false;
  const bool found = PollDescriptors(Duration::zero());
  if (!ends_are_heard_) server_->NoteNoEnds(real);
  if (found) polled_at_ = {};
  return found;
}

bool HostProcess::ExpireIfDue(Time now) {
  const std::optional<Time> deadline = host_->NextDeadline();
  if (!deadline || *deadline > now) return false;
  host_->Expire(now);
  EndPrograms(now);
  did_work_ = true;
  server_->SendLate(now);
  return true;
}

bool HostProcess::PollDescriptors(Duration timeout) {
  std::array<epoll_event, 64> events;
  const int ready = WaitForEvents(epoll_fd_.get(), events, timeout);
  if (domain_ != nullptr) {
    domain_->BecomeBusy();
    TraceJump();
    ExpireIfDue(Now());  // time may have jumped during the sleep; the deadline precedes the events
  }
  bool found = false;
  for (int i = 0; i < ready; i++) found |= Dispatch(Now(), events[static_cast<size_t>(i)]);
  did_work_ |= found;
  if (host_->stop_requested()) ended_ = true;
  return found;
}

bool HostProcess::Dispatch(Time now, const epoll_event& event) {
  const uint32_t number = NumberOf(event);
  did_work_ |= KindOf(event) != EventKind::kWake;
  switch (KindOf(event)) {
    case EventKind::kListener:
      server_->Accept(now);
      break;
    case EventKind::kConnection:
      server_->Serve(now, number);
      break;
    case EventKind::kEnds:
      ends_are_heard_ = true;
      server_->HandleEnds(now);
      break;
    case EventKind::kClientExit:  // in the epoll descriptor of server_
      break;
    case EventKind::kDoorbell:
      server_->ServePage(now, number);
      return false;
    case EventKind::kUdpPort:
    case EventKind::kGroupPort:
      ReceiveFrom(now, KindOf(event), number);
      if ((event.events & EPOLLERR) != 0) HearRefusals(now);
      break;
    case EventKind::kRings:
      network_.TakeRingWake();
      return false;
    case EventKind::kSignal:
      ended_ = true;
      break;
    case EventKind::kWake:
      domain_->TakeWake();
      return false;
  }
  NoteClients();
  return true;
}

void HostProcess::NoteClients() {
  if (clients_before_ > 0 && server_->clients() == 0) last_client_left_ = RealNow();
  if (server_->clients() < clients_before_) heap_may_shrink_ = true;
  clients_before_ = server_->clients();
}

void HostProcess::HearEnds(Time now) {
  if (!server_->HearEnds(now)) return;
  did_work_ = true;
  NoteClients();
}

void HostProcess::EndPrograms(Time now) {
  if (!server_->EndPrograms(now)) return;
  did_work_ = true;
  NoteClients();
}

void HostProcess::TraceCannotEnd(ProcessId process, int error) {
  if (!trace_.wants_records()) return;
  trace::Record record{Now(), process, "fault.failed", {}, "end_program", {}};
  record.fields.push_back({"errno", int64_t{error}});
  trace_.Write(record);
}

UdpNetwork::Handler HostProcess::ReceiveHandler(Time now) {
  return
      [this, now](const wire::UdpFlow& flow, WireForm form,
                  std::span<const std::span<const std::byte>> udp_payloads, const NetAddress& at) {
        if (domain_ != nullptr && !flow.destination.IsMulticast()) {
          domain_->NoteReceived(flow.source, udp_payloads.size());
        }
        HearEnds(now);
        host_->Receive(now, flow, udp_payloads, &at, form);
        EndPrograms(now);
      };
}

void HostProcess::ReceiveFrom(Time now, EventKind kind, uint32_t number) {
  const auto receive =
      kind == EventKind::kUdpPort ? &UdpNetwork::ReceivePort : &UdpNetwork::ReceiveGroup;
  const UdpNetwork::Handler handler = ReceiveHandler(now);
  for (int i = 0; i < kMaxReceivesPerTurn; i++) {
    if (!(network_.*receive)(number, handler)) break;
  }
}

bool HostProcess::HearRefusals(Time now) {
  const std::vector<UdpNetwork::Refused> refused = network_.TakeRefused();
  for (const UdpNetwork::Refused& each : refused) host_->Refused(now, each.local, each.remote);
  return !refused.empty();
}

void HostProcess::Sleep() {
  host_->PrepareSleep(true);
  network_.PrepareRingsForSleep(true);
  const bool awaits_payload = network_.AwaitsPayload();
  // A doorbell may have rung before the programs saw that they must wake up the host. Refusals must
  // be handled before time may jump over them.
  if (!host_->PollDoorbells(Now()) && !host_->IsTurnAwaited() && !host_->HasFilledForms() &&
      !server_->StopWatchingPages() && !HearRefusals(Now()) && !network_.HasUnreadInRings()) {
    trace_.Flush();
    // Return the memory of destroyed objects to the system now, because the host has no work.
    if (std::exchange(heap_may_shrink_, false)) malloc_trim(0);
    const Duration longest = SleepTime();
    PollDescriptors(awaits_payload ? std::min(longest, kPayloadRetry) : longest);
  }
  host_->PrepareSleep(false);
  network_.PrepareRingsForSleep(false);
  policy_.Woke();
}

Duration HostProcess::SleepTime() {
  const Time real = RealNow(), now = clock_->At(real);
  Duration sleep = std::chrono::hours(1);
  if (domain_ != nullptr) host_->DropStaleDeadlines();
  const std::optional<Time> deadline = host_->NextDeadline();
  if (deadline) sleep = std::min(sleep, clock_->RealTime(*deadline - now));
  if (const auto end = EndOfLife()) sleep = std::min(sleep, *end - real);
  if (network_.blocked()) return std::min(sleep, kBlockedRetry);
  if (domain_ == nullptr) return sleep;
  const TimeDomain::Answer answer = domain_->BecomeIdle(
      real, {deadline, host_->AwaitsApplication(now), std::exchange(did_work_, false)});
  if (const std::optional<std::string> damage = domain_->TakeDamage()) PrintWarning(*damage);
  return answer.is_due ? Duration::zero() : std::min(sleep, answer.look_again);
}

std::optional<Time> HostProcess::EndOfLife() const {
  // Connections that are not clients also count, so that a request for the status gets its reply.
  if (!ends_alone_ || server_->connections() > 0) return std::nullopt;
  if (!server_->ever_had_client()) return started_ + kFirstClientGrace;
  if (!host_->NextDeadline()) return last_client_left_;
  return last_client_left_ + kLinger;
}

void HostProcess::EndIfUnused(Time real) {
  const std::optional<Time> end = EndOfLife();
  if (end && real >= *end && server_->Retire(clock_->At(real))) ended_ = true;
}

// Other hosts of the same time domain get no record. Their time moves, too.
void HostProcess::TraceClock(Time now, const ClockIn& in) {
  if (!trace_.wants_records()) return;
  const bool is_advance = ClockAction{in.action} == ClockAction::kAdvance;
  trace::Record record{
      now, ProcessId::kNone, "clock", {}, is_advance ? "advance" : "run-until-idle", {}};
  if (is_advance) record.fields.push_back({"by_ns", in.advance_ns});
  trace_.Write(record);
}

void HostProcess::TraceJump() {
  if (domain_ == nullptr || domain_->jumped() <= jumps_traced_) return;
  const Duration by = domain_->jumped() - jumps_traced_;
  jumps_traced_ = domain_->jumped();
  if (!trace_.wants_records()) return;
  trace_.Write({Now(), ProcessId::kNone, "clock", {}, "jump", {{"by_ns", int64_t{by.count()}}}});
}

Result<ClockOut> HostProcess::AskClock(const ClockIn& in) {
  const Time before = Now();
  Status done;
  switch (ClockAction{in.action}) {
    case ClockAction::kShow:
      break;
    case ClockAction::kAdvance:
      done = domain_ == nullptr ? Fail(EOPNOTSUPP) : domain_->Advance(Duration(in.advance_ns));
      break;
    case ClockAction::kRunUntilIdle:
      done = domain_ == nullptr ? Fail(EOPNOTSUPP) : domain_->RunUntilIdle();
      break;
    default:
      done = Fail(EINVAL);
  }
  if (!done) return tl::make_unexpected(done.error());
  if (ClockAction{in.action} != ClockAction::kShow) TraceClock(before, in);
  trace_.Flush();  // a client that reads the clock finds all earlier records in the trace
  const Time now = Now();
  ClockOut out{};
  const std::string mode = options_.clock.empty() ? "real" : options_.clock;
  mode.copy(out.mode, sizeof out.mode - 1);
  out.now_ns = now.time_since_epoch().count();
  out.moving = domain_ != nullptr && domain_->IsMoving() ? 1 : 0;
  out.awaits_application = host_->AwaitsApplication(now) ? 1 : 0;
  return out;
}

void HostProcess::CompleteStatus(Reply& reply) {
  trace_.Flush();
  Json status = Json::parse(TextOf(reply), nullptr, /*allow_exceptions=*/false);
  if (reply.error != 0 || !status.is_object()) return;
  Json files = Json::array();
  for (const TraceFiles::State& file : trace_.States()) {
    files.push_back({{"option", file.option}, {"path", file.path}, {"error", file.error}});
  }
  status["files"] = std::move(files);
  status["counters"]["dropped"]["socket_full"] = network_.queue_drops();
  const ProcessMemory::SharedCounts shared = memory_.shared_counts();
  status["counters"]["shared_buffers"] = {{"processes", shared.processes},
                                          {"ordinary", shared.ordinary_buffers}};
  const std::string text = status.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  reply.body.assign(bytes);
}

// Ends the process because of a fault rule. Sends late replies and writes the trace first, because
// a client may wait for the rule.
void HostProcess::Crash(Time now) {
  server_->SendLate(now);
  trace_.Flush();
  registry_.WriteCrash(options_.name, host_->RulesJson());
  PrintWarning("a fault rule with crash = true ended host " + options_.name);
  fflush(stderr);
  kill(getpid(), SIGKILL);
}

void HostProcess::ShutDown() {
  const Time now = Now();
  // Drop all clients, so that peers receive a DREQ as after an orderly shutdown.
  server_->DropAll(now);
  host_->Work(now);
  network_.FlushAll();
  trace_.Flush();
}

}  // namespace rdmaemu::runtime
