#include "tests/sim/machine.h"

#include <set>
#include <utility>

#include "emulator/fault/scenario.h"
#include "emulator/host/faults/host_faults.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kDirectionOut = 1;

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
  explicit Port(const MachineSetup& setup) : setup_(setup) {}
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
    unsent_.push_back(std::make_shared<Unsent>(Unsent{std::move(pending_), Unsent::kUnfilled}));
    return std::make_unique<Unfilled>(*this, unsent_.back(), payload_bytes);
  }
  bool takes_unfilled() const override { return true; }
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

  // Forgets what a crashed host has not sent.
  void Forget() { unsent_.clear(); }
  // Sends the forms that are filled, in order.
  void SendFilled() {
    for (; !unsent_.empty() && unsent_.front()->state != Unsent::kUnfilled; unsent_.pop_front()) {
      if (unsent_.front()->state == Unsent::kLost) continue;
      Datagram& datagram = unsent_.front()->datagram;
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
    enum State : uint8_t { kUnfilled, kFilled, kLost } state;
  };
  class Unfilled final : public UnfilledForm {
   public:
    Unfilled(Port& port, std::shared_ptr<Unsent> form, size_t payload_bytes)
        : port_(port), form_(std::move(form)), payload_bytes_(payload_bytes) {}
    std::span<std::byte> payload() const override {
      return std::span(form_->datagram.bytes).last(payload_bytes_);
    }
    std::byte* mark() const override { return reinterpret_cast<std::byte*>(&form_->state); }
    std::byte filled_mark() const override { return std::byte{Unsent::kFilled}; }
    bool IsFilled() const override { return form_->state == Unsent::kFilled; }
    void Finish(bool filled) override {
      form_->state = filled ? Unsent::kFilled : Unsent::kLost;
      port_.SendFilled();
    }
    void Abandon() override { Finish(false); }

   private:
    Port& port_;
    std::shared_ptr<Unsent> form_;
    size_t payload_bytes_;
  };

  const MachineSetup& setup_;
  Datagram pending_;
  std::deque<std::shared_ptr<Unsent>> unsent_;
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
      port_(std::make_unique<Port>(setup_)),
      trace_(std::make_unique<Trace>(*setup_.recorder, name_)) {}

Machine::~Machine() = default;

void Machine::Start(uint64_t seed) {
  HostConfig config;
  if (setup_.watched) {
    config.faults = fault::ParseScenario(kWatching, "watching", FaultVocabulary()).value();
  }
  config.name = name_;
  config.offers_events = true;
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

size_t Machine::memberships() const { return port_->groups().size(); }

bool Machine::KeepForLater(const Datagram& datagram) {
  if (socket_.size() >= kSocketDatagrams) return false;
  socket_.push_back(datagram);
  return true;
}

}  // namespace rdmaemu::sim
