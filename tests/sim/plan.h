// What a seed decides before anything runs: how many machines, how the network behaves, what the
// programs are inclined to do. Everything else is drawn while the run goes on, from the same seed.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/base/time.h"

namespace rdmaemu::sim {

// Chances of a datagram's misfortunes, in 10,000.
struct Misfortunes {
  uint32_t lose = 0, repeat = 0, reorder = 0, delay = 0, corrupt = 0, refuse = 0;
};

struct Plan {
  uint64_t seed = 0;
  uint32_t machines = 2;
  uint32_t processes_per_machine = 1;
  uint32_t devices = 1;  // of a machine, 1 or 2

  Duration latency{}, jitter{};  // one way
  Misfortunes misfortunes;
  // The network neither repeats nor reorders what UC and UD cannot put right, so that their
  // stricter promises can be checked.
  bool spares_unreliable = false;
  Duration most_delay{};  // no datagram is older when it arrives
  // A host works this long after something came up, at most; 0: at once.
  Duration cpu_delay{};

  uint32_t steps = 0;         // things that programs do before the network heals
  Duration step_every{};      // on average
  bool strict_flush = false;  // the profile flushes receives that were posted in ERR
  bool endless_retries = true;
  bool helps = false;  // threads of the programs copy for their host

  // Inclinations, as weights of a step.
  uint32_t kill = 0, pause = 0, restart = 0, partition = 0;
  uint32_t changes = 0;   // of devices, their ports and addresses
  uint32_t connects = 0;  // chance in 100 that a step is one of connection management
  uint32_t late = 0;      // chance in 100 that a program polls some time after its host worked
  uint32_t forks = 0;     // chance in 1000 that a step is a fork
  uint32_t misuse = 0;    // chance in 1000 that a request is planted to fail
};

Plan MakePlan(uint64_t seed);
// Of runs with connection management alone: slower steps, worse networks, older datagrams.
Plan MakeCmPlan(uint64_t seed);
std::string Describe(const Plan& plan);

}  // namespace rdmaemu::sim
