// The machines of a run, the network between them, and the one virtual clock. The clock jumps to
// the next arrival, deadline of a host or step of a program.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "tests/sim/machine.h"

namespace rdmaemu::sim {

class World {
 public:
  // Called whenever a machine's host has worked. The programs of the machine then poll their
  // queues.
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
  // The machine's host may have work. It works at its own pace, and not before `least`.
  void Wake(Machine& machine, Duration least = {});

  void Pause(Machine& machine);
  void Resume(Machine& machine);
  void Crash(Machine& machine);
  void Start(Machine& machine, uint64_t seed);
  // The number by which programs know a counter of any machine, in place of a descriptor.
  int FdOf(const Machine& machine, CounterId counter) const;
  static CounterId CounterOf(int fd);
  void AddToCounter(int fd);
  // Drops everything between the two for `length`.
  void Part(const Machine& a, const Machine& b, Duration length);

  // Runs until `done` holds or time would exceed `limit`. Returns whether `done` held.
  bool RunUntil(const std::function<bool()>& done, Time limit);
  // Complains for each of these members of its host's status that is not 0.
  void ExpectNone(Machine& machine, std::initializer_list<const char*> whats);
  // Call it when all programs have ended and all time-outs have expired. Complains for each host
  // that still has an object.
  void ExpectNothingLeft();
  // Returns whether no event is scheduled any more.
  bool Idle() const { return !NextEvent().has_value(); }
  // Corrupt datagrams that hosts have received since the start of the run, and those that the hosts
  // dropped for the ICRC.
  uint64_t corrupt_received() const { return corrupt_received_; }
  uint64_t bad_icrcs() const { return bad_icrcs_; }
  // Adds the counts of the running hosts. Call it once, at the end.
  void TallyHosts() {
    for (const auto& machine : machines_) {
      if (machine->up()) CountOf(*machine);
    }
  }

 private:
  // After this many steps at one time, the clock is assumed to stand still.
  static constexpr uint32_t kMaxStepsAtOneTime = 1'000'000;

  // What happens next: a deadline of a machine's host, or the first action of the timeline.
  struct Event {
    Time when;
    Machine* machine;  // nullptr: an action
  };
  std::optional<Event> NextEvent() const;
  void Step(const Event& event);
  void Work(Machine& machine, uint32_t life);
  // The host at the address examines the forms that the machine has sent to it, some time later.
  void LookAheadSoon(Machine& sender, const NetAddress& at);
  void LookAhead(Machine& sender, const NetAddress& at);
  Machine* OwnerOf(const NetAddress& address);
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
