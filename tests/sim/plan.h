// The decisions that a seed makes before a run: the number of machines, the network's behaviour,
// the probabilities of the programs' actions. The run draws all other decisions from the same seed.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/base/time.h"

namespace rdmaemu::sim {

// The longest message. A run has few of them, because each takes thousands of packets.
inline constexpr uint32_t kHugeBytes = 1 << 20;

// The chances of misfortunes of a datagram, in 10,000.
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
  // The network neither repeats nor reorders datagrams of UC and UD, which cannot correct this.
  // Their stricter guarantees can then be checked.
  bool spares_unreliable = false;
  Duration most_delay{};  // the largest age of a datagram at arrival
  // The longest time from an input until the host handles it; 0: the host handles it at once.
  Duration cpu_delay{};

  uint32_t steps = 0;         // steps of programs before the network heals
  Duration step_every{};      // on average
  bool strict_flush = false;  // the profile flushes receives that were posted in ERR
  bool endless_retries = true;
  bool helps = false;  // threads of the programs copy for their host
  bool forms = false;  // hosts send each other forms of trains, as by shared memory
  // Hosts name the destinations of copies to programs of other hosts, if there are forms. Messages
  // are often long enough.
  bool directs = false;
  uint32_t help_one_in = 2;  // the chance that a thread looks for copies

  // The weights of a step.
  uint32_t kill = 0, pause = 0, restart = 0, partition = 0;
  uint32_t changes = 0;   // of devices, their ports and addresses
  uint32_t connects = 0;  // chance in 100 that a step is one of connection management
  uint32_t late = 0;      // chance in 100 that a program polls later than its host worked
  uint32_t forks = 0;     // chance in 1000 that a step is a fork
  uint32_t misuse = 0;    // chance in 1000 that a request must fail
  uint32_t huge = 0;      // messages of kHugeBytes, at most; programs then have more memory
  bool watched = false;   // hosts have rules that match messages but never fire
  // Requests that programs post one by one to QPs of their own machine, after the one before has
  // completed. Programs execute such requests themselves, if `helps`.
  uint32_t awaited = 0;
  // Most of these requests are SENDs, and programs use no completion events. Programs send and
  // receive such SENDs without their host (emulator/abi/send_lane.h).
  bool converses = false;
};

Plan MakePlan(uint64_t seed);
// For runs of connection management alone: slower steps, worse networks, older datagrams.
Plan MakeCmPlan(uint64_t seed);
std::string Describe(const Plan& plan);

}  // namespace rdmaemu::sim
