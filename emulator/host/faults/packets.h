// The door of packets: each one that a queue pair of this host sends or gets, also those that never
// leave the host. They are lost, late, doubled, out of order or damaged; and they go through links.
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
  // Packets that are delayed, held or reordered; more are lost.
  static constexpr size_t kMaxKept = 65536;
  static constexpr size_t kMaxKeptBytes = 64 << 20;
  // Flows whose packets are numbered; those beyond share one.
  static constexpr size_t kMaxFlows = 65536;
  // A packet that waits for those behind it comes after this time in any case.
  static constexpr Duration kReorderWait = std::chrono::milliseconds(10);

  struct Kept {
    wire::UdpFlow flow;
    uint8_t traffic_class;
    bool leaves;  // for another host
    bool stays;   // from this host, and for it
    std::vector<std::byte> bytes;
    NetAddress local;  // of its queue pair here
    uint32_t qpn;
    std::optional<NetAddress> at;  // the own address by which it came; nothing: any
  };
  // Where a packet goes on to that waited for its queue pair here; others go to the network.
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

  // True: it goes on as it is.
  bool Passes(Time now, const transport::PassingPacket& packet,
              const transport::PacketBytes& bytes);

  // Drops the held packets of destroyed queue pairs. Delayed ones have been sent: they arrive.
  void ForgetGone();
  bool IsDue(Time now) const { return kept_.IsDue(now) || overtaken_.IsDue(now); }
  void Expire(Time now);
  auto& deferred() { return kept_; }
  const auto& deferred() const { return kept_; }
  const auto& overtaken() const { return overtaken_; }

 private:
  // The last: it stays, which of a multicast packet one copy does, and another leaves.
  using Flow = std::tuple<fault::Direction, NetAddress, NetAddress, uint32_t, bool>;
  struct Overtaken {
    Flow flow;
    uint64_t by;  // so many packets more
    Kept kept;
  };

  const fault::Rule* Decide(Time now, const transport::PassingPacket& packet, const Flow& flow);
  bool Do(Time now, const fault::Rule& rule, const transport::PassingPacket& packet,
          const Flow& flow, const transport::PacketBytes& bytes);
  bool PassesLink(Time now, const transport::PassingPacket& packet,
                  const transport::PacketBytes& bytes);
  void Damage(Time now, Kept kept);
  // False: it is lost, because there is no room, or because its payload could not be read.
  bool Admit(const Kept& kept);
  void Send(Time now, const Kept& due);
  void Keep(Time until, Kept kept);
  void Hold(std::string_view rule, Kept kept);
  // One more packet of the flow has passed those that wait for it.
  void Overtake(Time now, const Flow& flow);
  // Its queue pair is no more; of a packet that came for a group, all that would take it.
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
  Deferred<Overtaken> overtaken_;  // until kReorderWait has passed, or enough packets have
  size_t kept_bytes_ = 0;          // of all that wait
};

}  // namespace rdmaemu
