// Where a host's fault rules stand in the transports. Asked only while the flags say that somebody
// wants to know, so that nothing gets slower otherwise.
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
  bool memory = false;  // every byte is asked for by Memory, and none taken another way
  // The host has something to do between two steps of the engine, which returns soon.
  bool interrupts = false;
};

// A completion on its way into its queue. Of a failed one the entry has no opcode.
struct PassingCompletion {
  QueuePair& qp;
  bool is_send;
  ibv_wc_opcode opcode;
  bool solicited;
  CqEntry entry;
};

// A packet on its way from a queue pair of this host, or to one.
struct PassingPacket {
  fault::Direction direction;
  const wire::PacketHeaders& headers;
  const NetAddress &source, &destination;
  uint8_t traffic_class;
  uint64_t payload_bytes;
  uint32_t qpn;  // of the host's own queue pair
  bool stays;    // both ends are this host's: it passes once as sent and once as received
  const NetAddress* at = nullptr;  // as Engine::Receive
};
// The packet as bytes, with its ICRC; none when its payload could not be read.
using PacketBytes = std::function<std::vector<std::byte>()>;

class Doors {
 public:
  explicit Doors(const DoorFlags& its_flags) : flags(its_flags) {}
  virtual ~Doors() = default;
  // Pushes it as it is, changed, later, more than once or never. False: its queue overran.
  virtual bool Complete(Time now, PassingCompletion completion) = 0;
  // True: it goes on as it is; false: it is lost, or comes by another way.
  virtual bool Passes(Time now, const PassingPacket& packet, const PacketBytes& bytes) = 0;

  const DoorFlags& flags;
};

}  // namespace rdmaemu::transport
