// The network between the machines of a run. Each datagram takes some time. The plan may lose,
// repeat, reorder, delay, corrupt or refuse a datagram.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "emulator/base/random.h"
#include "emulator/base/time.h"
#include "emulator/host/host.h"
#include "emulator/wire/icrc.h"
#include "tests/sim/direct_copy.h"
#include "tests/sim/plan.h"
#include "tests/sim/tally.h"
#include "tests/sim/timeline.h"

namespace rdmaemu::sim {

// Exists until the network has delivered or lost all copies of a datagram.
struct Transit {
  explicit Transit(std::shared_ptr<DirectCopy> copy) : placed(std::move(copy)) {}
  ~Transit() {
    if (placed != nullptr) placed->SetOver();
  }
  Transit(const Transit&) = delete;
  Transit& operator=(const Transit&) = delete;

  const std::shared_ptr<DirectCopy> placed;  // of kPlacedTrains
};

// A datagram, the form of a train, or the offer of a permit.
struct Datagram {
  wire::UdpFlow flow;
  std::vector<std::byte> bytes;
  bool corrupt = false;
  WireForm form = WireForm::kDatagrams;
  std::shared_ptr<Transit> transit = {};
  std::shared_ptr<std::byte> memory = {};  // of kPermitOffers: to which the offer refers
};
// Calls `packet` with each UDP payload that the datagram stands for. An offer is none.
void ForEachPacket(const Datagram& datagram,
                   const std::function<void(std::span<const std::byte>)>& packet);

class SimNetwork {
 public:
  // Gets each datagram at its arrival.
  using Receiver = std::function<void(const Datagram&)>;
  // Called for each datagram that the network did not simply deliver, with what the network did.
  using Observer = std::function<void(const Datagram&, std::string_view what)>;

  SimNetwork(const Plan& plan, Random& random, Timeline& timeline, Tally& tally)
      : plan_(plan), random_(random), timeline_(timeline), tally_(tally) {}

  void SetReceiver(Receiver receiver) { receiver_ = std::move(receiver); }
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // Returns false when the machine's transmit queue is full.
  bool Takes(const wire::UdpFlow& flow);
  void Send(Time now, Datagram datagram);

  // Drops everything between the two machines until Heal or Join.
  void Part(const NetAddress& a, const NetAddress& b) { parted_.insert(std::minmax(a, b)); }
  void Join(const NetAddress& a, const NetAddress& b) { parted_.erase(std::minmax(a, b)); }
  // From now on every datagram arrives in order.
  void Heal() {
    healed_ = true;
    parted_.clear();
  }
  bool healed() const { return healed_; }
  // Returns whether the plan has no misfortunes.
  bool perfect() const;
  // The number of copies that the network made of UC and UD datagrams, and whether it reordered
  // any.
  uint64_t unreliable_copies() const { return unreliable_copies_; }
  bool unreliable_reordered() const { return unreliable_reordered_; }

 private:
  bool Happens(uint32_t chance) { return chance != 0 && random_.Below(10'000) < chance; }
  void Observe(const Datagram& datagram, std::string_view what);
  void Arrive(Time when, Datagram datagram);
  void Corrupt(Datagram& datagram);

  const Plan& plan_;
  Random& random_;
  Timeline& timeline_;
  Tally& tally_;
  Receiver receiver_;
  Observer observer_;
  bool healed_ = false;
  std::set<std::pair<NetAddress, NetAddress>> parted_;
  // When the last datagram of a direction arrives. Later datagrams are not reordered before it
  // unless the plan says so.
  std::map<std::pair<NetAddress, NetAddress>, Time> last_arrival_;
  uint64_t unreliable_copies_ = 0;
  bool unreliable_reordered_ = false;
};

}  // namespace rdmaemu::sim
