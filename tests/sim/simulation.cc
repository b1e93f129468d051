#include "tests/sim/simulation.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "emulator/abi/slab.h"
#include "tests/sim/connections.h"
#include "tests/sim/run.h"
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// The queue pairs of one run, destroyed ones included.
constexpr size_t kMaxEndpoints = 40;
constexpr size_t kMaxPrograms = 24;
constexpr uint32_t kLongestWithoutPoll_ns = 300'000;

class Simulation {
 public:
  Simulation(const Plan& plan, Recorder& recorder, Verdict& verdict, Tally& tally)
      : plan_(plan),
        world_(plan, recorder, verdict, tally),
        traffic_(world_),
        connections_(world_, traffic_) {
    world_.SetHarvester([this](Machine& machine) { HarvestSoon(machine); });
    if (!plan.helps) return;
    for (const auto& machine : world_.machines()) {
      machine->memory.SetHelpers([this, here = machine.get()] {
        for (const auto& program : programs_) {
          // Threads of other machines may copy to programs of this one.
          if (plan_.directs || &program->machine() == here) program->process().FinishCopies();
        }
      });
    }
  }

  void Run() {
    for (const auto& machine : world_.machines()) {
      for (uint32_t i = 0; i < plan_.processes_per_machine; i++) StartProgram(*machine);
    }
    ScheduleStep();
    const Time far = world_.now() + std::chrono::hours(1);
    world_.RunUntil([this] { return steps_ >= plan_.steps; }, far);
    CalmDown();
    TearDown();
  }

 private:
  // Receives that each queue gets at once while the operations end.
  static constexpr uint32_t kReceivesWhenCalm = 2;
  static constexpr Duration kCalmStep = std::chrono::milliseconds(10);
  static constexpr Duration kLongestCalmStep = std::chrono::seconds(1);
  // One of so many takes of copies is followed by a stop of at most this length.
  static constexpr uint32_t kStopsOneOf = 50;
  static constexpr uint32_t kLongestStop_ns = 50'000'000;
  // One of so many executed requests is recalled.
  static constexpr uint32_t kRecallsOneOf = 8;

  void StartProgram(Machine& machine) {
    if (programs_.size() >= kMaxPrograms) return;
    programs_.push_back(std::make_unique<Program>(world_, machine,
                                                  static_cast<uint32_t>(programs_.size() + 1),
                                                  traffic_.atomics(), traffic_.events()));
    Program& started = *programs_.back();
    started.process().SetAroundExecution([this] { EndSomePermits(); });
  }

  // A thread of some program sometimes ends a region, so its host ends the permits.
  void EndSomePermits() {
    if (world_.random().Below(kRecallsOneOf) != 0) return;
    const auto number = static_cast<uint32_t>(programs_.size());
    Program& program = *programs_[world_.random().Below(number)];
    if (!program.Lives() || !program.machine().runs()) return;
    Region spare;
    if (program.Register(0, Program::kConstantBytes, 0, spare) == 0) program.Deregister(spare);
  }

  // Programs poll their queues after their host has worked, and some programs poll later.
  void HarvestSoon(Machine& machine) {
    for (const auto& program : programs_) {
      if (!program->Lives() || &program->machine() != &machine) continue;
      if (!IsLate(*program)) Harvest(*program);
      connections_.Harvest(*program);
      if (plan_.helps && world_.random().Below(plan_.help_one_in) == 0) Help(*program);
    }
    traffic_.CheckAcknowledged();
  }

  void Harvest(Program& program) {
    if (!program.Lives()) return;
    program.process().set_helps(plan_.helps && world_.random().Below(plan_.help_one_in) == 0);
    traffic_.Harvest(program);
    if (!is_calm_ && awaited_left_ > 0) PostAwaited(program);
  }

  // A program that posts each request when the one before has completed.
  void PostAwaited(Program& program) {
    program.process().set_helps(plan_.helps);
    for (uint32_t i = 1 + world_.random().Below(4); i > 0 && awaited_left_ > 0; i--) {
      if (world_.random().Below(4) == 0 && !plan_.converses) Arm(program);
      const uint32_t posted = traffic_.PostAwaited(program);
      if (posted == 0) return;
      awaited_left_ -= std::min(posted, awaited_left_);
      traffic_.Harvest(program);
    }
  }

  void Converse(Program& program) {
    if (!program.Lives() || !program.machine().runs() || awaited_left_ == 0) return;
    Harvest(program);
  }

  bool IsLate(Program& program) {
    if (plan_.late == 0 || is_calm_) return false;
    if (late_.contains(&program)) return true;
    if (world_.random().Below(100) >= plan_.late) return false;
    late_.insert(&program);
    world_.After(Duration(1 + world_.random().Below(kLongestWithoutPoll_ns)), [this, &program] {
      late_.erase(&program);
      const uint64_t before = world_.tally().Of("event.raised");
      Harvest(program);
      world_.tally().Count("event.raised_late", world_.tally().Of("event.raised") - before);
      traffic_.CheckAcknowledged();
    });
    return true;
  }

  // A polling thread of the program takes the copies that its host offers. The thread may pause
  // before it executes them, and may be stopped meanwhile.
  void Help(Program& program) {
    program.process().TakeCopies();
    if (!is_calm_ && world_.random().Below(kStopsOneOf) == 0) {
      program.process().set_stopped(true);
      world_.tally().Count("thread.stopped");
      world_.After(Duration(world_.random().Below(kLongestStop_ns)), [&program] {
        program.process().set_stopped(false);
        program.process().FinishCopies();
      });
      return;
    }
    if (world_.random().Below(plan_.directs ? 2 : 4) != 0) return program.process().FinishCopies();
    world_.After(Duration(world_.random().Below(100'000)),
                 [&program] { program.process().FinishCopies(); });
  }

  void ScheduleStep() {
    const auto most = static_cast<uint32_t>(2 * plan_.step_every.count());
    world_.After(Duration(1 + world_.random().Below(most)), [this] {
      Step();
      if (++steps_ < plan_.steps) ScheduleStep();
    });
  }

  template <class T>
  T& Any(std::deque<std::unique_ptr<T>>& of) {
    return *of[world_.random().Below(static_cast<uint32_t>(of.size()))];
  }

  void Step() {
    Random& random = world_.random();
    if (traffic_.endpoints().empty()) return ConnectTwo();
    const uint32_t trouble = plan_.kill + plan_.pause + plan_.restart + plan_.partition;
    if (trouble > 0 && random.Below(100) < trouble) return MakeTrouble(random.Below(trouble));
    if (plan_.converses && random.Below(4) != 0) return Converse(Any(programs_));
    const uint32_t what = random.Below(100);
    if (what < 5) return ConnectTwo();
    if (!(plan_.converses && random.Below(20) != 0) && random.Below(10) == 0) {
      return Arm(Any(programs_));
    }
    if (random.Below(40) == 0) return OneThatIsLate().ResizeQueue();
    if (random.Below(20) == 0) return traffic_.EndRegionsOfArrived(OneThatIsLate());
    if (random.Below(60) == 0) return traffic_.FreeWindow(Any(traffic_.endpoints()));
    if (random.Below(1000) < plan_.forks) return ForkOne();
    if (what < 7) return AddDatagramQueue();
    if (random.Below(100) < plan_.connects) return connections_.Step(Any(programs_));
    Endpoint& endpoint = Any(traffic_.endpoints());
    if (what < 22) {
      traffic_.PostReceives(endpoint, 1 + random.Below(8));
    } else if (what < 94) {
      if (plan_.directs) endpoint.program->process().CountPoll();
      traffic_.PostRequests(endpoint, 1 + random.Below(6));
    } else if (what < 96) {
      endpoint.draining ? traffic_.Undrain(endpoint) : traffic_.Drain(endpoint);
    } else if (what < 97) {
      if (endpoint.stage == Stage::kReady && random.Below(2) == 0) traffic_.ToError(endpoint);
    } else if (what < 98) {
      Recycle(endpoint);
    } else if (random.Below(2) == 0) {
      traffic_.Destroy(endpoint);
    }
  }

  bool IsFull() { return traffic_.endpoints().size() + 2 > kMaxEndpoints; }

  void ConnectTwo() {
    Random& random = world_.random();
    if (IsFull()) return;
    Program& a = Any(programs_);
    Program& b = Any(programs_);
    if (!a.Runs() || !b.Runs()) return;
    const ibv_qp_type type = random.Below(4) == 0 ? IBV_QPT_UC : IBV_QPT_RC;
    Endpoint* from = traffic_.Create(a, type, type == IBV_QPT_RC && random.Below(4) == 0);
    Endpoint* to = traffic_.Create(b, type, type == IBV_QPT_RC && random.Below(4) == 0);
    if (from == nullptr || to == nullptr) return;
    Join(*from, *to);
  }

  void Join(Endpoint& from, Endpoint& to) {
    Random& random = world_.random();
    traffic_.ToInit(from);
    traffic_.ToInit(to);
    traffic_.PostReceives(from, random.Below(20));
    traffic_.PostReceives(to, random.Below(20));
    const bool same = &from.program->machine() == &to.program->machine();
    const Duration late = random.Below(6) == 0 ? Duration(random.Below(5'000'000)) : Duration{};
    traffic_.Connect(from, to, traffic_.DrawLink(same), late);
  }

  void AddDatagramQueue() {
    Program& program = Any(programs_);
    if (!program.Runs() || IsFull()) return;
    Endpoint* endpoint = traffic_.Create(program, IBV_QPT_UD, false);
    if (endpoint == nullptr) return;
    traffic_.ToInit(*endpoint);
    traffic_.PostReceives(*endpoint, world_.random().Below(20));
    traffic_.MakeDatagramReady(*endpoint);
  }

  // Reuses the queue pair with another peer. Its program waits until all packets to the old peer
  // have arrived, as a correct program does.
  void Recycle(Endpoint& endpoint) {
    if (endpoint.type == IBV_QPT_UD || plan_.pause > 0 || IsFull()) return;
    // The old peer is destroyed first, because its packets would look like the new peer's.
    if (Endpoint* peer = endpoint.peer; peer != nullptr && peer->stage != Stage::kGone) {
      if (!peer->program->Runs()) return;
      traffic_.Destroy(*peer);
    }
    Endpoint* again = traffic_.Reset(endpoint);
    if (again == nullptr) return;
    world_.After(2 * plan_.most_delay, [this, again] {
      Program& other = Any(programs_);
      if (again->stage != Stage::kMade || !again->program->Runs() || !other.Runs() || IsFull()) {
        return;
      }
      Endpoint* peer = traffic_.Create(other, again->type, false);
      if (peer != nullptr) Join(*peer, *again);
    });
  }

  void MakeTrouble(uint32_t what) {
    Machine& machine = *world_.machines()[world_.random().Below(plan_.machines)];
    if (what < plan_.kill) return KillOne();
    what -= plan_.kill;
    if (what < plan_.pause) return PauseFor(machine);
    what -= plan_.pause;
    if (what < plan_.restart) return Restart(machine);
    Part(machine);
  }

  // A completion that is queued before its queue is armed raises no event. Calls of a harvest may
  // execute posted requests, which then complete.
  void Arm(Program& program) {
    do {
      Harvest(program);
    } while (program.HasQueued());
    program.Arm();
  }

  // Prefers a late program with completions to poll.
  Program& OneThatIsLate() {
    Program* found = &Any(programs_);
    for (const auto& program : programs_) {
      program->ForEachQueued([&](const CqEntry&) { found = program.get(); });
    }
    return *found;
  }

  void ForkOne() {
    Program& program = OneThatIsLate();
    if (!program.Runs()) return;
    constexpr std::pair<Process::Survivor, const char*> kWays[] = {
        {Process::Survivor::kChild, "fork.child_goes_on"},
        {Process::Survivor::kParent, "fork.child_ends"},
        {Process::Survivor::kBoth, "fork.both"}};
    const auto& [survivor, name] = kWays[world_.random().Below(std::size(kWays))];
    if (world_.recorder().tells_story()) {
      world_.recorder().Say(world_.now(), program.name(), std::string("forks: ") + name);
    }
    world_.tally().Count(name);
    program.ForEachQueued([&](const CqEntry& entry) {
      if (entry.payload == kPayloadWaits) world_.tally().Count("fork.before_payload_is_polled");
    });
    // A copy that another process makes during the fork may go to the parent's memory only, as with
    // a real device. The model does not describe that memory.
    for (const auto& each : programs_) each->process().FinishCopies();
    program.process().Fork(survivor);
  }

  void KillOne() {
    Program& program = Any(programs_);
    if (!program.Runs()) return;
    Harvest(program);
    if (world_.recorder().tells_story()) {
      world_.recorder().Say(world_.now(), program.name(), "is killed");
    }
    world_.tally().Count("fault.kill");
    program.process().Kill();
    traffic_.Abandon(program);
    connections_.Abandon(program);
    StartProgram(program.machine());
  }

  void PauseFor(Machine& machine) {
    if (!machine.runs()) return;
    traffic_.Disturb(machine);
    connections_.Disturb(machine);
    world_.Pause(machine);
    world_.After(Duration(world_.random().Below(200'000'000)),
                 [this, &machine] { world_.Resume(machine); });
  }

  void Restart(Machine& machine) {
    if (!machine.up()) return;
    traffic_.Disturb(machine);
    connections_.Disturb(machine);
    world_.Crash(machine);
    for (const auto& program : programs_) {
      if (&program->machine() != &machine) continue;
      traffic_.Abandon(*program);
      connections_.Abandon(*program);
    }
    world_.After(Duration(world_.random().Below(50'000'000)), [this, &machine] {
      if (machine.up()) return;
      world_.Start(machine, world_.random().Next64());
      for (uint32_t i = 0; i < plan_.processes_per_machine; i++) StartProgram(machine);
    });
  }

  void Part(Machine& machine) {
    Machine& other = *world_.machines()[world_.random().Below(plan_.machines)];
    if (&machine == &other) return;
    world_.Part(machine, other, Duration(world_.random().Below(400'000'000)));
  }

  // The network heals, and all programs take their events at once. All operations that have begun
  // must end.
  void CalmDown() {
    is_calm_ = true;
    // Waits for the end of pauses and restarts first, because a stopped machine cannot answer.
    world_.network().Heal();
    if (world_.recorder().tells_story()) world_.recorder().Say(world_.now(), "net", "heals");
    world_.RunUntil(
        [this] {
          return std::ranges::all_of(world_.machines(), [](const auto& m) { return m->runs(); });
        },
        world_.now() + std::chrono::seconds(1));
    traffic_.KeepReceiving();
    connections_.CalmDown();
    ContinueDrained();
    RunAndReceive([this] { return traffic_.Outstanding() == 0; }, traffic_.Bound(), kCalmStep);
    traffic_.ExpectAllEnded();
    // Requests that need not end may still wait for receives. Each of them asks again every few
    // microseconds.
    RunAndReceive([this] { return !connections_.IsWaiting(); }, connections_.Bound(),
                  kLongestCalmStep);
    connections_.Finish();
    // Datagrams that are still in flight arrive and must have no effect.
    world_.RunUntil([] { return false; }, world_.now() + plan_.most_delay * 2);
    for (const auto& program : programs_) {
      if (program->Lives()) CheckMemory(*program);
    }
    world_.TallyHosts();
    if (world_.corrupt_received() != world_.bad_icrcs()) {
      world_.verdict().Complain(
          "icrc", std::to_string(world_.corrupt_received()) + " corrupted datagrams arrived, " +
                      std::to_string(world_.bad_icrcs()) + " were dropped for their ICRC");
    }
  }

  // Runs until `is_done`, at most for `longest`, and posts receives meanwhile. A program may have
  // no memory for a receive now, because other receives have it. It tries again after a step. The
  // steps grow to `longest_step`.
  void RunAndReceive(const std::function<bool()>& is_done, Duration longest,
                     Duration longest_step) {
    const Time end = world_.now() + longest;
    // After a complaint no time passes.
    for (Duration step = kCalmStep; !is_done() && world_.now() < end && world_.verdict().clean();
         step = std::min(2 * step, longest_step)) {
      for (const auto& endpoint : traffic_.endpoints()) {
        if (endpoint->stage != Stage::kGone) traffic_.PostReceives(*endpoint, kReceivesWhenCalm);
      }
      world_.RunUntil(is_done, std::min(end, world_.now() + step));
    }
  }

  // Moves queues in SQD back to RTS as soon as possible.
  void ContinueDrained() {
    bool left = false;
    for (const auto& endpoint : traffic_.endpoints()) {
      traffic_.Undrain(*endpoint);
      left = left || (endpoint->Usable() && endpoint->draining);
    }
    if (left) world_.After(std::chrono::milliseconds(1), [this] { ContinueDrained(); });
  }

  void CheckMemory(Program& program) {
    program.model().Check();
    for (uint64_t i = 0; i < Program::kWords; i++) {
      traffic_.atomics().Finish(program.word(i), program.WordValue(i));
    }
  }

  void TearDown() {
    // Some programs destroy their objects, and the others just end.
    for (const auto& program : programs_) {
      if (program->Runs() && world_.random().Below(2) == 0) {
        traffic_.DestroyAll(*program);
        program->DestroyAll();
        world_.tally().Count("end.orderly");
      }
      program->process().Kill();
      traffic_.Abandon(*program);
      connections_.Abandon(*program);
    }
    world_.RunUntil([] { return false; }, world_.now() + std::chrono::hours(1));
    world_.ExpectNothingLeft();
  }

  const Plan& plan_;
  World world_;
  Traffic traffic_;
  Connections connections_;
  std::deque<std::unique_ptr<Program>> programs_;
  std::set<Program*> late_;  // they poll later; only for lookup
  bool is_calm_ = false;
  uint32_t steps_ = 0;
  uint32_t awaited_left_ = plan_.awaited;
};

}  // namespace

Outcome RunSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines) {
  return RunPlan<Simulation>(MakePlan(seed), detail, tally, lines);
}

}  // namespace rdmaemu::sim
