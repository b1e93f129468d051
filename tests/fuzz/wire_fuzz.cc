// Bytes from the wire into each parser. A parsed packet must serialize to the same bytes and the
// same meaning, and a sealed ICRC must be valid.
#include <cstdlib>
#include <vector>

#include "emulator/wire/cm_message.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace rdmaemu::fuzz {
namespace {

using namespace rdmaemu::wire;

wire::UdpFlow Flow(Input& in) {
  const bool ipv4 = in.OneIn(2);
  wire::UdpFlow flow{NetAddress::Ipv4(in.U32()), NetAddress::Ipv4(in.U32()), in.U16(), in.U16()};
  if (!ipv4) {
    flow.source.bytes[0] = 0xfd;
    flow.destination.bytes[0] = 0xfd;
  }
  return flow;
}

void PacketComesBack(std::span<const std::byte> datagram) {
  const auto packet = Parse(datagram);
  if (!packet) return;
  const OpcodeInfo& info = packet->headers.info();
  REQUIRE(info.name != nullptr);
  REQUIRE(info.header_bytes + packet->payload.size() + packet->headers.pad_bytes + kIcrcBytes ==
          datagram.size());
  std::vector<std::byte> again(datagram.begin(), datagram.end());
  std::array<std::byte, kMaxHeaderBytes> headers;
  REQUIRE(EmitHeaders(packet->headers, headers) == info.header_bytes);
  std::copy_n(headers.begin(), info.header_bytes, again.begin());
  const auto reparsed = Parse(again);
  REQUIRE(reparsed.has_value());
  std::array<std::byte, kMaxHeaderBytes> second;
  REQUIRE(EmitHeaders(reparsed->headers, second) == info.header_bytes);
  REQUIRE(std::equal(headers.begin(), headers.begin() + info.header_bytes, second.begin()));
}

void MadComesBack(std::span<const std::byte> mad) {
  const auto message = ParseCm(mad);
  if (!message) return;
  std::array<std::byte, kMadBytes> first, second;
  EmitCm(*message, first);
  const auto again = ParseCm(first);
  REQUIRE(again.has_value());
  REQUIRE(again->body.index() == message->body.index());
  REQUIRE(again->transaction_id == message->transaction_id);
  EmitCm(*again, second);
  REQUIRE(first == second);
  REQUIRE(CmName(message->body) != nullptr);
}

void PrivateHeaderComesBack(std::span<const std::byte> bytes) {
  const std::span<const uint8_t> data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const auto header = ParseRdmaCmHeader(data);
  if (!header) return;
  std::array<uint8_t, RdmaCmHeader::kBytes> out{};
  EmitRdmaCmHeader(*header, out);
  const auto again = ParseRdmaCmHeader(out);
  REQUIRE(again.has_value());
  REQUIRE(again->ip_version == header->ip_version && again->source_port == header->source_port &&
          again->source == header->source && again->destination == header->destination);
}

void IcrcHolds(const wire::UdpFlow& flow, std::span<const std::byte> datagram) {
  (void)VerifyIcrc(flow, datagram);
  std::vector<std::byte> sealed(datagram.begin(), datagram.end());
  SealPacket(flow, sealed);
  if (sealed.size() < 16 || sealed.size() > kMaxHeaderBytes + kMaxMtuBytes) return;
  const auto id = VerifyIcrc(flow, sealed);
  REQUIRE(id.has_value() && *id == 0);
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  const rdmaemu::wire::UdpFlow flow = Flow(in);
  // A copy: a read beyond its end is then a read beyond an allocation.
  const auto rest = in.Rest();
  const std::vector<std::byte> bytes(rest.begin(), rest.end());
  PacketComesBack(bytes);
  MadComesBack(bytes);
  // Most inputs are shorter than a MAD, and few begin like a CM MAD: class 7, version 2, Send, a
  // known attribute.
  std::vector<std::byte> mad(bytes);
  mad.resize(rdmaemu::wire::kMadBytes);
  constexpr uint8_t kStart[] = {1, 7, 2, 3};
  std::memcpy(mad.data(), kStart, sizeof kStart);
  mad[16] = {};
  mad[17] = static_cast<std::byte>(0x10 + static_cast<uint8_t>(mad[17]) % 9);
  MadComesBack(mad);
  PrivateHeaderComesBack(bytes);
  IcrcHolds(flow, bytes);
  return 0;
}
