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

#include "emulator/host/fabric.h"
#include "emulator/host/faults_links.h"
#include "emulator/host/processes.h"
#include "emulator/transport/doors.h"
#include "emulator/verbs/verbs.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {

class PacketFaults {
 public:
  // Packets that wait, for their time, for others or for somebody who lets go; more are lost.
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
  PacketFaults(HostFaults& faults, LinkFaults& links, Verbs& verbs, const Processes& processes,
               Fabric& fabric, Deliver deliver)
      : faults_(faults),
        links_(links),
        verbs_(verbs),
        processes_(processes),
        fabric_(fabric),
        deliver_(std::move(deliver)) {}

  // True: it goes on as it is.
  bool Passes(Time now, const transport::PassingPacket& packet,
              const transport::PacketBytes& bytes);

  // What barriers hold goes on, in its order, with the next look at what is due.
  void LetGo(Time now, const fault::Release& release);
  // What is held of queue pairs that are no more.
  void ForgetGone();
  const auto& held() const { return held_; }

  bool IsDue(Time now) const { return !kept_.empty() && kept_.begin()->first <= now; }
  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

 private:
  // The last: it stays, which of a multicast packet one copy does, and another leaves.
  using Flow = std::tuple<fault::Direction, NetAddress, NetAddress, uint32_t, bool>;
  struct Overtaken {
    uint64_t by;  // so many packets more
    Time until;
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
  const Processes& processes_;
  Fabric& fabric_;
  Deliver deliver_;
  std::map<Flow, uint64_t> numbers_;
  std::multimap<Time, Kept> kept_;
  std::multimap<Flow, Overtaken> overtaken_;
  fault::Held<Kept> held_;
  size_t kept_bytes_ = 0;  // of all that wait
};

}  // namespace rdmaemu
