// One wire address of a host: an unconnected UDP socket on (address, 4791) with the options that
// RoCEv2 needs. IP_PMTUDISC_DO on an unconnected socket sends DF and IP ID 0. The host can
// therefore compute the ICRC before the kernel writes the IP header (docs/design.md).
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/runtime/emulator_peers.h"
#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::runtime {

class UdpPort {
 public:
  // Limit for one datagram and for one burst (UDP_SEGMENT): 65535 less the IP and UDP headers.
  static constexpr size_t kMaxDatagramBytes = 65507;
  static constexpr size_t kMaxSegments = 64;  // UDP_MAX_SEGMENTS of Linux 6.1
  static constexpr size_t kMaxBatch = 256;    // datagrams pending for one sendmmsg
  static constexpr size_t kSendBufferBytes = size_t{1} << 20;
  // The first datagram begins behind these bytes. The payload behind a BTH (12 bytes), or behind a
  // BTH and a RETH (28 bytes), then begins at a multiple of 16 bytes. The kernel copies a tenth
  // faster to such an address.
  static constexpr size_t kPayloadAlignment = 16, kBytesBeforeFirst = 4;
  // Pending datagrams are sent when they reach this size, while they are still in a core's cache.
  static constexpr size_t kFlushBytes = size_t{128} << 10;

  // Opens the socket. Fails with the errors of socket(2) and bind(2), such as EADDRINUSE and
  // EADDRNOTAVAIL. `interface_index` is the scope of a link-local IPv6 address.
  static Result<UdpPort> Open(const NetAddress& address, uint32_t interface_index);

  int fd() const { return fd_.get(); }
  const NetAddress& address() const { return address_; }
  uint32_t interface_index() const { return interface_index_; }

  // Sends bursts (UDP_SEGMENT) not only on loopback and over IPv6, but also to these peers.
  // `emulators` is not owned.
  void SendBurstsTo(const EmulatorPeers& emulators) { emulators_ = &emulators; }
  // Sends each datagram by itself from now on.
  void SendSingly() { segmentation_ = false; }
  // Makes datagrams wait until the peer's receive queue has room for them. `peers` is not owned.
  void WaitFor(PeerQueues& peers) { peers_ = &peers; }

  // Enables TakeRefused (IP_RECVERR).
  void ReportRefusals();
  // Returns the destinations that answered with an ICMP port unreachable since the last call.
  std::vector<NetAddress> TakeRefused();

  // Returns a buffer for one datagram. Flush sends the datagram at the latest. Returns an empty
  // span if there is no room until the kernel accepts pending datagrams. An Allocate without a
  // Commit is discarded.
  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class, size_t bytes);
  // Allocates buffers for several datagrams in order. Returns how many datagrams got one.
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms);
  // Completes the datagrams that were allocated last. Flushes when the pending bytes are so many
  // that a larger send would not be faster.
  void Commit();
  // Gives pending datagrams to the kernel. A datagram that the kernel rejects is lost, as on a
  // wire.
  void Flush();
  // Returns true if the kernel's buffer or a peer's queue was full. Call Flush again shortly
  // afterwards.
  bool blocked() const { return blocked_; }
  // Returns true if the full queue was the peer's.
  bool awaits_peer() const { return awaits_peer_; }
  bool has_pending() const { return committed_ > 0; }
  // Returns how many bytes the kernel has accepted.
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Waiting {
    size_t offset, bytes;
    NetAddress destination;
    uint16_t destination_port;
    uint8_t traffic_class;
  };

  UdpPort(UniqueFd fd, const NetAddress& address, uint32_t interface_index);
  bool AcceptsBursts(const NetAddress& destination) const;
  // Returns how many pending datagrams, from `first` on, can be sent as one burst.
  size_t BurstLength(size_t first) const;
  sockaddr_storage SocketAddress(const NetAddress& address, uint16_t port, socklen_t& size) const;

  UniqueFd fd_;
  NetAddress address_;
  uint32_t interface_index_;
  bool segmentation_ = true;  // until SendSingly, or until the kernel refuses UDP_SEGMENT
  bool reports_refusals_ = false;
  bool blocked_ = false;
  bool awaits_peer_ = false;
  const EmulatorPeers* emulators_ = nullptr;
  PeerQueues* peers_ = nullptr;
  std::unique_ptr<std::byte[]> buffer_;  // kSendBufferBytes, unwritten
  std::vector<Waiting> waiting_;
  uint64_t sent_bytes_ = 0;
  size_t sent_ = 0;       // datagrams of waiting_ that were sent
  size_t committed_ = 0;  // completed datagrams of waiting_; later ones are only allocated
};

}  // namespace rdmaemu::runtime
