#include "tests/wire/dump.h"

#include <cstring>

namespace rdmaemu::dump {
namespace {

constexpr uint64_t kWallSeconds = 1'700'000'000;
constexpr Duration kBetweenPackets = std::chrono::nanoseconds(1'000'000'001);

std::span<const uint8_t> AsNumbers(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  return hex;
}

uint64_t Values::Bits(size_t width) {
  constexpr uint64_t kPatterns[] = {0, ~0ull, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa};
  const uint64_t value =
      variant_ < 4 ? kPatterns[variant_] : uint64_t{random_.Next32()} << 32 | random_.Next32();
  return width >= 64 ? value : value & ((1ull << width) - 1);
}

void Values::Fill(std::span<uint8_t> bytes) {
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Bits(8));
}

Dump::Dump() : writer_(std::chrono::seconds(kWallSeconds), "dump"), wall_seconds_(kWallSeconds) {
  writer_.AppendStart(file_);
}

void Dump::Packet(const std::string& name, const wire::UdpFlow& flow, wire::PacketHeaders headers,
                  std::span<const std::byte> payload, const Fields& fields) {
  headers.pad_bytes = static_cast<uint8_t>((4 - payload.size() % 4) % 4);
  std::vector<std::byte> bytes(wire::kMaxHeaderBytes);
  bytes.resize(wire::EmitHeaders(headers, bytes));
  const size_t payload_at = bytes.size();
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + headers.pad_bytes);
  const std::string padded = Hex(AsNumbers(std::span(bytes).subspan(payload_at)));
  bytes.resize(bytes.size() + wire::kIcrcBytes);
  wire::SealPacket(flow, bytes);
  writer_.AppendPacket(time_, flow, bytes, file_);

  expected_ += name;
  const std::string nanoseconds = std::to_string(wall_nanoseconds_);
  Note("time", std::to_string(wall_seconds_) + "." + std::string(9 - nanoseconds.size(), '0') +
                   nanoseconds);
  NoteFlow(flow);
  NoteHeaders(headers);
  if (headers.destination_qpn != wire::kGsiQpn && !padded.empty()) Note("payload", padded);
  Note("icrc", Hex(AsNumbers(std::span(bytes).last(wire::kIcrcBytes))));
  for (const auto& [field, value] : fields) Note(field, value);
  expected_ += "\n";
  time_ += kBetweenPackets;
  wall_seconds_ += 1;
  wall_nanoseconds_ += 1;
}

void Dump::NoteFlow(const wire::UdpFlow& flow) {
  const std::string ip = flow.destination.IsIpv4() ? "ipv4" : "ipv6";
  Note(ip + ".source", flow.source.ToString());
  Note(ip + ".destination", flow.destination.ToString());
  Note("udp.source_port", flow.source_port);
  Note("udp.destination_port", flow.destination_port);
}

void Dump::NoteHeaders(const wire::PacketHeaders& h) {
  const wire::OpcodeInfo& info = h.info();
  Note("bth.opcode", wire::OpcodeByte(h.transport, h.operation));
  Note("bth.solicited", h.solicited);
  Note("bth.mig_req", h.mig_req);
  Note("bth.pad_bytes", h.pad_bytes);
  Note("bth.version", 0);
  Note("bth.pkey", h.pkey);
  Note("bth.destination_qpn", h.destination_qpn);
  Note("bth.ack_request", h.ack_request);
  Note("bth.psn", h.psn);
  if (info.deth) {
    Note("deth.qkey", h.qkey);
    Note("deth.source_qpn", h.source_qpn);
  }
  if (info.reth || info.atomic_eth) {
    Note("reth.remote_address", h.remote_address);
    Note("reth.rkey", h.rkey);
  }
  if (info.reth) Note("reth.dma_length", h.dma_length);
  if (info.atomic_eth) {
    Note("atomic_eth.swap_add", h.swap_add);
    Note("atomic_eth.compare", h.compare);
  }
  if (info.aeth) {
    Note("aeth.syndrome", h.syndrome);
    Note("aeth.msn", h.msn);
  }
  if (info.atomic_ack_eth) Note("atomic_ack_eth.original", h.original);
  if (info.imm) {
    uint8_t immediate[4];
    std::memcpy(immediate, &h.immediate, sizeof immediate);
    Note("imm.immediate", Hex(immediate));
  }
  if (info.ieth) {
    uint8_t rkey[4];
    for (int i = 0; i < 4; ++i) rkey[i] = static_cast<uint8_t>(h.invalidate_rkey >> (24 - 8 * i));
    Note("ieth.invalidate_rkey", Hex(rkey));
  }
}

}  // namespace rdmaemu::dump
