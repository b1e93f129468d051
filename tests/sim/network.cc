#include "tests/sim/network.h"

#include <algorithm>

#include "emulator/transport/train_form.h"

namespace rdmaemu::sim {
namespace {

// Decides by the upper three bits of the BTH's opcode (IBTA 9.2.1). UC and UD cannot correct
// datagrams that the network repeats or reorders. GSI datagrams are UD, but the CM corrects them.
bool IsUnreliableData(const Datagram& datagram) {
  constexpr std::byte kClass{0xe0}, kUc{0x20}, kUd{0x60};
  if (datagram.form == WireForm::kPermitOffers) return false;
  std::span<const std::byte> bth = datagram.bytes;
  if (datagram.form != WireForm::kDatagrams) {
    bth = bth.subspan(transport::kMaxFormHeadBytes - wire::kMaxHeaderBytes);
  }
  if (bth.size() < 12) return false;
  const std::byte transport = bth[0] & kClass;
  const bool is_gsi = bth[5] == std::byte{0} && bth[6] == std::byte{0} && bth[7] == std::byte{1};
  return transport == kUc || (transport == kUd && !is_gsi);
}

}  // namespace

void ForEachPacket(const Datagram& datagram,
                   const std::function<void(std::span<const std::byte>)>& packet) {
  if (datagram.form == WireForm::kPermitOffers) return;
  if (datagram.form == WireForm::kDatagrams) return packet(datagram.bytes);
  transport::Train train;
  if (transport::ParseForm(datagram.flow, datagram.bytes, train)) {
    transport::ForEachDatagram(train, packet);
  }
}

bool SimNetwork::perfect() const {
  const Misfortunes& m = plan_.misfortunes;
  return m.lose + m.repeat + m.reorder + m.delay + m.corrupt + m.refuse == 0 &&
         plan_.partition == 0;
}

bool SimNetwork::Takes(const wire::UdpFlow&) {
  if (healed_ || !Happens(plan_.misfortunes.refuse)) return true;
  tally_.Count("network.refused");
  return false;
}

void SimNetwork::Observe(const Datagram& datagram, std::string_view what) {
  if (observer_) observer_(datagram, what);
}

void SimNetwork::Send(Time now, Datagram datagram) {
  const Misfortunes& m = plan_.misfortunes;
  const std::pair direction{datagram.flow.source, datagram.flow.destination};
  Time arrival = now + plan_.latency;
  if (plan_.jitter.count() > 0) {
    arrival += Duration(random_.Below(static_cast<uint32_t>(plan_.jitter.count())));
  }
  Time& last = last_arrival_[direction];
  if (healed_) {
    last = std::max(last + Duration(1), arrival);
    return Arrive(last, std::move(datagram));
  }
  if (parted_.contains(std::minmax(direction.first, direction.second))) {
    tally_.Count("network.parted");
    return Observe(datagram, "lost in a partition");
  }
  if (Happens(m.lose)) {
    tally_.Count("network.lost");
    return Observe(datagram, "lost");
  }
  // Shared memory does not change bytes.
  if (datagram.form == WireForm::kDatagrams && Happens(m.corrupt)) Corrupt(datagram);
  const bool spared = plan_.spares_unreliable && IsUnreliableData(datagram);
  if (!spared && Happens(m.repeat)) {
    tally_.Count("network.repeated");
    Observe(datagram, "repeated");
    if (IsUnreliableData(datagram)) unreliable_copies_++;
    const auto most = static_cast<uint32_t>((plan_.most_delay - plan_.latency).count());
    Arrive(now + plan_.latency + Duration(random_.Below(most + 1)), datagram);
  }
  if (!spared && Happens(m.reorder)) {
    tally_.Count("network.reordered");
    Observe(datagram, "held back");
    if (IsUnreliableData(datagram)) unreliable_reordered_ = true;
    const auto most = static_cast<uint32_t>(plan_.latency.count() * 3);
    return Arrive(arrival + Duration(random_.Below(most + 1)), std::move(datagram));
  }
  if (Happens(m.delay)) {
    tally_.Count("network.delayed");
    Observe(datagram, "delayed with all behind it");
    const auto most = static_cast<uint32_t>((plan_.most_delay - plan_.latency).count());
    arrival += Duration(random_.Below(most + 1));
  }
  // The age limit also applies to datagrams that wait behind a delayed one.
  last = std::min(std::max(last + Duration(1), arrival), now + plan_.most_delay);
  Arrive(last, std::move(datagram));
}

void SimNetwork::Arrive(Time when, Datagram datagram) {
  timeline_.At(when, [this, datagram = std::move(datagram)] { receiver_(datagram); });
}

void SimNetwork::Corrupt(Datagram& datagram) {
  tally_.Count("network.corrupted");
  Observe(datagram, "corrupted");
  datagram.corrupt = true;
  std::vector<std::byte>& bytes = datagram.bytes;
  const auto bits = static_cast<uint32_t>(bytes.size() * 8);
  // Byte 4 of the BTH is masked in the ICRC, because switches may change FECN and BECN.
  const auto flip = [&](uint32_t bit) {
    if (bit / 8 != 4) bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  };
  switch (random_.Below(3)) {
    case 0:  // one bit
      for (uint32_t bit = random_.Below(bits);; bit = random_.Below(bits)) {
        flip(bit);
        if (bit / 8 != 4) return;
      }
    case 1:  // a burst that starts with a byte that the ICRC covers
    {
      const uint32_t at = 5 + random_.Below(static_cast<uint32_t>(bytes.size()) - 5);
      flip(at * 8);
      for (uint32_t bit = at * 8 + 1; bit < std::min(bits, at * 8 + 16); bit++) {
        if (random_.Below(2) == 0) flip(bit);
      }
      return;
    }
    default:  // a truncated datagram
      bytes.resize(random_.Below(static_cast<uint32_t>(bytes.size())));
      return;
  }
}

}  // namespace rdmaemu::sim
