// The door of packets: every packet that a queue pair of this host sends or receives, including
// packets within the host. Rules drop, delay, duplicate, reorder or damage packets. The rules of
// links also apply to packets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/links.h"
#include "emulator/host/faults/packet_exit.h"
#include "emulator/host/faults/programs.h"
#include "emulator/transport/doors.h"
#include "emulator/verbs/verbs.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {

class PacketFaults {
 public:
  // Limit of the packets that are delayed, held or reordered. Further packets are lost.
  static constexpr size_t kMaxKept = 65536;
  static constexpr size_t kMaxKeptBytes = 64 << 20;
  // Limit of the flows with numbered packets. Further flows share one number.
  static constexpr size_t kMaxFlows = 65536;
  // The longest time that a reordered packet waits for the packets behind it.
  static constexpr Duration kReorderWait = std::chrono::milliseconds(10);

  struct Kept {
    wire::UdpFlow flow;
    uint8_t traffic_class;
    bool leaves;  // to another host
    bool stays;   // sent and received by this host
    std::vector<std::byte> bytes;
    NetAddress local;  // address of its queue pair here
    uint32_t qpn;
    std::optional<NetAddress> at;  // own address of arrival; nothing: any
  };
  // Delivers a deferred packet to its queue pair on this host. PacketExit sends the other packets
  // to the network.
  using Deliver = std::function<void(Time, const Kept&, const wire::Packet&)>;
  PacketFaults(HostFaults& faults, LinkFaults& links, Verbs& verbs, const Programs& programs,
               PacketExit& exit, Deliver deliver)
      : faults_(faults),
        links_(links),
        verbs_(verbs),
        programs_(programs),
        exit_(exit),
        deliver_(std::move(deliver)),
        kept_(kMaxKept, faults.counters().kept_packets_full),
        overtaken_(kMaxKept, faults.counters().kept_packets_full) {}

  // Returns true when the packet continues unchanged.
  bool Passes(Time now, const transport::PassingPacket& packet,
              const transport::PacketBytes& bytes);

  // Drops the held packets of destroyed queue pairs. Delayed packets have already been sent, so
  // they still arrive.
  void ForgetGone();
  bool IsDue(Time now) const { return kept_.IsDue(now) || overtaken_.IsDue(now); }
  void Expire(Time now);
  auto& deferred() { return kept_; }
  const auto& deferred() const { return kept_; }
  const auto& overtaken() const { return overtaken_; }

 private:
  // The last member is Kept::stays. One copy of a multicast packet stays, and another leaves.
  using Flow = std::tuple<fault::Direction, NetAddress, NetAddress, uint32_t, bool>;
  struct Overtaken {
    Flow flow;
    uint64_t by;  // number of packets that must still overtake it
    Kept kept;
  };

  const fault::Rule* Decide(Time now, const transport::PassingPacket& packet, const Flow& flow);
  bool Do(Time now, const fault::Rule& rule, const transport::PassingPacket& packet,
          const Flow& flow, const transport::PacketBytes& bytes);
  bool PassesLink(Time now, const transport::PassingPacket& packet,
                  const transport::PacketBytes& bytes);
  void Damage(Time now, Kept kept);
  // Returns false when the packet is lost, because there is no room or its payload is unreadable.
  bool Admit(const Kept& kept);
  void Send(Time now, const Kept& due);
  void Keep(Time until, Kept kept);
  void Hold(std::string_view rule, Kept kept);
  // Counts one more packet of the flow that has overtaken the waiting packets.
  void Overtake(Time now, const Flow& flow);
  // Returns true when the packet's queue pair was destroyed. For a multicast packet: all receivers.
  bool IsGone(const Kept& kept);
  static Kept KeptOf(const transport::PassingPacket& packet, const transport::PacketBytes& bytes);

  HostFaults& faults_;
  LinkFaults& links_;
  Verbs& verbs_;
  const Programs& programs_;
  PacketExit& exit_;
  Deliver deliver_;
  std::map<Flow, uint64_t> numbers_;
  Deferred<Kept> kept_;
  Deferred<Overtaken>
      overtaken_;          // until kReorderWait has passed, or enough packets have overtaken them
  size_t kept_bytes_ = 0;  // of all deferred packets
};

}  // namespace rdmaemu
