// How CM messages leave a host: from which partition, over which link, past the fault rules.
#pragma once

#include <cstdint>

#include "emulator/cm/environment.h"
#include "emulator/host/address_table.h"
#include "emulator/host/fabric.h"
#include "emulator/host/faults/cm.h"

namespace rdmaemu {

class HostCmTransport final : public cm::CmTransport {
 public:
  HostCmTransport(const AddressTable& addresses, Fabric& fabric, CmFaults& faults)
      : addresses_(addresses), fabric_(fabric), faults_(faults) {}

  // By way of the fault rules.
  Status Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) override;
  // What the fault rules let pass.
  void SendMessage(Time now, const cm::CmRoute& route, const wire::CmMessage& message);
  // QP 1 of the address's device takes packets of every partition in its table.
  bool TakesPkey(const NetAddress& local, uint16_t pkey) const;

 private:
  // The P_Key that messages of the address's device leave with.
  uint16_t PkeyOf(const NetAddress& local) const;

  const AddressTable& addresses_;
  Fabric& fabric_;
  CmFaults& faults_;
};

}  // namespace rdmaemu
