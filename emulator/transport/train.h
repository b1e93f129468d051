// A train: consecutive packets of one message as one unit of work. A train has one set of headers.
// Its payload is bytes, or ranges of process memory. Packets between two QPs of a host are trains
// and are never serialised. A packet from the wire is a train of one packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emulator/base/net_address.h"
#include "emulator/transport/pieces.h"
#include "emulator/transport/psn.h"
#include "emulator/verbs/objects.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

struct Train {
  // `operation` is that of the message as a single packet (SEND Only with Immediate, READ response
  // Only). `psn` is that of the first packet. Fields that only the message's first or last packet
  // has are set when the train contains that packet.
  wire::PacketHeaders headers;
  NetAddress source, destination;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  bool begins = true;  // contains the message's first packet
  bool ends = true;    // contains the message's last packet
  uint32_t packets = 1;
  uint32_t mtu_bytes = wire::kMaxMtuBytes;  // payload bytes of each packet but the message's last
  bool is_bytes = false;
  // With is_bytes: the bytes of a packet or of the sender's shared memory. The sender's bytes stay
  // valid while the sender waits for the response.
  std::span<const std::byte> bytes;
  // The payloads of several received packets, instead of `bytes`. Only Engine::Receive makes such a
  // train. It never passes the train to code that removes packets from it.
  std::span<const std::span<const std::byte>> parts;
  Pieces pieces;            // otherwise
  uint32_t sender_qpn = 0;  // set when this host is the sender
  // For a request: the local QP that owns the memory in `pieces`, and that QP's epoch
  // (QpContext::epoch). For a response: the epoch of the requesting QP. 0: the train is from the
  // wire, or from a fault rule.
  Handle origin = 0;
  uint64_t epoch = 0;
  // For a READ response: the local responding QP. The headers hold the key and address of `pieces`,
  // which a response on the wire does not contain.
  Handle answerer = 0;
  uint64_t answerer_epoch = 0;  // that QP's epoch
  // The number of regions that had ended when the train was queued inside the host
  // (Core::RegionEnded).
  uint64_t regions_ended = 0;
  // A copy job has moved the payload to its destination.
  bool placed = false;
  // The train has waited for a copy (parking.h), and is delivered for the second time.
  bool was_parked = false;
  // The receiver sets this when the sender's memory could not be read, so that no data arrived.
  bool source_failed = false;

  uint64_t length() const {
    if (!parts.empty()) return uint64_t{packets - 1} * mtu_bytes + parts.back().size();
    return is_bytes ? bytes.size() : pieces.length();
  }
  const wire::OpcodeInfo& info() const { return headers.info(); }
  uint32_t last_psn() const { return PsnAdd(headers.psn, packets - 1); }
  // Returns true if the train is a whole message of one packet.
  bool is_one_packet() const { return packets == 1 && begins && ends; }

  // Remove packets from the front or keep only those at the front, of a train of several packets.
  void DropFront(uint32_t count);
  void KeepFront(uint32_t count);
};

// Convert between the operation of a whole message and that of one of its packets.
wire::Operation OperationAt(wire::Operation whole, bool first, bool last);
wire::Operation WholeOperation(wire::Operation packet);

}  // namespace rdmaemu::transport
