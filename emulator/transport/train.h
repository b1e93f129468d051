// A train: consecutive packets of one message as one unit of work, with headers once and a payload
// that is either bytes or ranges of a process's memory. Packets between two QPs of a host are
// trains and are never serialised; a packet from the wire is a train of one.
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
  // `operation` is the message's as if it were one packet (SEND Only with Immediate, READ response
  // Only); `psn` is the first packet's. What only the last packet carries is filled in when the
  // train has it, what only the first carries likewise.
  wire::PacketHeaders headers;
  NetAddress source, destination;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  bool begins = true;  // holds the message's first packet
  bool ends = true;    // holds its last
  uint32_t packets = 1;
  uint32_t mtu_bytes = wire::kMaxMtuBytes;  // payload of each packet but the message's last
  bool is_bytes = false;
  // Where is_bytes: of a packet, or of the sender's shared memory, where they stand as long as the
  // sender waits for the answer.
  std::span<const std::byte> bytes;
  // The payloads of several packets as they came, instead of `bytes`; only Engine::Receive makes
  // such a train, and hands it to nobody who takes packets off it.
  std::span<const std::span<const std::byte>> parts;
  Pieces pieces;            // otherwise
  uint32_t sender_qpn = 0;  // where this host sends it
  // Of a request: the local QP whose memory `pieces` names, and its life (QpContext::epoch). Of an
  // answer: the life of the QP that asked. 0: from the wire.
  Handle origin = 0;
  uint64_t epoch = 0;
  // Of a READ response: the local QP that gives it. Key and address of what `pieces` names stand in
  // the headers, which do not carry them on the wire.
  Handle answerer = 0;
  // How many regions had ended when the train was queued inside the host (EndedRegions).
  uint64_t regions_ended = 0;
  // A copy job has put the payload where it belongs.
  bool placed = false;
  // Set by the receiver: the sender's memory could not be read, so nothing has arrived.
  bool source_failed = false;

  uint64_t length() const {
    if (!parts.empty()) return uint64_t{packets - 1} * mtu_bytes + parts.back().size();
    return is_bytes ? bytes.size() : pieces.length();
  }
  const wire::OpcodeInfo& info() const { return headers.info(); }
  uint32_t last_psn() const { return PsnAdd(headers.psn, packets - 1); }

  // Takes packets off the front or the back of a train of several.
  void DropFront(uint32_t count);
  void KeepFront(uint32_t count);
};

// The operation of a packet by where it stands in the message, and back.
wire::Operation OperationAt(wire::Operation whole, bool first, bool last);
wire::Operation WholeOperation(wire::Operation packet);

}  // namespace rdmaemu::transport
