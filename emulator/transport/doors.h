// The interface of the transports to a host's fault rules. The transports call it only while a flag
// is set, so that a host without rules is not slower.
#pragma once

#include <functional>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/fault/rule.h"
#include "emulator/verbs/objects.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

struct DoorFlags {
  bool completions = false;
  bool packets = false;
  bool memory = false;  // Memory must see every byte, so no payload takes a shortcut
  // The host has work to do between two steps of the engine. The engine then returns soon.
  bool interrupts = false;
};

// A completion that is about to enter its queue. The entry of a failed completion has no opcode.
struct PassingCompletion {
  QueuePair& qp;
  bool is_send;
  ibv_wc_opcode opcode;
  bool solicited;
  CqEntry entry;
};

// A packet that a queue pair of this host sends or receives.
struct PassingPacket {
  fault::Direction direction;
  const wire::PacketHeaders& headers;
  const NetAddress &source, &destination;
  uint8_t traffic_class;
  uint64_t payload_bytes;
  uint32_t qpn;                    // of the host's own queue pair
  bool stays;                      // both ends are on this host: one call as sent, one as received
  const NetAddress* at = nullptr;  // as Engine::Receive
};
// Returns the packet's bytes with ICRC. Empty: the payload could not be read.
using PacketBytes = std::function<std::vector<std::byte>()>;

class Doors {
 public:
  explicit Doors(const DoorFlags& its_flags) : flags(its_flags) {}
  virtual ~Doors() = default;
  // Pushes the completion unchanged or changed, now or later, once, several times or never. Returns
  // false when its queue overran.
  virtual bool Complete(Time now, PassingCompletion completion) = 0;
  // Returns true when the packet continues unchanged. Returns false when the packet is lost, or
  // when the door sends it later.
  virtual bool Passes(Time now, const PassingPacket& packet, const PacketBytes& bytes) = 0;

  const DoorFlags& flags;
};

}  // namespace rdmaemu::transport
