#include "emulator/host/host.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "emulator/base/random.h"
#include "emulator/cm/cm.h"
#include "emulator/host/calls/struct_reply.h"
#include "emulator/host/calls/text_reply.h"
#include "emulator/host/cm_calls.h"
#include "emulator/host/cm_queue_pairs.h"
#include "emulator/host/cm_transport.h"
#include "emulator/host/connection_ends.h"
#include "emulator/host/device_calls.h"
#include "emulator/host/devices.h"
#include "emulator/host/doorbells.h"
#include "emulator/host/ended_programs.h"
#include "emulator/host/event_offers.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/control.h"
#include "emulator/host/faults/deeds.h"
#include "emulator/host/faults/doors.h"
#include "emulator/host/faults/memory.h"
#include "emulator/host/faults/words.h"
#include "emulator/host/files/file_calls.h"
#include "emulator/host/files/state.h"
#include "emulator/host/files/sysfs.h"
#include "emulator/host/joining.h"
#include "emulator/host/multicast_groups.h"
#include "emulator/host/pause.h"
#include "emulator/host/processes.h"
#include "emulator/host/program_trace.h"
#include "emulator/host/reception.h"
#include "emulator/host/sequence.h"
#include "emulator/host/status.h"
#include "emulator/host/turns.h"
#include "emulator/host/verbs_calls.h"
#include "emulator/transport/engine.h"
#include "emulator/verbs/verbs.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {
class Host::Impl final : public transport::QpEndListener, public cm::EventDoor {
 public:
  Impl(HostConfig config, Environment environment)
      : config_(std::move(config)),
        network_(environment.network),
        trace_(environment.trace),
        random_(config_.seed),
        faults_(config_.seed, config_.name, environment.trace),
        fabric_(environment.network, environment.trace, config_.payload_shortcuts),
        memory_(environment.memory, faults_, verbs_, processes_),
        verbs_({environment.shared_memory, environment.counters, memory_, random_,
                environment.trace, config_.ids, config_.payload_shortcuts}),
        doors_{LinkFaults(faults_),
               CallFaults(faults_, verbs_, processes_,
                          [this](Time now, ProcessId process, std::span<const std::byte> message) {
                            return DoCall(now, process, message);
                          }),
               CmFaults(
                   faults_, doors_.links,
                   [this](Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
                     cm_transport_.SendMessage(now, route, message);
                   },
                   [this](Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
                     cm_transport_.CountReceived(route, message);
                     cm_.Receive(now, route, message);
                   },
                   [this](const NetAddress& local) {
                     const cm::CmDevice* const device = addresses_.DeviceOf(local);
                     return device == nullptr ? std::string() : device->name;
                   }),
               CompletionFaults(faults_, verbs_, processes_),
               AsyncFaults(faults_, verbs_, processes_),
               PacketFaults(
                   faults_, doors_.links, verbs_, processes_, fabric_,
                   [this](Time now, const PacketFaults::Kept& kept, const wire::Packet& packet) {
                     reception_.ReceiveKept(now, kept, packet);
                   })},
        engine_doors_(faults_, doors_.completions, doors_.packets),
        engine_({verbs_, memory_, random_, fabric_, environment.trace, this, &engine_doors_,
                 &environment.memory, [this] { return MayActAlone(); },
                 &environment.shared_memory}),
        cm_transport_(addresses_, fabric_, doors_.cm),
        groups_(addresses_, fabric_, verbs_),
        queue_pairs_(verbs_),
        devices_(verbs_, environment.network, addresses_),
        deeds_(devices_, verbs_, environment.trace),
        fault_control_(faults_, {[this](Time now, const fault::Release& release) {
                                   doors_.Release(now, release);
                                   cm_.LetGo(release);
                                 },
                                 [this](fault::HeldCounts& held) {
                                   doors_.CountHeld(held);
                                   cm_.CountHeld(held);
                                 }}),
        cm_({addresses_, cm_transport_, groups_, queue_pairs_}, environment.counters, random_,
            environment.trace, config_.ids),
        cm_calls_(cm_, doors_.cm, processes_),
        offers_(cm_, cm_calls_, processes_, [this] { return MayActAlone(); }),
        reception_({faults_, doors_, fabric_, verbs_, engine_, cm_transport_, pause_, network_,
                    environment.shared_memory, [this] { return StandsStill(); },
                    [this](Time now) { DoDeeds(now); }}) {
    verbs_.SetTransport(&engine_);
    environment.network.BeforeWaiting([this] { engine_.FinishForms(); });
    verbs_.SetAsyncEventDoor(&doors_.async);
    devices_.SetCm(&cm_);
    cm_.SetEventDoor(this);
    cm_.SetEventOffers(&offers_);
    if (!config_.ends_programs) faults_.SetRefusal(WhyNotEmbedded);
    faults_.SetFindPrograms(
        [this](fault::EndProgram::Which which, ProcessId process, const FaultTarget& target) {
          return ConnectionEnds(verbs_, cm_, processes_).Find(which, process, target);
        });
    addresses_.SetSilentNets(config_.silent_nets);
    addresses_.SetGateways(config_.gateways);
    for (const DeviceConfig& device : config_.devices) devices_.Start(device);
    for (fault::Rule& rule : config_.faults) (void)faults_.Add(std::move(rule));
  }

  ~Impl() override {
    engine_.EndPermits();
    network_.BeforeWaiting(nullptr);
  }

  ProcessId Attach(Time now, const ProcessInfo& info) {
    faults_.SetNow(now);
    return processes_.Attach(info);
  }

  void Detach(Time now, ProcessId process) {
    faults_.SetNow(now);
    AbandonCalls(process);
    offers_.Forget(process);
    program_trace_.End(now, process);
    const GroupId group = GroupOf(process);
    verbs_.ProcessEnded(group, process);
    joining_.FreePage(group, process);
    const std::optional<GroupId> gone = processes_.Detach(process);
    if (!gone) return EndOrphans(now, group);
    // Remove the ids first, so that their messages to peers do not depend on whether the QPs still
    // exist.
    cm_.GroupGone(now, *gone);
    verbs_.GroupGone(now, *gone);
    doors_.ForgetGone();
    DoDeeds(now);
  }

  void ProcessEnded(Time now, ProcessId process) {
    faults_.SetNow(now);
    AbandonCalls(process);
    offers_.Forget(process);
    program_trace_.End(now, process);
    const GroupId group = GroupOf(process);
    verbs_.ProcessEnded(group, process);
    processes_.End(process);
    EndOrphans(now, group);
  }

  Reply Call(Time now, ProcessId process, std::span<const std::byte> message, uint32_t number = 0) {
    CallHeader header;
    const ConnectedProcess* caller = processes_.Find(process);
    if (caller == nullptr || message.size() < sizeof header || message.size() > kMaxCallBytes) {
      return FailedReply(EINVAL);
    }
    std::memcpy(&header, message.data(), sizeof header);
    if (header.size != message.size() - sizeof header) return FailedReply(EINVAL);
    if (crashed_) return FailedReply(EIO);
    faults_.SetNow(now);
    offers_.Settle();
    if (EndsActingAlone(CallOp{header.op})) {
      offers_.WithdrawAll();
      engine_.EndPermits();
    }
    if (ReadsCounters(CallOp{header.op})) engine_.CountExecuted();
    if (header.op == static_cast<uint32_t>(CallOp::kSequence)) {
      return RunCalls(now, process, caller->group, message.subspan(sizeof header));
    }
    return CallAlone(now, process, caller->group, header.op, message, number);
  }

  void AbandonCalls(ProcessId process) {
    doors_.calls.Forget(process);
    faults_.Forget(process);
  }

  std::optional<LateReply> TakeLateReply() {
    if (std::optional<CallFaults::Late> late = doors_.calls.TakeLate()) {
      if (late->op != 0) {
        program_trace_.Call(faults_.now(), late->reply.process, late->op, late->reply.reply.error);
      }
      return std::move(late->reply);
    }
    return fault_control_.TakeLate();
  }

  // A paused host ignores the refusal. CM retransmits its request and is refused again.
  void Refused(Time now, const NetAddress& local, const NetAddress& remote) {
    offers_.Settle();
    if (!StandsStill()) cm_.Refused(now, local, remote);
  }

  void Receive(Time now, const wire::UdpFlow& flow,
               std::span<const std::span<const std::byte>> udp_payloads, const NetAddress* at,
               WireForm form = WireForm::kDatagrams) {
    offers_.Settle();
    reception_.Receive(now, flow, udp_payloads, at, form);
  }

  Naming Direct(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                const std::shared_ptr<DirectForm>& direct) {
    return reception_.Direct(now, flow, form, direct);
  }

  bool PollDoorbells(Time now) {
    turns_.BeginCount();
    if (StandsStill()) return false;
    faults_.SetNow(now);
    bool found = false;
    for (auto& [group, members] : processes_.groups()) {
      if (members.doorbells == nullptr) continue;
      found |= PollGroup(now, group, *members.doorbells);
      turns_.Count(members);
    }
    DoDeeds(now);
    return found;
  }

  void PrepareSleep(bool asleep) {
    for (auto& [group, members] : processes_.groups()) {
      if (members.doorbells == nullptr) continue;
      std::atomic_ref(members.doorbells->host_asleep).store(asleep ? 1 : 0);
    }
  }

  HostTurns& turns() { return turns_; }

  bool Take(Time now) {
    if (StandsStill()) return false;
    faults_.SetNow(now);
    return engine_.Take(now);
  }

  bool Deliver(Time now) {
    if (StandsStill()) return false;
    faults_.SetNow(now);
    offers_.Settle();
    bool engine_left = engine_.Deliver(now);
    if (doors_.packets.IsDue(now)) {
      doors_.packets.Expire(now);
      engine_left = true;
    }
    const bool messages_left =
        fabric_.DeliverLocal([&](const cm::CmRoute& route, const wire::CmMessage& message) {
          (void)doors_.cm.Pass(now, fault::Direction::kReceive, route, message);
        });
    DoDeeds(now);
    return engine_left || messages_left || faults_.HasDeeds();
  }

  void Expire(Time now) {
    if (crashed_ || (pause_.active() && now < *pause_.until())) return;
    offers_.Settle();
    for (const HostPause::Datagram& each : pause_.End()) {
      const std::span<const std::byte> bytes = each.bytes;
      Receive(now, each.flow, {&bytes, 1}, each.at ? &*each.at : nullptr);
    }
    faults_.SetNow(now);
    faults_.Expire(now);
    doors_.Expire(now);
    deeds_.Expire(now);
    engine_.Expire(now);
    cm_.Expire(now);
    DoDeeds(now);
  }

  std::optional<Time> NextDeadline() const {
    if (crashed_) return std::nullopt;
    if (pause_.active()) return faults_.AnyWaitEnded() ? faults_.now() : pause_.until();
    Earliest next;
    next.Note(doors_.NextDeadline());
    next.Note(engine_.NextDeadline());
    next.Note(cm_.NextDeadline());
    next.Note(faults_.NextDeadline());
    next.Note(deeds_.NextDeadline());
    return next.deadline();
  }

  void DropStaleDeadlines() { engine_.DropStaleDeadlines(); }
  bool AwaitsCopies() const { return !StandsStill() && engine_.AwaitsCopies(); }
  bool AwaitsForms() const { return !StandsStill() && engine_.AwaitsForms(); }
  uint64_t direct_sends() const { return engine_.direct_sends(); }
  bool HasFilledForms() { return !StandsStill() && engine_.HasFilledForms(); }
  bool AwaitsApplication(Time now) const {
    // While a barrier holds something, the host waits for the test to release it.
    return doors_.holds() || cm_.HoldsEvents() || engine_.AwaitsApplication() ||
           cm_.AwaitsApplication(now);
  }

  GroupId GroupOf(ProcessId process) const {
    const ConnectedProcess* found = processes_.Find(process);
    return found == nullptr ? GroupId::kNone : found->group;
  }
  size_t processes() const { return processes_.all().size(); }
  bool stop_requested() const { return stop_requested_; }
  bool crashed() const { return crashed_; }

  std::optional<ProcessId> TakeEnding() { return ended_programs_.Take(); }

  std::string StatusJson() const {
    return rdmaemu::StatusJson({config_, devices_, processes_, verbs_, cm_, engine_.counters(),
                                fabric_.counters(), faults_.counters()});
  }

  std::string RulesJson() const { return faults_.ListText(); }

  void QpEnded(Time now, QueuePair& qp) override { cm_.QpEnded(now, qp.qpn); }

  cm::EventWait WaitOf(GroupId group, uint32_t event) override {
    return doors_.cm.AtQueue(faults_.now(), processes_.ProgramOf(group), event);
  }

 private:
  // Call this after a process of the group has ended, or another one was added to it.
  void EndOrphans(Time now, GroupId group) {
    if (group == GroupId::kNone) return;
    const Survivors survivors = processes_.SurvivorsOf(group);
    cm_.EndOrphans(now, group, survivors);
    verbs_.EndOrphans(now, group, survivors);
    doors_.ForgetGone();
    DoDeeds(now);
  }
  bool StandsStill() const { return crashed_ || pause_.active(); }

  // A rule must see each call, post and packet at its time.
  bool MayActAlone() const {
    return config_.programs_act_alone && !faults_.HasRules() && !StandsStill();
  }
  // Rules must see what programs do, and a changed device changes the replies in an offer.
  static bool EndsActingAlone(CallOp op) {
    return op == CallOp::kFaultAdd || op == CallOp::kChangeDevice || op == CallOp::kHostStop;
  }
  static bool ReadsCounters(CallOp op) {
    return op == CallOp::kHostStatus || op == CallOp::kReadFile;
  }

  // Executes deeds. One deed may make another rule fire, so this executes a limited number. The
  // remaining deeds wait for the next entry into the host.
  void DoDeeds(Time now) {
    for (int i = 0; i < kMaxDeedsAtOnce && faults_.HasDeeds(); i++) {
      std::visit([&](const auto& what) { Do(now, what); }, faults_.TakeDeed());
    }
  }
  void Do(Time now, const FailQpDeed& deed) {
    verbs_.FailQp(now, deed.target.group, deed.target.qp);
    doors_.completions.Failed(deed.target.qp);
  }
  void Do(Time now, const ObjectDeed& deed) {
    if (const auto* const pause = std::get_if<fault::PauseHost>(&deed.what)) {
      engine_.StopCopies();
      return pause_.Begin(now + pause->time);
    }
    if (std::holds_alternative<fault::CrashHost>(deed.what)) {
      engine_.StopCopies();
      crashed_ = true;
    }
    deeds_.Do(now, deed);
  }

  void Do(Time now, const EndProgramDeed& deed) { ended_programs_.Do(now, deed); }

  // Executes one call, whose header is valid.
  Reply CallAlone(Time now, ProcessId process, GroupId group, uint32_t op,
                  std::span<const std::byte> message, uint32_t number) {
    // Send posts before rules decide about the call. rdma_rxe's device has sent them long before.
    if (HasTrait(op, kEndsWhatPostsNeed)) SendPosted(now, group);
    if (HasTrait(op, kCountsCompletions)) CompletePosted(now, process, group);
    if (crashed_) return FailedReply(EIO);  // a rule at one of these posts ended the host
    if (pause_.active() && CanFail(op)) {
      return doors_.calls.Postpone(now, {*pause_.until() - now}, process, number, message);
    }
    Reply reply = doors_.calls.Call(now, process, number, group, op, message);
    if (!reply.is_late) program_trace_.Call(now, process, op, reply.error);
    DoDeeds(now);
    return reply;
  }

  // Executes a sequence of calls, each through the doors. A rule may delay or fail each call, or
  // change an event, so there are no sequences while there are rules.
  Reply RunCalls(Time now, ProcessId process, GroupId group, std::span<const std::byte> body) {
    if (group == GroupId::kNone) return FailedReply(EPROTO);
    if (MayActAlone()) offers_.Remember(process, body);
    const auto may_call = [this] {
      return !faults_.HasRules() && !StandsStill() && !faults_.HasDeeds();
    };
    const auto call = [&](CallOp op, std::span<const std::byte> message) {
      return CallAlone(now, process, group, static_cast<uint32_t>(op), message, 0);
    };
    const auto find_id = [&](uint32_t channel, uint32_t id) {
      return cm_.FindId(group, channel, id);
    };
    return RunSequence(body, {may_call, std::ref(call), std::ref(find_id)});
  }

  // The caller has checked the process and the header.
  Reply DoCall(Time now, ProcessId process, std::span<const std::byte> message) {
    CallHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    const ConnectedProcess& caller = *processes_.Find(process);
    verbs_.SetMaker({process, caller.forks()});
    Reply reply = Dispatch(now, process, caller, CallOp{header.op}, message.subspan(sizeof header));
    if (HasTrait(header.op, kEndsObjects)) doors_.ForgetGone();
    return reply;
  }

  Reply Dispatch(Time now, ProcessId process, const ConnectedProcess& caller, CallOp op,
                 std::span<const std::byte> body) {
    switch (op) {
      case CallOp::kHello:
        return Hello(now, process, body);
      case CallOp::kHostStatus:
        return StatusReply();
      case CallOp::kHostStop:
        stop_requested_ = true;
        return Reply{};
      case CallOp::kClock:  // the host's driver controls time
        return FailedReply(EOPNOTSUPP);
      case CallOp::kChangeDevice:
        return ChangeDevice(devices_, now, body);
      case CallOp::kFaultAdd:
      case CallOp::kFaultRemove:
      case CallOp::kFaultClear:
      case CallOp::kFaultList:
      case CallOp::kFaultRelease:
      case CallOp::kFaultWait: {
        Reply reply = fault_control_.Call(now, process, op, body);
        ShowWatchedCalls();
        return reply;
      }
      case CallOp::kReadFile:
        return files::ReadFile(Files(), body);
      default:
        break;
    }
    if (caller.group == GroupId::kNone) return FailedReply(EPROTO);  // no Hello yet
    if (op == CallOp::kMapSegment) return joining_.MapSegment(caller.group, body);
    if (CmCalls::Has(op)) {
      return cm_calls_.Call(now, caller.group, {process, caller.forks()}, op, body);
    }
    if (IsAsked(op)) return Asked(body);
    return DispatchVerbs(verbs_, now, caller.group, process, op, body);
  }

  // Returns the reply when no rule selected the post or poll. The program then executes it
  // normally.
  static Reply Asked(std::span<const std::byte> body) {
    AskIn in;
    if (As(body, in) == nullptr) return FailedReply(EINVAL);
    Reply reply;
    Fill(reply, AskOut{});
    return reply;
  }

  Reply Hello(Time now, ProcessId process, std::span<const std::byte> body) {
    Reply reply = joining_.Hello(process, body);
    if (reply.error != 0) return reply;
    ShowWatchedCalls();
    EndOrphans(now, GroupOf(process));
    return reply;
  }

  void ShowWatchedCalls() {
    for (const auto& [group, members] : processes_.groups()) {
      if (members.doorbells == nullptr) continue;
      std::atomic_ref(members.doorbells->watched_calls).store(faults_.watched_calls());
    }
  }

  // Everything that kReadFile reads: /sys and /dev, and the host's objects in /state.
  files::LazyDirectory Files() {
    return [this] {
      files::Directory root = files::SystemFiles(verbs_, verbs_.devices())();
      root.Add("state", files::StateFiles(verbs_, cm_, [this](ProcessId process) {
                 const ConnectedProcess* const found = processes_.Find(process);
                 return found == nullptr ? files::Owner{}
                                         : files::Owner{found->info.pid, found->info.program};
               }));
      return root;
    };
  }

  Reply StatusReply() const { return TextReply(StatusJson()); }

  // Transmits the group's posted work, as Engine::SendPosted does.
  void SendPosted(Time now, GroupId group) {
    const auto members = processes_.groups().find(group);
    if (members == processes_.groups().end() || members->second.doorbells == nullptr) return;
    if (StandsStill()) return;
    PollGroup(now, group, *members->second.doorbells);
    for (int i = 0; i < kMaxInterruptions; i++) {
      engine_.SendPosted(now, group);
      if (!faults_.HasDeeds()) return;
      DoDeeds(now);  // deeds of rules at the sent packets; afterwards send the rest
      if (StandsStill()) return;
    }
  }

  // Executes the group's posted work as far as this host can without waiting (bounded:
  // kMaxTurnsToComplete). rdma_rxe has executed such work when ibv_post_send returns.
  void CompletePosted(Time now, ProcessId process, GroupId group) {
    SendPosted(now, group);
    bool is_left = true;
    for (int i = 0; i < kMaxTurnsToComplete && is_left; i++) {
      // Otherwise copies would wait for a program that polls.
      engine_.Quiesce(ProcessPayloads{process});
      Take(now);
      is_left = Deliver(now) || engine_.AwaitsCopies();
    }
  }

  bool PollGroup(Time now, GroupId group, DoorbellPage& page) {
    return TakeRungQueues(page, verbs_.DoorbellSlots(group), [&](uint32_t slot) {
      QueuePair* const qp = verbs_.FindByDoorbell(group, slot);
      if (qp != nullptr) engine_.Doorbell(now, *qp);
      return qp != nullptr;
    });
  }

  static constexpr int kMaxDeedsAtOnce = 64;
  static constexpr int kMaxInterruptions = 65536;  // deeds that interrupt one SendPosted
  static constexpr int kMaxTurnsToComplete = 64;   // calls of Work in one CompletePosted

  HostConfig config_;
  Network& network_;
  trace::Sink& trace_;
  Random random_;
  HostFaults faults_;
  Processes processes_;
  Fabric fabric_;
  MemoryFaults memory_;
  Verbs verbs_;
  FaultDoors doors_;
  EngineDoors engine_doors_;
  transport::Engine engine_;
  AddressTable addresses_;
  HostCmTransport cm_transport_;
  HostGroups groups_;
  HostQueuePairs queue_pairs_;
  HostDevices devices_;
  FaultDeeds deeds_;
  FaultControl fault_control_;
  cm::Cm cm_;
  CmCalls cm_calls_;
  HostEventOffers offers_;
  Reception reception_;
  bool stop_requested_ = false;
  bool crashed_ = false;
  HostTurns turns_{processes_, verbs_};
  Joining joining_{config_, verbs_, processes_, turns_, random_};
  ProgramTrace program_trace_{trace_, processes_};
  HostPause pause_;
  EndedPrograms ended_programs_{trace_};
};

Host::Host(HostConfig config, Environment environment)
    : impl_(std::make_unique<Impl>(std::move(config), environment)) {}
Host::~Host() = default;

ProcessId Host::Attach(Time now, const ProcessInfo& info) { return impl_->Attach(now, info); }
void Host::Detach(Time now, ProcessId process) { impl_->Detach(now, process); }
void Host::ProcessEnded(Time now, ProcessId process) { impl_->ProcessEnded(now, process); }
Reply Host::Call(Time now, ProcessId process, std::span<const std::byte> message, uint32_t caller) {
  return impl_->Call(now, process, message, caller);
}
void Host::AbandonCalls(ProcessId process) { impl_->AbandonCalls(process); }
std::optional<LateReply> Host::TakeLateReply() { return impl_->TakeLateReply(); }
void Host::Receive(Time now, const wire::UdpFlow& flow,
                   std::span<const std::span<const std::byte>> udp_payloads, const NetAddress* at,
                   WireForm form) {
  impl_->Receive(now, flow, udp_payloads, at, form);
}
Naming Host::Direct(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                    const std::shared_ptr<DirectForm>& direct) {
  return impl_->Direct(now, flow, form, direct);
}
void Host::Refused(Time now, const NetAddress& local, const NetAddress& remote) {
  impl_->Refused(now, local, remote);
}
bool Host::PollDoorbells(Time now) { return impl_->PollDoorbells(now); }
void Host::PrepareSleep(bool asleep) { impl_->PrepareSleep(asleep); }
void Host::ShowProcessor(std::optional<uint32_t> processor) {
  impl_->turns().ShowProcessor(processor);
}
void Host::OpenTurnToAll(bool is_open) { impl_->turns().OpenToAll(is_open); }
bool Host::IsTurnAwaited() const { return impl_->turns().waits() != 0; }
bool Host::IsTurnAwaitedHere() const {
  return (impl_->turns().waits() & HostTurn::kAwaitedHere) != 0;
}
std::vector<GroupWaits> Host::WaitsOfGroups() const {
  return impl_->turns().WaitsOfGroups(kMaxGroupWaits);
}
uint32_t Host::groups_awaiting_turn() const { return impl_->turns().waiting_groups(); }
void Host::EndTurn(TurnEnd end, const std::function<void(uint32_t& futex)>& wake) {
  impl_->turns().End(end, wake);
}
bool Host::Take(Time now) { return impl_->Take(now); }
bool Host::Deliver(Time now) { return impl_->Deliver(now); }
bool Host::Work(Time now) {
  impl_->Take(now);
  return impl_->Deliver(now);
}
bool Host::AwaitsCopies() const { return impl_->AwaitsCopies(); }
bool Host::AwaitsForms() const { return impl_->AwaitsForms(); }
uint64_t Host::direct_sends() const { return impl_->direct_sends(); }
bool Host::HasFilledForms() { return impl_->HasFilledForms(); }
void Host::Expire(Time now) { impl_->Expire(now); }
std::optional<Time> Host::NextDeadline() const { return impl_->NextDeadline(); }
bool Host::AwaitsApplication(Time now) const { return impl_->AwaitsApplication(now); }
void Host::DropStaleDeadlines() { impl_->DropStaleDeadlines(); }
std::optional<Time> Host::NextJump(Time now) {
  DropStaleDeadlines();
  return AwaitsApplication(now) ? std::nullopt : NextDeadline();
}
GroupId Host::GroupOf(ProcessId process) const { return impl_->GroupOf(process); }
size_t Host::processes() const { return impl_->processes(); }
std::optional<ProcessId> Host::TakeEnding() { return impl_->TakeEnding(); }
bool Host::crashed() const { return impl_->crashed(); }
bool Host::stop_requested() const { return impl_->stop_requested(); }
std::string Host::StatusJson() const { return impl_->StatusJson(); }
std::string Host::RulesJson() const { return impl_->RulesJson(); }

}  // namespace rdmaemu
