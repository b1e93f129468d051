// One wire address of a host: an unconnected UDP socket on (address, 4791), with what RoCEv2 needs
// of it. DF and IP ID 0 come from IP_PMTUDISC_DO on an unconnected socket; that is what makes the
// ICRC computable before the kernel writes the IP header (docs/design.md).
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::runtime {

class UdpPort {
 public:
  // Of one datagram and of one burst (UDP_SEGMENT): 65535 less the IP and UDP headers.
  static constexpr size_t kMaxDatagramBytes = 65507;
  static constexpr size_t kMaxSegments = 64;  // UDP_MAX_SEGMENTS of Linux 6.1
  static constexpr size_t kMaxBatch = 256;    // datagrams that wait for one sendmmsg
  static constexpr size_t kSendBufferBytes = size_t{1} << 20;
  // What waits is sent as soon as it is this much: it should still be in a core's cache then.
  static constexpr size_t kFlushBytes = size_t{128} << 10;

  // EADDRINUSE, EADDRNOTAVAIL and the like as bind(2). `interface_index` is the scope of a
  // link-local IPv6 address.
  static Result<UdpPort> Open(const NetAddress& address, uint32_t interface_index);

  int fd() const { return fd_.get(); }
  const NetAddress& address() const { return address_; }
  uint32_t interface_index() const { return interface_index_; }

  // Not owned. From now on datagrams wait until the peer's receive queue has room for them.
  void WaitFor(PeerQueues& peers) { peers_ = &peers; }

  // From now on TakeRefused answers something (IP_RECVERR).
  void ReportRefusals();
  // The destinations of datagrams to which an ICMP port unreachable has come since the last call.
  std::vector<NetAddress> TakeRefused();

  // Room for one datagram, to be sent by Flush at the latest; empty when nothing more fits until
  // the kernel has taken what waits. An Allocate without Commit is forgotten.
  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class, size_t bytes);
  // The same for several, one after the other; answers how many got room.
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms);
  // What was allocated last is complete. Sends when enough waits that sending more at once gains
  // nothing.
  void Commit();
  // Gives what waits to the kernel. A datagram that the kernel refuses is lost, as on a wire.
  void Flush();
  // True after the kernel's buffer or the peer's queue was full: Flush again a little later.
  bool blocked() const { return blocked_; }
  // It was the peer's queue.
  bool awaits_peer() const { return awaits_peer_; }
  bool has_pending() const { return committed_ > 0; }

 private:
  struct Waiting {
    size_t offset, bytes;
    NetAddress destination;
    uint16_t destination_port;
    uint8_t traffic_class;
  };

  UdpPort(UniqueFd fd, const NetAddress& address, uint32_t interface_index);
  // How many of the waiting datagrams from `first` on can leave as one burst.
  size_t BurstLength(size_t first) const;
  sockaddr_storage SocketAddress(const NetAddress& address, uint16_t port, socklen_t& size) const;

  UniqueFd fd_;
  NetAddress address_;
  uint32_t interface_index_;
  bool segmentation_ = true;  // until the kernel refuses UDP_SEGMENT
  bool reports_refusals_ = false;
  bool blocked_ = false;
  bool awaits_peer_ = false;
  PeerQueues* peers_ = nullptr;
  std::vector<std::byte> buffer_;
  std::vector<Waiting> waiting_;
  size_t sent_ = 0;       // of waiting_
  size_t committed_ = 0;  // of waiting_: what follows is allocated only
};

}  // namespace rdmaemu::runtime
