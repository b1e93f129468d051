// Measures the cost of one packet before it is processed: headers, ICRC, solving for the IP ID.
// Compares it to memcpy of the same bytes, so that a figure of one run is a ratio.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::wire {
namespace {

const UdpFlow kFlow{*NetAddress::Parse("127.0.1.1"), *NetAddress::Parse("127.0.1.2"), kRoceUdpPort,
                    kRoceUdpPort};

std::vector<std::byte> WritePacket(size_t payload_bytes) {
  PacketHeaders headers;
  headers.operation = Operation::kWriteOnly;
  headers.destination_qpn = 17;
  headers.dma_length = static_cast<uint32_t>(payload_bytes);
  std::vector<std::byte> packet(kMaxHeaderBytes);
  const size_t header_bytes = EmitHeaders(headers, packet);
  packet.resize(header_bytes + payload_bytes + kIcrcBytes);
  SealPacket(kFlow, packet);
  return packet;
}

void Memcpy(benchmark::State& state) {
  const std::vector<std::byte> packet = WritePacket(static_cast<size_t>(state.range(0)));
  std::vector<std::byte> copy(packet.size());
  for (auto _ : state) {
    std::memcpy(copy.data(), packet.data(), packet.size());
    benchmark::DoNotOptimize(copy.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * packet.size()));
}
BENCHMARK(Memcpy)->Arg(64)->Arg(1024)->Arg(4096);

void Seal(benchmark::State& state) {
  std::vector<std::byte> packet = WritePacket(static_cast<size_t>(state.range(0)));
  IcrcCache icrc;
  for (auto _ : state) {
    icrc.Seal(kFlow, packet);
    benchmark::DoNotOptimize(packet.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * packet.size()));
}
BENCHMARK(Seal)->Arg(64)->Arg(1024)->Arg(4096);

void VerifyAndParse(benchmark::State& state) {
  const std::vector<std::byte> packet = WritePacket(static_cast<size_t>(state.range(0)));
  IcrcCache icrc;
  Packet parsed;
  for (auto _ : state) {
    benchmark::DoNotOptimize(icrc.Verify(kFlow, packet));
    benchmark::DoNotOptimize(ParseInto(packet, parsed));
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * packet.size()));
}
BENCHMARK(VerifyAndParse)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace rdmaemu::wire
