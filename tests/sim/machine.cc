#include "tests/sim/machine.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "emulator/fault/scenario.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/transport/permit_offer.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kDirectionOut = 1;
constexpr uint32_t kLifeBits = 8;
constexpr std::byte kNoPayload{0xdb};

// Rules at doors that payloads pass. They match but never fire, so that they must change nothing.
constexpr char kWatching[] =
    "fault = [{name = 'completion', at = 'wc.recv', nth = 1000000000, drop = true},"
    " {name = 'packet', at = 'packet', nth = 1000000000, drop = true}]";

NetAddress Ipv6Of(uint32_t index) {
  NetAddress address{};
  address.bytes[0] = 0xfd;
  address.bytes[15] = static_cast<uint8_t>(index + 1);
  return address;
}

}  // namespace

class Machine::Port final : public Network {
 public:
  Port(const MachineSetup& setup, const testing::FakeSharedMemory& segments)
      : setup_(setup), segments_(segments) {}
  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t, size_t bytes) override {
    if (!setup_.network->Takes(flow)) return {};
    pending_ = {flow, std::vector<std::byte>(bytes), false};
    return pending_.bytes;
  }
  std::optional<std::span<std::byte>> AllocateForm(const wire::UdpFlow& flow, uint8_t, size_t bytes,
                                                   bool may_wait) override {
    if (!setup_.forms || flow.destination.IsMulticast()) return std::nullopt;
    if (!setup_.network->Takes(flow)) {
      return may_wait ? std::nullopt : std::optional(std::span<std::byte>());
    }
    pending_ = {flow, std::vector<std::byte>(bytes), false, WireForm::kTrains};
    return pending_.bytes;
  }
  void Commit() override {
    unsent_.push_back(std::make_shared<Unsent>(Unsent{std::move(pending_), Unsent::kFilled}));
    SendFilled();
  }
  std::unique_ptr<UnfilledForm> CommitUnfilled(size_t payload_bytes) override {
    // A host that uses the payload of kPlacedTrains finds these bytes.
    std::ranges::fill(std::span(pending_.bytes).last(payload_bytes), kNoPayload);
    unsent_.push_back(std::make_shared<Unsent>(Unsent{std::move(pending_), Unsent::kUnfilled}));
    return std::make_unique<Unfilled>(*this, unsent_.back(), payload_bytes);
  }
  bool takes_unfilled() const override { return true; }
  bool SendOffer(const wire::UdpFlow& flow, std::span<const std::byte> offer) override {
    if (!setup_.directs || !setup_.network->Takes(flow)) return false;
    Datagram datagram{flow, {offer.begin(), offer.end()}, false, WireForm::kPermitOffers};
    datagram.memory = MemoryAt(transport::PermitOffer::Parse(offer)->page);
    if (datagram.memory == nullptr) setup_.verdict->Complain("network", "an offer of no page");
    unsent_.push_back(std::make_shared<Unsent>(Unsent{std::move(datagram), Unsent::kFilled}));
    SendFilled();
    return true;
  }
  std::shared_ptr<JobPage> OpenJobPage(const JobReference&) override { return PageAt(offered_); }
  Result<Segment> OpenLane(const JobReference&, SharedMemory& own) override {
    return static_cast<testing::FakeSharedMemory&>(own).Adopt(offered_, sizeof(SendLane));
  }
  std::shared_ptr<const int> OpenCounter(const NetAddress& peer, int fd) override {
    // The system denies some, as ptrace_scope does.
    const bool is_denied = fd < 0 || fd % 3 == 0;
    const int number =
        is_denied ? -1 : setup_.counter_of(peer, CounterId{static_cast<uint32_t>(fd)});
    return number < 0 ? nullptr : std::make_shared<int>(number);
  }
  void AddToCounter(const NetAddress& peer, int fd) override {
    if (const auto number = OpenCounter(peer, fd)) setup_.add_to_counter(*number);
  }
  // The memory of the offer that the host receives now.
  void SetOffered(std::shared_ptr<std::byte> memory) { offered_ = std::move(memory); }
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override {
    if (!groups_.insert({local, group}).second) {
      setup_.verdict->Complain("network", group.ToString() + " is joined twice");
    }
    return {};
  }
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override {
    if (groups_.erase({local, group}) == 0) {
      setup_.verdict->Complain("network", group.ToString() + " is left and was not joined");
    }
  }
  std::set<std::pair<NetAddress, NetAddress>>& groups() { return groups_; }

  // Forgets what a crashed host has not sent. Its programs do not run any more, either.
  void Forget() {
    for (const auto& unsent : unsent_) {
      if (unsent->copy != nullptr) unsent->copy->SetOver();
    }
    unsent_.clear();
    in_transit_.clear();
  }
  // A form may be looked at if everything before it has been delivered, or is copied directly.
  // Otherwise the receiver would write an earlier payload after a later one.
  void LookAhead(const NetAddress& at, const DirectHandler& direct) {
    std::vector<std::weak_ptr<Transit>>& sent = in_transit_[at];
    std::erase_if(sent, [](const auto& each) { return each.expired(); });
    const bool are_placed =
        std::ranges::all_of(sent, [](const auto& each) { return each.lock()->placed != nullptr; });
    if (!are_placed) return;
    for (const std::shared_ptr<Unsent>& unsent : unsent_) {
      if (unsent->datagram.flow.destination != at) continue;
      if (unsent->copy == nullptr && !Direct(*unsent, direct)) return;
      if (!unsent->copy->IsDirect() && unsent->state != Unsent::kPlaced) return;
    }
  }
  // Sends the forms that are filled, in order.
  void SendFilled() {
    for (; !unsent_.empty() && unsent_.front()->state != Unsent::kUnfilled; unsent_.pop_front()) {
      Unsent& front = *unsent_.front();
      if (front.copy != nullptr && front.state != Unsent::kPlaced) {
        if (front.copy->was_offered()) setup_.tally->Count("direct.taken_back");
        front.copy->SetOver();
      }
      if (front.state == Unsent::kLost) continue;
      Datagram& datagram = front.datagram;
      if (front.state == Unsent::kPlaced) datagram.form = WireForm::kPlacedTrains;
      datagram.transit = std::make_shared<Transit>(
          front.state == Unsent::kPlaced ? std::move(front.copy) : nullptr);
      if (setup_.directs) in_transit_[datagram.flow.destination].push_back(datagram.transit);
      ForEachPacket(datagram, [this](std::span<const std::byte> packet) {
        setup_.recorder->AddPacket(*setup_.now, setup_.index << 1 | kDirectionOut, packet);
      });
      setup_.network->Send(*setup_.now, std::move(datagram));
    }
  }

 private:
  // A form whose payload is missing holds back what was sent later, as in a ring.
  struct Unsent {
    Datagram datagram;
    // kPlaced: the payload is at the destination that the receiver has named.
    enum State : uint8_t { kUnfilled, kFilled, kLost, kPlaced } state;
    std::optional<JobReference> job = {};
    std::shared_ptr<DirectCopy> copy = {};
  };
  std::shared_ptr<std::byte> MemoryAt(const JobReference& job) const {
    return segments_.Map(SegmentId{job.segment}, job.offset);
  }
  static std::shared_ptr<JobPage> PageAt(const std::shared_ptr<std::byte>& memory) {
    return {memory, reinterpret_cast<JobPage*>(memory.get())};
  }
  // Returns false if the form refers to no copy.
  bool Direct(Unsent& unsent, const DirectHandler& direct) {
    if (!unsent.job || unsent.state != Unsent::kUnfilled) return false;
    const std::shared_ptr<JobPage> page = PageAt(MemoryAt(*unsent.job));
    if (page == nullptr) return false;
    unsent.copy =
        std::make_shared<DirectCopy>(page, *unsent.job, uint8_t{Unsent::kPlaced}, *setup_.tally);
    if (!direct(unsent.datagram, unsent.copy)) unsent.copy->Decline();
    return true;
  }
  class Unfilled final : public UnfilledForm {
   public:
    Unfilled(Port& port, std::shared_ptr<Unsent> form, size_t payload_bytes)
        : port_(port), form_(std::move(form)), payload_bytes_(payload_bytes) {}
    std::span<std::byte> payload() const override {
      return std::span(form_->datagram.bytes).last(payload_bytes_);
    }
    std::byte* mark() const override { return reinterpret_cast<std::byte*>(&form_->state); }
    std::byte filled_mark() const override { return std::byte{Unsent::kFilled}; }
    bool IsFilled() const override {
      return form_->state == Unsent::kFilled || form_->state == Unsent::kPlaced;
    }
    bool takes_references() const override { return port_.setup_.directs; }
    void Refer(const JobReference& job) override {
      form_->job = job;
      port_.setup_.refers(form_->datagram.flow.destination);
    }
    void Finish(bool filled) override {
      if (!filled || !IsFilled()) form_->state = filled ? Unsent::kFilled : Unsent::kLost;
      port_.SendFilled();
    }
    void Abandon() override { Finish(false); }

   private:
    Port& port_;
    std::shared_ptr<Unsent> form_;
    size_t payload_bytes_;
  };

  const MachineSetup& setup_;
  const testing::FakeSharedMemory& segments_;
  Datagram pending_;
  std::deque<std::shared_ptr<Unsent>> unsent_;
  std::map<NetAddress, std::vector<std::weak_ptr<Transit>>> in_transit_;  // by destination
  std::shared_ptr<std::byte> offered_;
  std::set<std::pair<NetAddress, NetAddress>> groups_;  // own address and group
};

class Machine::Trace final : public trace::Sink {
 public:
  Trace(Recorder& recorder, const std::string& name) : recorder_(recorder), name_(name) {}
  bool wants_records() const override { return recorder_.wants_records(); }
  void Write(const trace::Record& record) override { recorder_.Add(name_, record); }
  bool wants_packets() const override { return false; }  // the port writes packets
  void WritePacket(Time, const wire::UdpFlow&, std::span<const std::byte>) override {}

 private:
  Recorder& recorder_;
  const std::string& name_;
};

Machine::Machine(MachineSetup setup)
    : memory(*setup.verdict),
      setup_(std::move(setup)),
      name_(std::string("m") + std::to_string(setup_.index)),
      ipv4_(NetAddress::Ipv4(0x0a000001 + setup_.index)),
      ipv6_(Ipv6Of(setup_.index)),
      second_ipv4_(NetAddress::Ipv4(0x0a000101 + setup_.index)),
      port_(std::make_unique<Port>(setup_, segments)),
      trace_(std::make_unique<Trace>(*setup_.recorder, name_)) {}

Machine::~Machine() = default;

void Machine::Start(uint64_t seed) {
  HostConfig config;
  if (setup_.watched) {
    config.faults = fault::ParseScenario(kWatching, "watching", FaultVocabulary()).value();
  }
  config.name = name_;
  config.programs_act_alone = true;
  config.seed = seed;
  const auto on_the_network = [](const NetAddress& address) {
    HostAddress own{.address = address};
    if (address.IsIpv4()) own.prefix_bits = kIpv4PrefixBits;
    return own;
  };
  config.devices.push_back(
      {"rxe0", setup_.profile, {on_the_network(ipv4_), on_the_network(ipv6_)}});
  if (setup_.devices > 1) {
    config.devices.push_back({"rxe1", setup_.profile, {on_the_network(second_ipv4_)}});
  }
  segments.has_descriptors = setup_.directs;
  memory.SetPids((setup_.index << kLifeBits | (life_ & ((1 << kLifeBits) - 1))) *
                 AddressSpaces::kMaxPids);
  host_ = std::make_unique<Host>(std::move(config),
                                 Host::Environment{memory, segments, counters, *port_, *trace_});
  life_++;
}

void Machine::Crash() {
  host_.reset();
  port_->Forget();
  port_->groups().clear();  // the memberships belonged to the closed sockets
  memory.Clear();
  socket_.clear();
  paused_ = false;
}

std::deque<Datagram> Machine::Resume() {
  paused_ = false;
  return std::exchange(socket_, {});
}

std::vector<NetAddress> Machine::addresses() const {
  if (setup_.devices == 1) return {ipv4_, ipv6_};
  return {ipv4_, ipv6_, second_ipv4_};
}

bool Machine::Owns(const NetAddress& address) const {
  return address == ipv4_ || address == ipv6_ || (setup_.devices > 1 && address == second_ipv4_);
}

void Machine::SendFilledForms() { port_->SendFilled(); }

void Machine::LookAhead(const NetAddress& at, const DirectHandler& direct) {
  port_->LookAhead(at, direct);
}

void Machine::Receive(const Datagram& datagram) {
  const std::span<const std::byte> bytes = datagram.bytes;
  port_->SetOffered(datagram.memory);
  host_->Receive(*setup_.now, datagram.flow, {&bytes, 1}, nullptr, datagram.form);
  port_->SetOffered(nullptr);
}

size_t Machine::memberships() const { return port_->groups().size(); }

bool Machine::KeepForLater(const Datagram& datagram) {
  if (socket_.size() >= kSocketDatagrams) return false;
  socket_.push_back(datagram);
  return true;
}

}  // namespace rdmaemu::sim
