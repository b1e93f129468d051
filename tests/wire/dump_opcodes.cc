// Writes every opcode of the table with every pattern of values, payloads with every padding, and
// every syndrome of an acknowledge.
#include <algorithm>

#include "tests/wire/dump.h"

namespace rdmaemu::dump {
namespace {

using wire::PacketHeaders;

// QPs 0 and 1 are for management: tshark reads their packets as MADs.
constexpr uint32_t kLowestDataQpn = 2;

PacketHeaders HeadersOf(int opcode_byte, Values& values) {
  PacketHeaders h;
  h.transport = static_cast<wire::TransportClass>(opcode_byte & 0xe0);
  h.operation = static_cast<wire::Operation>(opcode_byte & 0x1f);
  const wire::OpcodeInfo& info = h.info();
  h.solicited = values.Bits(1) != 0;
  h.mig_req = values.Bits(1) != 0;
  h.ack_request = values.Bits(1) != 0;
  h.pkey = static_cast<uint16_t>(values.Bits(16));
  h.destination_qpn = std::max(kLowestDataQpn, static_cast<uint32_t>(values.Bits(24)));
  h.psn = static_cast<uint32_t>(values.Bits(24));
  if (info.reth || info.atomic_eth) {
    h.remote_address = values.Bits(64);
    h.rkey = static_cast<uint32_t>(values.Bits(32));
  }
  if (info.reth) h.dma_length = static_cast<uint32_t>(values.Bits(32));
  if (info.atomic_eth) {
    h.swap_add = values.Bits(64);
    h.compare = values.Bits(64);
  }
  if (info.aeth) {
    h.syndrome = static_cast<uint8_t>(values.Bits(8));
    h.msn = static_cast<uint32_t>(values.Bits(24));
  }
  if (info.atomic_ack_eth) h.original = values.Bits(64);
  if (info.deth) {
    h.qkey = static_cast<uint32_t>(values.Bits(32));
    h.source_qpn = std::max(kLowestDataQpn, static_cast<uint32_t>(values.Bits(24)));
  }
  if (info.imm) h.immediate = static_cast<uint32_t>(values.Bits(32));
  if (info.ieth) h.invalidate_rkey = static_cast<uint32_t>(values.Bits(32));
  return h;
}

}  // namespace

void DumpOpcodes(Dump& dump, const wire::UdpFlow& flow) {
  constexpr size_t kPayloads[Values::kVariants] = {0, 1, 2, 3, 4, 37, 256, 1023, 1024, 4096};
  for (int byte = 0; byte < 256; ++byte) {
    for (int variant = 0; variant < Values::kVariants; ++variant) {
      Values values(variant);
      const PacketHeaders headers = HeadersOf(byte, values);
      const wire::OpcodeInfo& info = headers.info();
      if (info.name == nullptr || info.atomic_write || info.flush)
        break;  // tshark 4.0 has no such opcode
      std::vector<std::byte> payload(info.payload ? kPayloads[variant] : 0);
      // A pattern that no dissector of an inner protocol recognizes.
      for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(0xf0 - i);
      dump.Packet(info.name, flow, headers, payload);
    }
  }
  Values values(4);
  const auto acknowledge =
      static_cast<int>(wire::OpcodeByte(wire::TransportClass::kRc, wire::Operation::kAcknowledge));
  for (int syndrome = 0; syndrome < 128; ++syndrome) {
    PacketHeaders headers = HeadersOf(acknowledge, values);
    headers.syndrome = static_cast<uint8_t>(syndrome);
    dump.Packet(headers.info().name, flow, headers, {});
  }
}

}  // namespace rdmaemu::dump
