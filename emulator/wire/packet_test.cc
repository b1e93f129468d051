#include "emulator/wire/packet.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace rdmaemu::wire {
namespace {

struct Code {
  TransportClass transport;
  Operation operation;
};

std::vector<Code> KnownOpcodes() {
  std::vector<Code> known;
  for (int byte = 0; byte < 256; ++byte) {
    const Code code{static_cast<TransportClass>(byte & 0xe0), static_cast<Operation>(byte & 0x1f)};
    if (Opcode(code.transport, code.operation).name != nullptr) known.push_back(code);
  }
  return known;
}

// Sets every field that the opcode carries to a value with bits at both ends. The others are zero.
PacketHeaders Filled(Code code) {
  PacketHeaders h;
  h.transport = code.transport;
  h.operation = code.operation;
  const OpcodeInfo& info = h.info();
  h.solicited = true;
  h.mig_req = false;
  h.ack_request = true;
  h.pkey = 0x8001;
  h.destination_qpn = 0x800001;
  h.psn = 0xabcdef;
  if (info.reth || info.atomic_eth) {
    h.remote_address = 0x8000000000000001;
    h.rkey = 0x80000002;
  }
  if (info.reth) h.dma_length = 0x80000003;
  if (info.feth) {
    h.placement = 9;
    h.selectivity = 2;
  }
  if (info.atomic_eth) {
    h.swap_add = 0x8000000000000004;
    h.compare = 0x8000000000000005;
  }
  if (info.aeth) {
    h.syndrome = 0x61;
    h.msn = 0x800006;
  }
  if (info.atomic_ack_eth) h.original = 0x8000000000000007;
  if (info.deth) {
    h.qkey = 0x80000008;
    h.source_qpn = 0x800009;
    h.by_link_local = true;
    h.by_lid = true;
  }
  if (info.imm) h.immediate = 0x8000000a;
  if (info.ieth) h.invalidate_rkey = 0x8000000b;
  return h;
}

// Returns a packet as bytes: headers, payload, padding, and room for the ICRC.
std::vector<std::byte> Build(PacketHeaders headers, size_t payload_bytes) {
  headers.pad_bytes = static_cast<uint8_t>((4 - payload_bytes % 4) % 4);
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(EmitHeaders(headers, bytes));
  for (size_t i = 0; i < payload_bytes; ++i) bytes.push_back(static_cast<std::byte>(i + 1));
  bytes.resize(bytes.size() + headers.pad_bytes + kIcrcBytes);
  return bytes;
}

void ExpectSame(const PacketHeaders& a, const PacketHeaders& b) {
  EXPECT_EQ(a.transport, b.transport);
  EXPECT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.solicited, b.solicited);
  EXPECT_EQ(a.by_link_local, b.by_link_local);
  EXPECT_EQ(a.by_lid, b.by_lid);
  EXPECT_EQ(a.mig_req, b.mig_req);
  EXPECT_EQ(a.ack_request, b.ack_request);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_EQ(a.destination_qpn, b.destination_qpn);
  EXPECT_EQ(a.psn, b.psn);
  EXPECT_EQ(a.remote_address, b.remote_address);
  EXPECT_EQ(a.rkey, b.rkey);
  EXPECT_EQ(a.dma_length, b.dma_length);
  EXPECT_EQ(a.placement, b.placement);
  EXPECT_EQ(a.selectivity, b.selectivity);
  EXPECT_EQ(a.swap_add, b.swap_add);
  EXPECT_EQ(a.compare, b.compare);
  EXPECT_EQ(a.syndrome, b.syndrome);
  EXPECT_EQ(a.msn, b.msn);
  EXPECT_EQ(a.original, b.original);
  EXPECT_EQ(a.qkey, b.qkey);
  EXPECT_EQ(a.source_qpn, b.source_qpn);
  EXPECT_EQ(a.immediate, b.immediate);
  EXPECT_EQ(a.invalidate_rkey, b.invalidate_rkey);
}

ParseError ErrorOf(std::span<const std::byte> bytes) {
  const auto packet = Parse(bytes);
  EXPECT_FALSE(packet.has_value());
  return packet ? ParseError::kTooShort : packet.error();
}

TEST(Opcode, HasTheOperationsThatEachTransportMayUse) {
  std::set<std::string> names;
  int rc = 0, uc = 0, ud = 0;
  for (const Code code : KnownOpcodes()) {
    names.insert(Opcode(code.transport, code.operation).name);
    rc += code.transport == TransportClass::kRc;
    uc += code.transport == TransportClass::kUc;
    ud += code.transport == TransportClass::kUd;
  }
  EXPECT_EQ(rc, 25);
  EXPECT_EQ(uc, 12);
  EXPECT_EQ(ud, 2);
  EXPECT_EQ(names.size(), 39u);
  EXPECT_EQ(Opcode(TransportClass::kUc, Operation::kReadRequest).name, nullptr);
  EXPECT_EQ(Opcode(TransportClass::kUd, Operation::kSendFirst).name, nullptr);
}

TEST(Opcode, StandsAtOnePlaceInItsMessageAndGoesOneWay) {
  for (const Code code : KnownOpcodes()) {
    const OpcodeInfo& info = Opcode(code.transport, code.operation);
    EXPECT_EQ(info.first + info.middle + info.last + info.only, 1) << info.name;
    EXPECT_EQ(info.request + info.response, 1) << info.name;
    EXPECT_EQ(info.send + info.write + info.read + info.atomic + info.atomic_write + info.flush +
                  info.ack,
              1)
        << info.name;
  }
}

TEST(Packet, EveryOpcodeComesBackAsItWasWritten) {
  for (const Code code : KnownOpcodes()) {
    const PacketHeaders headers = Filled(code);
    const OpcodeInfo& info = headers.info();
    SCOPED_TRACE(info.name);
    for (const size_t payload : {0u, 1u, 2u, 3u, 4u, 4095u, 4096u}) {
      if (!info.payload && payload != 0) continue;
      const auto bytes = Build(headers, payload);
      const auto packet = Parse(bytes);
      ASSERT_TRUE(packet.has_value());
      ExpectSame(packet->headers, headers);
      ASSERT_EQ(packet->payload.size(), payload);
      EXPECT_EQ(packet->payload.data(), bytes.data() + info.header_bytes);
    }
  }
}

TEST(Packet, ParseIntoKeepsNothingOfThePacketBefore) {
  Packet reused;
  for (const Code before : KnownOpcodes()) {
    for (const Code code : KnownOpcodes()) {
      const auto earlier = Build(Filled(before), 0);
      ASSERT_EQ(ParseInto(earlier, reused), std::nullopt);
      const auto bytes = Build(Filled(code), 0);
      ASSERT_EQ(ParseInto(bytes, reused), std::nullopt);
      ExpectSame(reused.headers, Parse(bytes)->headers);
      EXPECT_EQ(reused.payload.size(), 0u);
    }
  }
}

TEST(Packet, BthStandsAsTheSpecificationDrawsIt) {
  PacketHeaders h;
  h.transport = TransportClass::kUd;
  h.solicited = true;
  h.ack_request = true;
  h.pad_bytes = 3;
  h.pkey = 0x1234;
  h.destination_qpn = 0x56789a;
  h.psn = 0xbcdef0;
  h.qkey = 0x80010000;
  h.source_qpn = 1;
  std::vector<std::byte> out(kMaxHeaderBytes, std::byte{0xee});
  ASSERT_EQ(EmitHeaders(h, out), 20u);
  const uint8_t want[] = {0x64, 0xf0, 0x12, 0x34, 0, 0x56, 0x78, 0x9a, 0x80, 0xbc,
                          0xde, 0xf0, 0x80, 1,    0, 0,    0,    0,    0,    1};
  for (size_t i = 0; i < sizeof want; ++i) EXPECT_EQ(static_cast<uint8_t>(out[i]), want[i]) << i;
}

// IBTA annex A19: opcode 0x1d, a RETH and 8 bytes.
TEST(Packet, AnAtomicWriteStandsAsTheAnnexSays) {
  const auto bytes = Build(Filled({TransportClass::kRc, Operation::kAtomicWrite}), 8);
  ASSERT_EQ(bytes.size(), 12 + 16 + 8 + kIcrcBytes);
  EXPECT_EQ(bytes[0], std::byte{0x1d});
  EXPECT_EQ(bytes[12], std::byte{0x80});  // the address
  EXPECT_EQ(bytes[27], std::byte{0x03});  // the length
  EXPECT_EQ(bytes[28], std::byte{1});     // the payload
}

// IBTA annex A19: opcode 0x1c, a FETH before the RETH, and no payload.
TEST(Packet, AFlushStandsAsTheAnnexSays) {
  const auto bytes = Build(Filled({TransportClass::kRc, Operation::kFlush}), 0);
  ASSERT_EQ(bytes.size(), 12 + 4 + 16 + kIcrcBytes);
  EXPECT_EQ(bytes[0], std::byte{0x1c});
  EXPECT_EQ(bytes[12], std::byte{0});
  EXPECT_EQ(bytes[15], std::byte{0x29});  // selectivity 2, placement 9
  EXPECT_EQ(bytes[16], std::byte{0x80});  // the address
  EXPECT_EQ(bytes[31], std::byte{0x03});  // the length
}

TEST(Packet, TruncatedAtEveryLengthIsRefusedOrShorter) {
  for (const Code code : KnownOpcodes()) {
    const OpcodeInfo& info = Opcode(code.transport, code.operation);
    const auto whole = Build(Filled(code), info.payload ? 9 : 0);
    for (size_t size = 0; size < whole.size(); ++size) {
      // A separate copy, so that a sanitizer detects a read behind its end.
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(size));
      const auto packet = Parse(cut);
      if (size < info.header_bytes + kIcrcBytes) {
        ASSERT_FALSE(packet.has_value());
        EXPECT_EQ(packet.error(), ParseError::kTooShort);
      } else if (packet) {
        EXPECT_EQ(
            info.header_bytes + packet->payload.size() + packet->headers.pad_bytes + kIcrcBytes,
            size);
      }
    }
  }
}

TEST(Packet, RefusesWhatNeedsNoStateToRefuse) {
  const Code send{TransportClass::kRc, Operation::kSendOnly};
  auto bytes = Build(Filled(send), 8);
  bytes[1] |= std::byte{1};
  EXPECT_EQ(ErrorOf(bytes), ParseError::kBadVersion);

  bytes = Build(Filled(send), 8);
  bytes[0] = std::byte{0x81};  // CNP
  EXPECT_EQ(ErrorOf(bytes), ParseError::kBadOpcode);

  bytes = Build(Filled(send), 8);
  bytes.push_back({});
  EXPECT_EQ(ErrorOf(bytes), ParseError::kBadLength);

  bytes = Build(Filled(send), 0);
  bytes[1] |= std::byte{0x30};  // three pad bytes, but no payload
  EXPECT_EQ(ErrorOf(bytes), ParseError::kBadPadding);

  EXPECT_EQ(ErrorOf(Build(Filled(send), 4097)), ParseError::kBadLength);

  bytes = Build(Filled({TransportClass::kRc, Operation::kAcknowledge}), 0);
  bytes.resize(bytes.size() + 4);
  EXPECT_EQ(ErrorOf(bytes), ParseError::kBadLength);
}

TEST(Packet, FieldsWiderThanTheirPlaceAreCutNotSpilled) {
  PacketHeaders h = Filled({TransportClass::kUd, Operation::kSendOnly});
  h.destination_qpn = 0xff000002;
  h.psn = 0xff000003;
  h.source_qpn = 0xff000004;
  const auto packet = Parse(Build(h, 0));
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->headers.destination_qpn, 2u);
  EXPECT_EQ(packet->headers.psn, 3u);
  EXPECT_EQ(packet->headers.source_qpn, 4u);
  EXPECT_TRUE(packet->headers.ack_request);
}

TEST(Packet, AnUnknownOpcodeOrTooLittleRoomWritesNothing) {
  std::vector<std::byte> out(kMaxHeaderBytes, std::byte{0xee});
  const std::vector<std::byte> before = out;
  EXPECT_EQ(EmitHeaders(Filled({TransportClass::kUd, Operation::kReadRequest}), out), 0u);
  EXPECT_EQ(
      EmitHeaders(Filled({TransportClass::kRc, Operation::kCompareSwap}), std::span(out).first(39)),
      0u);
  EXPECT_EQ(out, before);
}

}  // namespace
}  // namespace rdmaemu::wire
