// RoCEv2 packets (UDP port 4791): the headers as one plain struct, and its conversion to and from
// bytes. Parse makes all checks that need no state. No other code uses header offsets. Follows IBTA
// 9.2 (BTH and extended headers) and the division of the kernel's rxe_opcode.c.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"

namespace rdmaemu::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;
inline constexpr uint32_t kGsiQpn = 1;
inline constexpr uint32_t kGsiQkey = 0x80010000;
inline constexpr uint32_t kMulticastQpn = 0xffffff;
inline constexpr uint32_t kPsnMask = 0xffffff;
inline constexpr uint16_t kDefaultPkey = 0xffff;
// Returns true when two members of a partition may communicate. At least one must be a full member
// (the top bit). P_Keys whose low 15 bits are 0 name no partition.
constexpr bool PkeysMatch(uint16_t one, uint16_t other) {
  return ((one ^ other) & 0x7fff) == 0 && (one & 0x7fff) != 0 && ((one | other) & 0x8000) != 0;
}
inline constexpr size_t kIcrcBytes = 4;
inline constexpr size_t kMaxMtuBytes = 4096;
// Upper bound of a packet's headers in bytes: BTH, then DETH, RETH or AtomicETH, then ImmDt.
inline constexpr size_t kMaxHeaderBytes = 64;

// The opcode is a transport class (upper three bits) and an operation (lower five).
enum class TransportClass : uint8_t { kRc = 0x00, kUc = 0x20, kRd = 0x40, kUd = 0x60, kXrc = 0xa0 };

enum class Operation : uint8_t {
  kSendFirst = 0,
  kSendMiddle = 1,
  kSendLast = 2,
  kSendLastImm = 3,
  kSendOnly = 4,
  kSendOnlyImm = 5,
  kWriteFirst = 6,
  kWriteMiddle = 7,
  kWriteLast = 8,
  kWriteLastImm = 9,
  kWriteOnly = 10,
  kWriteOnlyImm = 11,
  kReadRequest = 12,
  kReadResponseFirst = 13,
  kReadResponseMiddle = 14,
  kReadResponseLast = 15,
  kReadResponseOnly = 16,
  kAcknowledge = 17,
  kAtomicAcknowledge = 18,
  kCompareSwap = 19,
  kFetchAdd = 20,
  kSendLastInvalidate = 22,
  kSendOnlyInvalidate = 23,
  kFlush = 28,        // IBTA 1.5, annex A19
  kAtomicWrite = 29,  // the same
};

// The headers of an opcode, and the packet's position in its message. opcode.cc has the one table
// of all opcodes. Exactly one of first, middle, last and only is set. Requests of one packet and
// acknowledges are `only`. A READ response has `response` and `read`, an ATOMIC acknowledge has
// `response` and `atomic`. An ATOMIC WRITE has `atomic_write`, and neither `write` nor `atomic`.
// RD, XRC and CNP opcodes have no name yet.
struct OpcodeInfo {
  const char* name;  // "RC SEND First"; nullptr: no such opcode
  bool request, response;
  bool first, middle, last, only;
  bool send, write, read, atomic, atomic_write, flush, ack;
  bool reth, feth, atomic_eth, aeth, atomic_ack_eth, deth, imm, ieth, payload;
  uint8_t header_bytes;  // BTH and extended headers
};
// Indexed by the opcode byte of the BTH. Entries without an opcode have a null name.
extern const std::array<OpcodeInfo, 256> kOpcodes;

// Returns the BTH's opcode byte.
constexpr uint8_t OpcodeByte(TransportClass transport, Operation operation) {
  return static_cast<uint8_t>(transport) | static_cast<uint8_t>(operation);
}
inline const OpcodeInfo& Opcode(TransportClass transport, Operation operation) {
  return kOpcodes[OpcodeByte(transport, operation)];
}

// Syndromes of an AETH (IBTA 9.7.5.1). The upper three bits give the kind.
enum class AckKind : uint8_t { kAck = 0x00, kRnrNak = 0x20, kNak = 0x60 };
enum class NakCode : uint8_t {
  kPsnSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperation = 3,
  kInvalidRdRequest = 4,
};
inline constexpr uint8_t kAethUnlimitedCredits = 0x1f;

// All fields in host order. Fields that the opcode does not carry are zero.
struct PacketHeaders {
  TransportClass transport = TransportClass::kRc;
  Operation operation = Operation::kSendOnly;
  bool solicited = false;
  bool mig_req = true;
  bool ack_request = false;
  uint8_t pad_bytes = 0;
  uint16_t pkey = kDefaultPkey;
  uint32_t destination_qpn = 0;  // 24 bits
  uint32_t psn = 0;              // 24 bits
  // RETH, or the address and rkey of AtomicETH
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t dma_length = 0;  // RETH
  uint8_t placement = 0;    // FETH, 4 bits: kFlushGlobal, kFlushPersistent (newer_verbs.h)
  uint8_t selectivity = 0;  // FETH, 2 bits: kFlushRange, kFlushRegion
  uint64_t swap_add = 0;    // AtomicETH: swap data or addend
  uint64_t compare = 0;
  uint8_t syndrome = 0;     // AETH
  uint32_t msn = 0;         // AETH, 24 bits
  uint64_t original = 0;    // AtomicAckETH
  uint32_t qkey = 0;        // DETH
  uint32_t source_qpn = 0;  // DETH, 24 bits
  // A bit in the reserved byte of DETH, which receivers ignore. The bit means that the sender named
  // both ends by their link-local GIDs. Emulated hosts send such packets between the addresses in
  // these GIDs (LinkLocalOf). The receiver's GRH contains the GIDs.
  bool by_link_local = false;
  // Another bit in that byte: the sender named the receiver by its LID, without a GRH.
  bool by_lid = false;
  uint32_t immediate = 0;        // ImmDt as on the wire (big endian: ibv_wc::imm_data)
  uint32_t invalidate_rkey = 0;  // IETH

  const OpcodeInfo& info() const { return Opcode(transport, operation); }
};

struct Packet {
  PacketHeaders headers;
  std::span<const std::byte> payload;  // without padding and ICRC
};

// Reasons why Parse refuses bytes. The host has a counter for each.
enum class ParseError : uint8_t { kTooShort, kBadVersion, kBadOpcode, kBadLength, kBadPadding };

// Parses the headers at the beginning of `bytes`. Their length is info().header_bytes. Returns
// kTooShort, kBadVersion or kBadOpcode, or nothing.
std::optional<ParseError> ParseHeaders(std::span<const std::byte> bytes, PacketHeaders& headers);

// Parses a UDP payload with its ICRC, which VerifyIcrc (icrc.h) has checked. The payload has at
// most kMaxMtuBytes. The transport checks the payload length against the path MTU, because a wrong
// length needs a NAK.
tl::expected<Packet, ParseError> Parse(std::span<const std::byte> udp_payload);
// The same, without a copy of the packet. Returns nothing on success. After an error `packet` has
// no meaning.
std::optional<ParseError> ParseInto(std::span<const std::byte> udp_payload, Packet& packet);

// Writes the headers to `out` (at least kMaxHeaderBytes). Returns their length, or 0 for an opcode
// without a name. The caller appends payload, pad bytes (zeros) and ICRC, in this order (SealPacket
// in icrc.h).
size_t EmitHeaders(const PacketHeaders& headers, std::span<std::byte> out);

}  // namespace rdmaemu::wire
