// The machines of a run, the network between them, and the one virtual clock: it jumps to whatever
// comes next, an arrival, a host's deadline, or something that a program does.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "tests/sim/machine.h"

namespace rdmaemu::sim {

class World {
 public:
  // Called whenever a machine's host has done something: its programs look at their queues.
  using Harvester = std::function<void(Machine&)>;

  World(const Plan& plan, Recorder& recorder, Verdict& verdict, Tally& tally);

  const Plan& plan() const { return plan_; }
  Time now() const { return now_; }
  Random& random() { return random_; }
  SimNetwork& network() { return network_; }
  Recorder& recorder() { return recorder_; }
  Verdict& verdict() { return verdict_; }
  Tally& tally() { return tally_; }
  std::vector<std::unique_ptr<Machine>>& machines() { return machines_; }
  void SetHarvester(Harvester harvester) { harvester_ = std::move(harvester); }

  void At(Time when, Timeline::Action action) { timeline_.At(when, std::move(action)); }
  void After(Duration delay, Timeline::Action action) { At(now_ + delay, std::move(action)); }
  // The machine's host may have work: it does it at its own pace, and not before `least`.
  void Wake(Machine& machine, Duration least = {});

  void Pause(Machine& machine);
  void Resume(Machine& machine);
  void Crash(Machine& machine);
  void Start(Machine& machine, uint64_t seed);
  // Nothing passes between the two for `length`.
  void Part(const Machine& a, const Machine& b, Duration length);

  // Runs until `done` holds or time would pass `limit`. True when `done` held.
  bool RunUntil(const std::function<bool()>& done, Time limit);
  // A complaint for each of these members of its host's status that is not 0.
  void ExpectNone(Machine& machine, std::initializer_list<const char*> whats);
  // All programs have ended, and what waited has run out: a complaint for each host that keeps
  // anything.
  void ExpectNothingLeft();
  // Nothing will happen any more by itself.
  bool Idle() const { return !NextTime().has_value(); }
  // Corrupt datagrams that hosts of all lives have got, and those that they dropped for the ICRC.
  uint64_t corrupt_received() const { return corrupt_received_; }
  uint64_t bad_icrcs() const { return bad_icrcs_; }
  // Adds up what the hosts that run now have counted; once, at the end.
  void TallyHosts() {
    for (const auto& machine : machines_) {
      if (machine->up()) CountOf(*machine);
    }
  }

 private:
  // Steps at one instant that end in the suspicion that the clock stands still.
  static constexpr uint32_t kMaxStepsAtOneTime = 1'000'000;

  std::optional<Time> NextTime() const;
  void Step(Time when);
  void Work(Machine& machine, uint32_t life);
  void Deliver(const Datagram& datagram);
  void Receive(Machine& machine, const Datagram& datagram);
  void CountOf(Machine& machine);

  const Plan& plan_;
  Recorder& recorder_;
  Verdict& verdict_;
  Tally& tally_;
  Random random_;
  Time now_{};
  Timeline timeline_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<bool> awake_;  // a Work is on the timeline
  Harvester harvester_;
  uint32_t steps_at_one_time_ = 0;
  uint64_t bad_icrcs_ = 0, corrupt_received_ = 0;
};

}  // namespace rdmaemu::sim
