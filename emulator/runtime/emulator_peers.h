// The peers that are emulators, as their datagrams show. A burst (UDP_SEGMENT) may be sent to an
// emulator over any link. A kernel or a NIC on the way may split the burst, and then counts the IP
// IDs of its packets. An emulator accepts these IDs. rdma_rxe and RNICs accept ID 0 alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>

#include "emulator/base/net_address.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::runtime {

// Not thread-safe.
class EmulatorPeers {
 public:
  // The most peers that are known at once. Packets to other peers are sent one by one.
  static constexpr size_t kMaxPeers = 4096;

  // Records a unicast datagram that was received. An emulator sends from RoCE's own port. rdma_rxe
  // and RNICs send from the ports 0xC000 to 0xFFFF (IB_ROCE_UDP_ENCAP_VALID_PORT_MIN, rxe's
  // RXE_ROCE_V2_SPORT). A datagram without a correct ICRC adds no peer.
  void NoteReceived(const wire::UdpFlow& flow, std::span<const std::byte> udp_payload);
  bool Contains(const NetAddress& address) const { return peers_.contains(address); }

 private:
  std::unordered_set<NetAddress> peers_;
};

}  // namespace rdmaemu::runtime
