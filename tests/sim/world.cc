#include "tests/sim/world.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rdmaemu::sim {
namespace {

// A host that waits for copies yields its core and checks again.
constexpr Duration kLookAgain(500);
// The most that a host needs until it examines a form whose payload is missing. Some forms are
// taken back before (transport::kAwaitDestinationFor).
constexpr uint32_t kLongestUntilLook_ns = 250'000;

Profile ProfileOf(const Plan& plan) {
  Profile profile = *BuiltInProfile("rxe");
  profile.flush_receives_posted_in_error = plan.strict_flush;
  profile.rc.retry_count_7_is_endless = plan.endless_retries;
  profile.reregisters_regions = true;
  return profile;
}

uint32_t IndexOf(const std::string& machine_name) {
  return static_cast<uint32_t>(std::stoul(machine_name.substr(1)));
}

}  // namespace

World::World(const Plan& plan, Recorder& recorder, Verdict& verdict, Tally& tally)
    : plan_(plan),
      recorder_(recorder),
      verdict_(verdict),
      tally_(tally),
      random_(plan.seed),
      network_(plan, random_, timeline_, tally) {
  network_.SetReceiver([this](const Datagram& datagram) { Deliver(datagram); });
  if (recorder.tells_story()) {
    network_.SetObserver([this](const Datagram& datagram, std::string_view what) {
      recorder_.Say(now_, "net",
                    datagram.flow.source.ToString() + " to " +
                        datagram.flow.destination.ToString() + ", " +
                        std::to_string(datagram.bytes.size()) + " bytes: " + std::string(what));
    });
  }
  for (uint32_t i = 0; i < plan.machines; i++) {
    machines_.push_back(std::make_unique<Machine>(
        MachineSetup{i, plan.devices, plan.watched, plan.forms, plan.directs, ProfileOf(plan),
                     &network_, &recorder_, &verdict_, &tally_, &now_,
                     [this, i](const NetAddress& at) { LookAheadSoon(*machines_[i], at); },
                     [this](const NetAddress& at, CounterId counter) {
                       Machine* const machine = OwnerOf(at);
                       return machine == nullptr ? -1 : FdOf(*machine, counter);
                     },
                     [this](int fd) { AddToCounter(fd); }}));
    awake_.push_back(false);
    machines_.back()->Start(random_.Next64());
  }
}

void World::Wake(Machine& machine, Duration least) {
  const uint32_t index = IndexOf(machine.name());
  if (awake_[index] || !machine.runs()) return;
  awake_[index] = true;
  const auto most = static_cast<uint32_t>(plan_.cpu_delay.count());
  After(least + Duration(most == 0 ? 0 : random_.Below(most + 1)),
        [this, &machine, index, life = machine.life()] {
          awake_[index] = false;
          Work(machine, life);
        });
}

void World::Work(Machine& machine, uint32_t life) {
  if (!machine.runs() || machine.life() != life) return;
  Host& host = machine.host();
  if (host.NextDeadline() && *host.NextDeadline() <= now_) host.Expire(now_);
  const bool found = host.PollDoorbells(now_);
  const bool left = host.Work(now_);
  const std::optional<Time> deadline = host.NextDeadline();
  const bool awaits_copies = host.AwaitsCopies();
  if (harvester_) harvester_(machine);
  if (found || left) {
    Wake(machine);
  } else if (awaits_copies) {
    Wake(machine, kLookAgain);
  } else if (deadline && *deadline <= now_) {
    verdict_.Complain("clock", machine.name() + " still asks for a deadline that has passed");
  }
}

Machine* World::OwnerOf(const NetAddress& address) {
  const auto owner =
      std::ranges::find_if(machines_, [&](const auto& each) { return each->Owns(address); });
  return owner == machines_.end() ? nullptr : owner->get();
}

void World::Deliver(const Datagram& datagram) {
  Machine* const machine = OwnerOf(datagram.flow.destination);
  if (machine == nullptr) return;
  if (!machine->up()) return tally_.Count("network.nobody");
  if (machine->paused()) {
    if (!machine->KeepForLater(datagram)) tally_.Count("network.socket_full");
    return;
  }
  Receive(*machine, datagram);
}

namespace {

// A counter's number: the index of its machine above its id.
constexpr int kFirstFd = 1 << 24;
constexpr int kCounterBits = 20;

}  // namespace

int World::FdOf(const Machine& machine, CounterId counter) const {
  return kFirstFd + (static_cast<int>(IndexOf(machine.name())) << kCounterBits) +
         static_cast<int>(counter);
}

CounterId World::CounterOf(int fd) {
  return CounterId{static_cast<uint32_t>(fd - kFirstFd) & ((1u << kCounterBits) - 1)};
}

void World::AddToCounter(int fd) {
  Machine& machine = *machines_[static_cast<size_t>(fd - kFirstFd) >> kCounterBits];
  // The host of the counter may have ended. Nobody awaits the counter then.
  if (machine.counters.Has(CounterOf(fd))) machine.counters.Add(CounterOf(fd), 1);
}

void World::LookAheadSoon(Machine& sender, const NetAddress& at) {
  After(Duration(random_.Below(kLongestUntilLook_ns)),
        [this, &sender, at] { LookAhead(sender, at); });
}

void World::LookAhead(Machine& sender, const NetAddress& at) {
  Machine* const receiver = OwnerOf(at);
  if (!sender.up() || receiver == nullptr || !receiver->runs()) return;
  sender.LookAhead(at, [&](const Datagram& form, const std::shared_ptr<DirectForm>& direct) {
    return random_.Below(16) != 0 &&
           receiver->host().Direct(now_, form.flow, form.bytes, direct) == Naming::kNamed;
  });
}

void World::Receive(Machine& machine, const Datagram& datagram) {
  ForEachPacket(datagram, [&](std::span<const std::byte> packet) {
    recorder_.AddPacket(now_, IndexOf(machine.name()) << 1, packet);
  });
  if (datagram.corrupt) corrupt_received_++;
  machine.Receive(datagram);
  if (harvester_) harvester_(machine);
  Wake(machine);
  // The forms behind the datagram are the next ones.
  Machine* const sender = plan_.directs ? OwnerOf(datagram.flow.source) : nullptr;
  if (sender != nullptr) LookAheadSoon(*sender, datagram.flow.destination);
}

void World::Pause(Machine& machine) {
  machine.Pause();
  tally_.Count("fault.pause");
  if (recorder_.tells_story()) recorder_.Say(now_, machine.name(), "paused");
}

void World::Resume(Machine& machine) {
  if (!machine.paused()) return;
  if (recorder_.tells_story()) recorder_.Say(now_, machine.name(), "resumed");
  const uint32_t life = machine.life();
  for (const Datagram& datagram : machine.Resume()) {
    if (machine.runs() && machine.life() == life) Receive(machine, datagram);
  }
  Wake(machine);
}

void World::CountOf(Machine& machine) {
  const auto counters = nlohmann::json::parse(machine.host().StatusJson()).at("counters");
  bad_icrcs_ += counters.at("dropped").at("bad_icrc").get<uint64_t>();
  for (const auto& [name, value] : counters.items()) {
    if (value.is_number_unsigned()) tally_.Count("host." + name, value.get<uint64_t>());
  }
  for (const auto& rule : nlohmann::json::parse(machine.host().RulesJson())) {
    tally_.Count("rule.matched." + rule.at("name").get<std::string>(),
                 rule.at("matched").get<uint64_t>());
  }
  for (const auto& [name, value] : counters.at("dropped").items()) {
    if (value.is_number_unsigned()) tally_.Count("host.dropped." + name, value.get<uint64_t>());
  }
}

void World::ExpectNone(Machine& machine, std::initializer_list<const char*> whats) {
  if (!machine.up()) return;
  const auto status = nlohmann::json::parse(machine.host().StatusJson());
  for (const char* what : whats) {
    if (status.at(what).get<uint64_t>() == 0) continue;
    verdict_.Complain("leaks",
                      machine.name() + " has " + status.at(what).dump() + " " + what + " left");
  }
}

void World::ExpectNothingLeft() {
  for (const auto& machine : machines_) {
    if (!machine->up()) continue;
    ExpectNone(*machine, {"clients_total", "groups_total", "ids", "connections", "qps"});
    if (machine->segments.live_segments() != 0 || machine->counters.live() != 0) {
      verdict_.Complain("leaks", machine->name() + " has " +
                                     std::to_string(machine->segments.live_segments()) +
                                     " segments and " + std::to_string(machine->counters.live()) +
                                     " counters left");
    }
    if (machine->memberships() != 0) {
      verdict_.Complain("leaks", machine->name() + " is a member of multicast groups still");
    }
    if (machine->host().NextDeadline()) {
      verdict_.Complain("leaks", machine->name() + " has a timer left");
    }
  }
}

void World::Crash(Machine& machine) {
  CountOf(machine);
  machine.Crash();
  tally_.Count("fault.crash");
  if (recorder_.tells_story()) recorder_.Say(now_, machine.name(), "crashed");
}

void World::Start(Machine& machine, uint64_t seed) {
  machine.Start(seed);
  tally_.Count("fault.restart");
  if (recorder_.tells_story()) recorder_.Say(now_, machine.name(), "started again");
}

void World::Part(const Machine& a, const Machine& b, Duration length) {
  tally_.Count("fault.partition");
  for (const NetAddress& from : a.addresses()) {
    for (const NetAddress& to : b.addresses()) network_.Part(from, to);
  }
  After(length, [this, &a, &b] {
    for (const NetAddress& from : a.addresses()) {
      for (const NetAddress& to : b.addresses()) network_.Join(from, to);
    }
  });
}

std::optional<World::Event> World::NextEvent() const {
  std::optional<Event> next;
  if (const std::optional<Time> action = timeline_.Next()) next = {*action, nullptr};
  for (size_t i = 0; i < machines_.size(); i++) {
    // A working host checks its deadlines by itself.
    if (!machines_[i]->runs() || awake_[i]) continue;
    const std::optional<Time> deadline = machines_[i]->host().NextDeadline();
    const bool is_first =
        !next || (next->machine == nullptr ? deadline <= next->when : deadline < next->when);
    if (deadline && is_first) next = {*deadline, machines_[i].get()};
  }
  return next;
}

void World::Step(const Event& event) {
  steps_at_one_time_ = event.when > now_ ? 0 : steps_at_one_time_ + 1;
  now_ = std::max(now_, event.when);
  if (steps_at_one_time_ == kMaxStepsAtOneTime) {
    verdict_.Complain("clock", "time stands still: something asks again and again for now");
  }
  if (event.machine != nullptr) return Wake(*event.machine);
  timeline_.Take()();
}

bool World::RunUntil(const std::function<bool()>& done, Time limit) {
  while (!done()) {
    const std::optional<Event> next = NextEvent();
    if (!next || next->when > limit || !verdict_.clean()) {
      if (!next || next->when > limit) now_ = std::max(now_, limit);
      return done();
    }
    Step(*next);
  }
  return true;
}

}  // namespace rdmaemu::sim
