#include "tests/sim/plan.h"

#include "emulator/base/random.h"

namespace rdmaemu::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Misfortunes DrawMisfortunes(Random& random) {
  Misfortunes out;
  // A fifth of all networks is perfect. No operation may fail there because of the network.
  if (random.Below(5) == 0) return out;
  const uint32_t severity = random.Below(4) == 0 ? 1500 : 200;
  const auto draw = [&](uint32_t most) { return random.Below(3) == 0 ? 0 : random.Below(most); };
  out.lose = draw(severity);
  out.repeat = draw(severity);
  out.reorder = draw(severity);
  out.delay = draw(severity / 4);
  out.corrupt = draw(severity / 2);
  out.refuse = draw(severity / 8);
  return out;
}

}  // namespace

Plan MakePlan(uint64_t seed) {
  // The multiplication makes plans of neighbouring seeds independent.
  Random random(seed * 0x9E3779B97F4A7C15ull + 1);
  Plan plan;
  plan.seed = seed;
  plan.machines = 2 + (random.Below(3) == 0 ? random.Below(4) : random.Below(2));
  plan.processes_per_machine = 1 + random.Below(3);
  plan.latency = microseconds(1 + random.Below(random.Below(4) == 0 ? 2000 : 50));
  plan.jitter = plan.latency / (1 + random.Below(8));
  plan.misfortunes = DrawMisfortunes(random);
  plan.spares_unreliable = random.Below(2) == 0;
  plan.most_delay = plan.latency * 4 + milliseconds(random.Below(80));
  plan.cpu_delay = random.Below(2) == 0 ? Duration{} : Duration(random.Below(5000));
  plan.steps = 40 + random.Below(random.Below(4) == 0 ? 600 : 200);
  plan.step_every = microseconds(1 + random.Below(random.Below(3) == 0 ? 2000 : 100));
  plan.strict_flush = random.Below(4) == 0;
  plan.endless_retries = random.Below(4) != 0;
  plan.helps = random.Below(2) == 0;
  plan.kill = random.Below(3) == 0 ? 1 + random.Below(2) : 0;
  plan.pause = random.Below(4) == 0 ? 1 + random.Below(2) : 0;
  plan.restart = random.Below(5) == 0 ? 1 + random.Below(2) : 0;
  plan.partition = random.Below(4) == 0 ? 1 + random.Below(2) : 0;
  plan.connects = random.Below(3) == 0 ? 0 : 5 + random.Below(30);
  plan.misuse = random.Below(2) == 0 ? 0 : random.Below(40);
  plan.late = random.Below(2) == 0 ? 0 : random.Below(60);
  plan.forks = random.Below(2) == 0 ? 0 : random.Below(30);
  if (random.Below(24) == 0) {
    plan.huge = 3;
    plan.processes_per_machine = 1;  // programs of such a run have much memory
  }
  plan.watched = random.Below(4) == 0;
  plan.forms = random.Below(2) == 0;
  plan.directs = plan.forms && plan.helps && random.Below(4) != 0;
  // Offers to slow threads are open while programs make calls.
  if (plan.directs && random.Below(2) == 0) plan.help_one_in = 16;
  plan.awaited = random.Below(2) == 0 ? random.Below(400) : 0;
  plan.converses = plan.awaited > 0 && random.Below(2) == 0;
  return plan;
}

Plan MakeCmPlan(uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15ull + 2);
  Plan plan;
  plan.seed = seed;
  plan.machines = 1 + random.Below(3);
  plan.processes_per_machine = 1 + random.Below(2);
  plan.latency = microseconds(1 + random.Below(random.Below(4) == 0 ? 300'000 : 2000));
  plan.jitter = plan.latency / (1 + random.Below(8));
  if (random.Below(4) != 0) {
    const auto draw = [&](uint32_t most) { return random.Below(3) == 0 ? 0 : random.Below(most); };
    plan.misfortunes = {.lose = draw(4000),
                        .repeat = draw(4000),
                        .reorder = draw(2000),
                        .delay = draw(1000),
                        .corrupt = draw(300),
                        .refuse = draw(300)};
  }
  // In some plans, copies are older than any timewait.
  plan.most_delay =
      plan.latency * 4 + milliseconds(random.Below(random.Below(4) == 0 ? 60'000 : 3000));
  plan.cpu_delay = random.Below(2) == 0 ? Duration{} : Duration(random.Below(5'000'000));
  plan.steps = 50 + random.Below(random.Below(4) == 0 ? 1000 : 300);
  plan.step_every = random.Below(3) == 0 ? milliseconds(1 + random.Below(3000))
                                         : milliseconds(1 + random.Below(100));
  plan.kill = random.Below(3) == 0 ? 1 + random.Below(2) : 0;
  plan.pause = random.Below(4) == 0 ? 1 + random.Below(2) : 0;
  plan.restart = random.Below(4) == 0 ? 1 + random.Below(2) : 0;
  plan.partition = random.Below(4) == 0 ? 1 + random.Below(2) : 0;
  plan.devices = 2;
  plan.changes = random.Below(2) == 0 ? 0 : 1 + random.Below(6);
  return plan;
}

std::string Describe(const Plan& plan) {
  const auto us = [](Duration d) {
    return std::to_string(std::chrono::duration_cast<microseconds>(d).count()) + " us";
  };
  const Misfortunes& m = plan.misfortunes;
  return std::to_string(plan.machines) + " machines, " +
         std::to_string(plan.processes_per_machine) + " processes each, latency " +
         us(plan.latency) + ", of 10,000 datagrams " + std::to_string(m.lose) + " lost, " +
         std::to_string(m.repeat) + " repeated, " + std::to_string(m.reorder) + " reordered, " +
         std::to_string(m.delay) + " delayed up to " + us(plan.most_delay) + ", " +
         std::to_string(m.corrupt) + " corrupted, " + std::to_string(m.refuse) + " refused; " +
         std::to_string(plan.steps) + " steps every " + us(plan.step_every) +
         (plan.spares_unreliable ? "; UC and UD are spared" : "");
}

}  // namespace rdmaemu::sim
