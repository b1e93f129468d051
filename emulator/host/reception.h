// Receives packets from other hosts: as datagrams, or as forms of trains. Applies the doors of
// packets, and gives each packet to the engine or to connection management.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/host/cm_transport.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/doors.h"
#include "emulator/host/host.h"
#include "emulator/host/pause.h"
#include "emulator/transport/engine.h"
#include "emulator/verbs/verbs.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {

class Reception {
 public:
  struct Parts {
    HostFaults& faults;
    FaultDoors& doors;
    Fabric& fabric;
    Verbs& verbs;
    transport::Engine& engine;
    HostCmTransport& cm_transport;
    HostPause& pause;
    Network& network;
    SharedMemory& shared_memory;
    std::function<bool()> stands_still;  // the host is paused or has crashed
    std::function<void(Time)> do_deeds;  // executes the deeds of rules that fired
  };
  explicit Reception(Parts parts) : parts_(std::move(parts)) {}

  // Acts as Host::Receive.
  void Receive(Time now, const wire::UdpFlow& flow,
               std::span<const std::span<const std::byte>> udp_payloads, const NetAddress* at,
               WireForm form);
  // Acts as Host::Direct.
  Naming Direct(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                const std::shared_ptr<DirectForm>& direct);
  // Receives a packet that the packets' door delayed.
  void ReceiveKept(Time now, const PacketFaults::Kept& kept, const wire::Packet& packet);

 private:
  // The engine handles trains until they have this many packets. A rule may change the host then.
  static constexpr size_t kMaxPacketsOfTrains = 64;

  // Return how many payloads they received: up to the first one after which a rule may have changed
  // the host. The caller owns `flow` and `at`.
  size_t ReceiveSome(Time now, const wire::UdpFlow& flow,
                     std::span<const std::span<const std::byte>> udp_payloads,
                     const NetAddress* at);
  size_t ReceiveTrains(Time now, const wire::UdpFlow& flow,
                       std::span<const std::span<const std::byte>> forms, const NetAddress* at,
                       bool are_placed);
  // Returns true while each packet of a form must be seen.
  bool SeesPackets() const;
  void TakeOffer(Time now, const wire::UdpFlow& flow, std::span<const std::byte> bytes);
  void ReceiveAsDatagrams(Time now, const wire::UdpFlow& flow, std::span<const std::byte> form,
                          const NetAddress* at, bool is_placed);
  void ReceiveMad(Time now, const wire::UdpFlow& flow, const wire::Packet& packet);
  bool PassesDoor(Time now, const wire::UdpFlow& flow, const wire::Packet& packet,
                  std::span<const std::byte> bytes, const NetAddress* at);
  // Queues payloads for a paused host. A crashed host has lost them.
  void Keep(const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> udp_payloads,
            const NetAddress* at);

  Parts parts_;
  std::vector<wire::Packet> received_;  // used in each Receive; a member, to reuse its memory
};

}  // namespace rdmaemu
