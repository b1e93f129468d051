#include "tests/sim/simulation.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// Queue pairs of one run, dead ones included.
constexpr size_t kMaxEndpoints = 40;

class Simulation {
 public:
  Simulation(const Plan& plan, Recorder& recorder, Verdict& verdict, Tally& tally)
      : plan_(plan), world_(plan, recorder, verdict, tally), traffic_(world_) {
    world_.SetHarvester([this](Machine& machine) { Harvest(machine); });
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
  Program& StartProgram(Machine& machine) {
    programs_.push_back(
        std::make_unique<Program>(world_, machine, static_cast<uint32_t>(programs_.size() + 1)));
    return *programs_.back();
  }

  void Harvest(Machine& machine) {
    for (const auto& program : programs_) {
      if (program->Lives() && &program->machine() == &machine) traffic_.Harvest(*program);
    }
    traffic_.CheckAcknowledged();
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
    const uint32_t what = random.Below(100);
    if (traffic_.endpoints().empty() || what < 5) return ConnectTwo();
    Endpoint& endpoint = Any(traffic_.endpoints());
    if (what < 20) {
      traffic_.PostReceives(endpoint, 1 + random.Below(8));
    } else if (what < 97) {
      for (uint32_t left = 1 + random.Below(6); left > 0; left--) {
        if (!traffic_.PostRequest(endpoint)) break;
      }
    } else if (what < 98) {
      if (endpoint.stage == Stage::kReady && random.Below(2) == 0) traffic_.ToError(endpoint);
    } else if (endpoint.program->Runs() && random.Below(2) == 0) {
      traffic_.Destroy(endpoint);
    }
  }

  void ConnectTwo() {
    if (traffic_.endpoints().size() >= kMaxEndpoints) return;
    Random& random = world_.random();
    Program& a = Any(programs_);
    Program& b = Any(programs_);
    if (!a.Runs() || !b.Runs()) return;
    Endpoint* from = traffic_.Create(a, IBV_QPT_RC);
    Endpoint* to = traffic_.Create(b, IBV_QPT_RC);
    if (from == nullptr || to == nullptr) return;
    traffic_.PostReceives(*from, random.Below(20));
    traffic_.PostReceives(*to, random.Below(20));
    traffic_.Connect(*from, *to, traffic_.DrawLink(&a.machine() == &b.machine()), Duration{});
  }

  // The network heals, and everybody takes what comes: all that was begun must end.
  void CalmDown() {
    world_.network().Heal();
    if (world_.recorder().tells_story()) world_.recorder().Say(world_.now(), "net", "heals");
    traffic_.KeepReceiving();
    for (const auto& endpoint : traffic_.endpoints()) {
      if (endpoint->stage != Stage::kGone) traffic_.PostReceives(*endpoint, UINT32_MAX);
    }
    world_.RunUntil([this] { return traffic_.Outstanding() == 0; },
                    world_.now() + traffic_.Bound());
    traffic_.ExpectAllEnded();
    // What is still on its way arrives, and must find nothing to do.
    world_.RunUntil([] { return false; }, world_.now() + plan_.most_delay * 2);
    for (const auto& program : programs_) {
      if (program->Lives()) program->model().Check();
    }
    if (world_.network().corrupted_arrivals() != world_.bad_icrcs()) {
      world_.verdict().Complain("icrc", std::to_string(world_.network().corrupted_arrivals()) +
                                            " corrupted datagrams arrived, " +
                                            std::to_string(world_.bad_icrcs()) +
                                            " were dropped for their ICRC");
    }
  }

  void TearDown() {
    for (const auto& program : programs_) program->process().Kill();
    world_.RunUntil([] { return false; }, world_.now() + std::chrono::hours(1));
    for (const auto& machine : world_.machines()) ExpectNothingLeft(*machine);
  }

  void ExpectNothingLeft(Machine& machine) {
    if (!machine.up()) return;
    const auto status = nlohmann::json::parse(machine.host().StatusJson());
    for (const char* what : {"clients_total", "groups_total", "ids", "connections", "qps"}) {
      if (status.at(what).get<uint64_t>() != 0) {
        world_.verdict().Complain(
            "leaks", machine.name() + " has " + status.at(what).dump() + " " + what + " left");
      }
    }
    if (machine.segments.live_segments() != 0 || machine.counters.live() != 0) {
      world_.verdict().Complain(
          "leaks", machine.name() + " has " + std::to_string(machine.segments.live_segments()) +
                       " segments and " + std::to_string(machine.counters.live()) +
                       " counters left");
    }
    if (machine.host().NextDeadline()) {
      world_.verdict().Complain("leaks", machine.name() + " has a timer left");
    }
  }

  const Plan& plan_;
  World world_;
  Traffic traffic_;
  std::deque<std::unique_ptr<Program>> programs_;
  uint32_t steps_ = 0;
};

}  // namespace

Outcome RunSeed(uint64_t seed, Recorder::Detail detail, Tally& tally,
                const std::function<void(const std::string&)>& lines) {
  const Plan plan = MakePlan(seed);
  Recorder recorder(detail);
  if (lines) recorder.SetLineSink(lines);
  Verdict verdict;
  try {
    Simulation(plan, recorder, verdict, tally).Run();
  } catch (const std::exception& error) {
    verdict.Complain("simulation", std::string("stopped: ") + error.what());
  }
  return {seed,
          recorder.hash(),
          verdict.complaints(),
          Describe(plan),
          {recorder.lines().begin(), recorder.lines().end()}};
}

}  // namespace rdmaemu::sim
