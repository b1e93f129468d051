// A run of connection management alone (--cm). Its programs make any call at any moment, on a bad
// network and on machines that stop and restart. The run ends when no object is left.
#include <algorithm>

#include "tests/sim/cm_calls.h"
#include "tests/sim/run.h"
#include "tests/sim/simulation.h"

namespace rdmaemu::sim {
namespace {

class CmRun {
 public:
  CmRun(const Plan& plan, Recorder& recorder, Verdict& verdict, Tally& tally)
      : plan_(plan), world_(plan, recorder, verdict, tally), calls_(world_) {
    world_.SetHarvester([this](Machine& machine) { calls_.Harvest(machine); });
  }

  void Run() {
    for (const auto& machine : world_.machines()) StartCallers(*machine);
    ScheduleStep();
    world_.RunUntil([this] { return steps_ >= plan_.steps; },
                    world_.now() + std::chrono::hours(24));
    CalmDown();
    calls_.EndAll();
    world_.RunUntil([] { return false; }, world_.now() + std::chrono::hours(1));
    world_.TallyHosts();
    world_.ExpectNothingLeft();
  }

 private:
  void StartCallers(Machine& machine) {
    for (uint32_t i = 0; i < plan_.processes_per_machine; i++) calls_.StartCaller(machine);
  }

  void ScheduleStep() {
    const auto most = static_cast<uint32_t>(2 * plan_.step_every.count() / 1000);
    world_.After(std::chrono::microseconds(1 + world_.random().Below(most)), [this] {
      Step();
      if (++steps_ < plan_.steps) ScheduleStep();
    });
  }

  void Step() {
    const uint32_t trouble =
        plan_.kill + plan_.pause + plan_.restart + plan_.partition + plan_.changes;
    if (trouble == 0 || world_.random().Below(100) >= trouble) return calls_.Step();
    uint32_t what = world_.random().Below(trouble);
    Machine& machine = *world_.machines()[world_.random().Below(plan_.machines)];
    if (what < plan_.kill) return calls_.KillOne();
    what -= plan_.kill;
    if (what < plan_.pause) return Pause(machine);
    what -= plan_.pause;
    if (what < plan_.restart) return Restart(machine);
    what -= plan_.restart;
    if (what < plan_.changes) return calls_.ChangeDevices(machine);
    Part(machine);
  }

  Duration UpTo(std::chrono::milliseconds most) {
    return std::chrono::milliseconds(world_.random().Below(static_cast<uint32_t>(most.count())));
  }

  void Pause(Machine& machine) {
    if (!machine.runs()) return;
    world_.Pause(machine);
    world_.After(UpTo(std::chrono::seconds(20)), [this, &machine] { world_.Resume(machine); });
  }

  void Restart(Machine& machine) {
    if (!machine.up()) return;
    world_.Crash(machine);
    calls_.Crashed(machine);
    world_.After(UpTo(std::chrono::seconds(5)), [this, &machine] {
      world_.Start(machine, world_.random().Next64());
      StartCallers(machine);
    });
  }

  void Part(Machine& machine) {
    Machine& other = *world_.machines()[world_.random().Below(plan_.machines)];
    if (&machine == &other) return;
    world_.Part(machine, other, UpTo(std::chrono::minutes(2)));
  }

  // Each operation that has begun must now end or be refused.
  void CalmDown() {
    world_.network().Heal();
    if (world_.recorder().tells_story()) world_.recorder().Say(world_.now(), "net", "heals");
    world_.RunUntil(
        [this] {
          return std::ranges::all_of(world_.machines(), [](const auto& m) { return m->runs(); });
        },
        world_.now() + std::chrono::minutes(1));
    calls_.MendDevices();
    calls_.CalmDown();
    world_.RunUntil([this] { return !calls_.IsWaiting(); }, world_.now() + CmCalls::Bound());
    // A complaint has stopped the clock, so operations that still wait prove nothing.
    if (world_.verdict().clean()) calls_.Finish();
  }

  const Plan& plan_;
  World world_;
  CmCalls calls_;
  uint32_t steps_ = 0;
};

}  // namespace

Outcome RunCmSeed(uint64_t seed, Recorder::Detail detail, Tally& tally, const LineSink& lines) {
  return RunPlan<CmRun>(MakeCmPlan(seed), detail, tally, lines);
}

}  // namespace rdmaemu::sim
