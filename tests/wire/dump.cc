#include "tests/wire/dump.h"

#include <vector>

namespace rdmaemu::dump {
namespace {

constexpr uint64_t kWallSeconds = 1'700'000'000;
constexpr Duration kBetweenPackets = std::chrono::nanoseconds(1'000'000'001);

}  // namespace

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
  const std::string padded = Hex(std::span<const std::byte>(bytes).subspan(payload_at));
  bytes.resize(bytes.size() + wire::kIcrcBytes);
  wire::SealPacket(flow, bytes);
  writer_.AppendPacket(time_, flow, bytes, file_);

  expected_ += name;
  const std::string nanoseconds = std::to_string(wall_nanoseconds_);
  Note("time", std::to_string(wall_seconds_) + "." + std::string(9 - nanoseconds.size(), '0') +
                   nanoseconds);
  NoteFlow(flow);
  for (const auto& [field, value] : HeaderFields(headers)) Note(field, value);
  if (headers.destination_qpn != wire::kGsiQpn && !padded.empty()) Note("payload", padded);
  Note("icrc", Hex(std::span<const std::byte>(bytes).last(wire::kIcrcBytes)));
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

}  // namespace rdmaemu::dump
