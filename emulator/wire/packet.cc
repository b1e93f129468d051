// Conversion of RoCEv2 headers to and from bytes. Offsets are those of IBTA 9.2 (BTH), 9.3.3 (DETH)
// and 9.3.4 to 9.3.7. ParseExtended and EmitExtended define the order of extended headers, and must
// agree.
#include "emulator/wire/packet.h"

#include <cstring>

#include "emulator/wire/byte_order.h"

namespace rdmaemu::wire {
namespace {

constexpr size_t kBaseHeaderBytes = 12;
constexpr uint8_t kSolicitedBit = 0x80;
constexpr uint8_t kMigReqBit = 0x40;
constexpr uint8_t kPadShift = 4;
constexpr uint8_t kVersionMask = 0x0f;
constexpr uint8_t kAckRequestBit = 0x80;
constexpr uint8_t kByLinkLocalBit = 0x01;
constexpr uint8_t kByLidBit = 0x02;
constexpr uint8_t kTransportMask = 0xe0;
constexpr uint8_t kOperationMask = 0x1f;
constexpr uint8_t kPlacementMask = 0x0f;
constexpr uint8_t kSelectivityMask = 0x03;
constexpr uint8_t kSelectivityShift = 4;

uint8_t ByteAt(const std::byte* p, size_t offset) { return static_cast<uint8_t>(p[offset]); }

constexpr PacketHeaders kNoHeaders;

TransportClass TransportIn(const std::byte* bth) {
  return static_cast<TransportClass>(ByteAt(bth, 0) & kTransportMask);
}
Operation OperationIn(const std::byte* bth) {
  return static_cast<Operation>(ByteAt(bth, 0) & kOperationMask);
}
uint8_t PadIn(const std::byte* bth) { return ByteAt(bth, 1) >> kPadShift & 3; }

void ParseBth(const std::byte* p, PacketHeaders& headers) {
  headers.transport = TransportIn(p);
  headers.operation = OperationIn(p);
  headers.solicited = (ByteAt(p, 1) & kSolicitedBit) != 0;
  headers.mig_req = (ByteAt(p, 1) & kMigReqBit) != 0;
  headers.pad_bytes = PadIn(p);
  headers.pkey = static_cast<uint16_t>(LoadBig<2>(p + 2));
  headers.destination_qpn = static_cast<uint32_t>(LoadBig<3>(p + 5));
  headers.ack_request = (ByteAt(p, 8) & kAckRequestBit) != 0;
  headers.psn = static_cast<uint32_t>(LoadBig<3>(p + 9));
}

// Reads the extended headers from `p`, which has info.header_bytes - kBaseHeaderBytes bytes.
void ParseExtended(const std::byte* p, const OpcodeInfo& info, PacketHeaders& headers) {
  if (info.deth) {
    headers.qkey = static_cast<uint32_t>(LoadBig<4>(p));
    headers.by_link_local = (ByteAt(p, 4) & kByLinkLocalBit) != 0;
    headers.by_lid = (ByteAt(p, 4) & kByLidBit) != 0;
    headers.source_qpn = static_cast<uint32_t>(LoadBig<3>(p + 5));
    p += 8;
  }
  if (info.feth) {
    headers.placement = ByteAt(p, 3) & kPlacementMask;
    headers.selectivity = ByteAt(p, 3) >> kSelectivityShift & kSelectivityMask;
    p += 4;
  }
  if (info.reth) {
    headers.remote_address = LoadBig<8>(p);
    headers.rkey = static_cast<uint32_t>(LoadBig<4>(p + 8));
    headers.dma_length = static_cast<uint32_t>(LoadBig<4>(p + 12));
    p += 16;
  }
  if (info.atomic_eth) {
    headers.remote_address = LoadBig<8>(p);
    headers.rkey = static_cast<uint32_t>(LoadBig<4>(p + 8));
    headers.swap_add = LoadBig<8>(p + 12);
    headers.compare = LoadBig<8>(p + 20);
    p += 28;
  }
  if (info.aeth) {
    headers.syndrome = ByteAt(p, 0);
    headers.msn = static_cast<uint32_t>(LoadBig<3>(p + 1));
    p += 4;
  }
  if (info.atomic_ack_eth) {
    headers.original = LoadBig<8>(p);
    p += 8;
  }
  if (info.imm) {
    std::memcpy(&headers.immediate, p, 4);
    p += 4;
  }
  if (info.ieth) headers.invalidate_rkey = static_cast<uint32_t>(LoadBig<4>(p));
}

void EmitExtended(std::byte* p, const OpcodeInfo& info, const PacketHeaders& headers) {
  if (info.deth) {
    StoreBig<4>(p, headers.qkey);
    StoreBig<1>(p + 4,
                (headers.by_link_local ? kByLinkLocalBit : 0) | (headers.by_lid ? kByLidBit : 0));
    StoreBig<3>(p + 5, headers.source_qpn);
    p += 8;
  }
  if (info.feth) {
    StoreBig<4>(p, (headers.selectivity & kSelectivityMask) << kSelectivityShift |
                       (headers.placement & kPlacementMask));
    p += 4;
  }
  if (info.reth) {
    StoreBig<8>(p, headers.remote_address);
    StoreBig<4>(p + 8, headers.rkey);
    StoreBig<4>(p + 12, headers.dma_length);
    p += 16;
  }
  if (info.atomic_eth) {
    StoreBig<8>(p, headers.remote_address);
    StoreBig<4>(p + 8, headers.rkey);
    StoreBig<8>(p + 12, headers.swap_add);
    StoreBig<8>(p + 20, headers.compare);
    p += 28;
  }
  if (info.aeth) {
    StoreBig<1>(p, headers.syndrome);
    StoreBig<3>(p + 1, headers.msn);
    p += 4;
  }
  if (info.atomic_ack_eth) {
    StoreBig<8>(p, headers.original);
    p += 8;
  }
  if (info.imm) {
    std::memcpy(p, &headers.immediate, 4);
    p += 4;
  }
  if (info.ieth) StoreBig<4>(p, headers.invalidate_rkey);
}

// Checks what all packets have, except the payload. Sets `info` to the properties of the opcode.
std::optional<ParseError> CheckHeaders(std::span<const std::byte> bytes, const OpcodeInfo*& info) {
  if (bytes.size() < kBaseHeaderBytes) return ParseError::kTooShort;
  const std::byte* const p = bytes.data();
  if ((ByteAt(p, 1) & kVersionMask) != 0) return ParseError::kBadVersion;
  info = &Opcode(TransportIn(p), OperationIn(p));
  if (info->name == nullptr) return ParseError::kBadOpcode;
  return bytes.size() < info->header_bytes ? std::optional(ParseError::kTooShort) : std::nullopt;
}

void ParseChecked(const std::byte* p, const OpcodeInfo& info, PacketHeaders& headers) {
  // Copying a constant is four times as fast as the `rep stos` of an initialisation.
  std::memcpy(static_cast<void*>(&headers), &kNoHeaders, sizeof kNoHeaders);
  ParseBth(p, headers);
  ParseExtended(p + kBaseHeaderBytes, info, headers);
}

}  // namespace

std::optional<ParseError> ParseHeaders(std::span<const std::byte> bytes, PacketHeaders& headers) {
  const OpcodeInfo* info = nullptr;
  if (const auto error = CheckHeaders(bytes, info)) return error;
  ParseChecked(bytes.data(), *info, headers);
  return std::nullopt;
}

std::optional<ParseError> ParseInto(std::span<const std::byte> udp_payload, Packet& packet) {
  if (udp_payload.size() < kIcrcBytes) return ParseError::kTooShort;
  const OpcodeInfo* checked = nullptr;
  if (const auto error =
          CheckHeaders(udp_payload.first(udp_payload.size() - kIcrcBytes), checked)) {
    return error;
  }
  const OpcodeInfo& info = *checked;
  const std::byte* const p = udp_payload.data();
  const size_t padded = udp_payload.size() - info.header_bytes - kIcrcBytes;
  // The transport checks the length of a First or Middle packet against the path MTU. For a wrong
  // length it sends a NAK, which needs the QP.
  if (padded % 4 != 0 || (!info.payload && padded != 0)) return ParseError::kBadLength;
  const size_t pad = PadIn(p);
  if (pad > padded) return ParseError::kBadPadding;
  if (padded - pad > kMaxMtuBytes) return ParseError::kBadLength;
  ParseChecked(p, info, packet.headers);
  packet.payload = udp_payload.subspan(info.header_bytes, padded - pad);
  return std::nullopt;
}

tl::expected<Packet, ParseError> Parse(std::span<const std::byte> udp_payload) {
  tl::expected<Packet, ParseError> packet;
  if (const auto error = ParseInto(udp_payload, *packet)) return tl::make_unexpected(*error);
  return packet;
}

size_t EmitHeaders(const PacketHeaders& headers, std::span<std::byte> out) {
  const OpcodeInfo& info = headers.info();
  if (info.name == nullptr || out.size() < info.header_bytes) return 0;
  std::byte* const p = out.data();
  StoreBig<1>(p, OpcodeByte(headers.transport, headers.operation));
  StoreBig<1>(p + 1, (headers.solicited ? kSolicitedBit : 0) | (headers.mig_req ? kMigReqBit : 0) |
                         (headers.pad_bytes & 3) << kPadShift);
  StoreBig<2>(p + 2, headers.pkey);
  StoreBig<1>(p + 4, 0);  // reserved, FECN and BECN: outside the ICRC
  StoreBig<3>(p + 5, headers.destination_qpn);
  StoreBig<1>(p + 8, headers.ack_request ? kAckRequestBit : 0);
  StoreBig<3>(p + 9, headers.psn);
  EmitExtended(p + kBaseHeaderBytes, info, headers);
  return info.header_bytes;
}

}  // namespace rdmaemu::wire
