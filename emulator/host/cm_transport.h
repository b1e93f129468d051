// Sends a host's CM messages: their partition, their link, and the fault rules.
#pragma once

#include <cstdint>
#include <optional>

#include "emulator/cm/environment.h"
#include "emulator/host/address_table.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/cm.h"

namespace rdmaemu {

class HostCmTransport final : public cm::CmTransport {
 public:
  HostCmTransport(const AddressTable& addresses, Fabric& fabric, CmFaults& faults)
      : addresses_(addresses), fabric_(fabric), faults_(faults) {}

  // Sends the message through the fault rules.
  Status Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) override;
  // Sends a message that has passed the fault rules.
  void SendMessage(Time now, const cm::CmRoute& route, const wire::CmMessage& message);
  // Counts a message that reaches connection management at this route's destination.
  void CountReceived(const cm::CmRoute& route, const wire::CmMessage& message);
  // Returns true when QP 1 of the address's device accepts the P_Key. QP 1 accepts every partition
  // in the device's table.
  bool TakesPkey(const NetAddress& local, uint16_t pkey) const;

  // Returns the CM message in a packet to QP 1. When QP 1 does not accept the packet, returns
  // nothing and counts the packet as dropped.
  std::optional<wire::CmMessage> CheckReceived(const wire::UdpFlow& flow,
                                               const wire::Packet& packet);

 private:
  // Returns the P_Key of the messages on a route.
  uint16_t PkeyOf(const cm::CmRoute& route) const;

  const AddressTable& addresses_;
  Fabric& fabric_;
  CmFaults& faults_;
};

}  // namespace rdmaemu
