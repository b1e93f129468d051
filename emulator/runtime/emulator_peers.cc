#include "emulator/runtime/emulator_peers.h"

#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {

void EmulatorPeers::NoteReceived(const wire::UdpFlow& flow,
                                 std::span<const std::byte> udp_payload) {
  const bool is_known = peers_.contains(flow.source);
  const bool is_emulator = flow.source_port == wire::kRoceUdpPort;
  if (is_known == is_emulator) return;
  if (is_known) {
    peers_.erase(flow.source);
  } else if (peers_.size() < kMaxPeers && wire::VerifyIcrc(flow, udp_payload)) {
    peers_.insert(flow.source);
  }
}

}  // namespace rdmaemu::runtime
