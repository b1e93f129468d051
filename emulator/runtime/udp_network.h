// All wire addresses of a host as its Network: a datagram leaves through the socket of its source,
// and comes by the socket of its destination or of the multicast group.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/group_port.h"
#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/udp_port.h"
#include "emulator/runtime/udp_receiver.h"

namespace rdmaemu::runtime {

class UdpNetwork final : public Network {
 public:
  static constexpr size_t kMaxGroups = 4096;  // a socket each
  // What is taken from the sockets while this host waits for room in a peer's queue. Above it the
  // sockets fill, and peers wait in turn.
  static constexpr size_t kMaxStagedBytes = size_t{64} << 20;

  // Hosts of the same registry directory wait for room in each other's receive queues, instead of
  // losing what the kernel would drop. A send may then block, for PeerQueues::kDeafAfter at most
  // without progress.
  void ShareQueues(const std::string& directory);
  // Datagrams that the kernel dropped before this host could take them.
  uint64_t queue_drops() const;

  // Sends per Host::Work must leave before the loop sleeps: the loop calls Flush.
  void Add(UdpPort port);
  // Has all sockets watched, those of addresses and groups that come later too: kUdpPort and
  // kGroupPort with their numbers. An errno of epoll_ctl(2).
  Status Watch(int epoll_fd);

  // An address that the host gets while it runs; EADDRINUSE, EADDRNOTAVAIL and the like.
  Status Open(const HostAddress& address) override;
  void Close(const NetAddress& address) override;

  // Host::Refused is to be told of what TakeRefused answers.
  void ReportRefusals() override;
  struct Refused {
    NetAddress local, remote;
  };
  // Where nobody listens at an address to which a port has sent since the last call. Empty unless
  // ReportRefusals was called.
  std::vector<Refused> TakeRefused();

  // Closes all sockets, without sending what waits. Afterwards other hosts can have the addresses.
  void CloseAll();

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override;
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) override;
  void Commit() override;
  // ENOBUFS above kMaxGroups; EADDRNOTAVAIL when no port has the address; else as GroupPort::Open.
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override;
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override;

  // `at`: the own address by which it came.
  using Handler = std::function<void(const wire::UdpFlow& flow,
                                     std::span<const std::span<const std::byte>> udp_payloads,
                                     const NetAddress& at)>;
  // Takes one batch from the port or group of that number; false when there was nothing, or when
  // the group has been left or the port closed.
  bool ReceivePort(uint32_t number, const Handler& handler);
  bool ReceiveGroup(uint32_t number, const Handler& handler);
  // Hands over what was taken from the sockets while a send waited. True when there was something.
  bool ReceiveStaged(const Handler& handler);

  // Gives to the kernel what waits.
  void Flush();
  // The same, and waits for the peers' queues: for the last datagrams of a host or an address.
  void FlushAll();
  // True when the kernel did not take all: Flush again a little later.
  bool blocked() const;

 private:
  struct Port {
    UdpPort socket;
    std::shared_ptr<OwnQueue> queue;  // null: not published
  };
  // Datagrams of one flow, as UdpReceiver hands them over.
  struct Staged {
    wire::UdpFlow flow;
    NetAddress at;
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
  };

  bool Receive(int fd, NetAddress destination, NetAddress at, const Handler& handler);
  bool ReceiveFrom(const Port& port, UdpReceiver& receiver, const Handler& handler);
  void Publish(Port& port);
  void Stage();
  void WaitForPeer(UdpPort& port);
  Status WatchPort(uint32_t number);
  UdpPort* PortOf(const NetAddress& address) const;  // nullptr: there is none

  std::string directory_;                     // of published queues
  std::unique_ptr<PeerQueues> peers_;         // null: nobody waits
  std::vector<std::unique_ptr<Port>> ports_;  // by number; nullptr: free
  std::map<uint32_t, GroupPort> groups_;      // by number; none comes twice
  uint32_t last_group_ = 0;
  int epoll_fd_ = -1;  // not ours
  UdpReceiver receiver_;
  UdpPort* allocated_ = nullptr;
  std::unique_ptr<UdpReceiver> staging_receiver_;  // made when it is needed first
  std::deque<Staged> staged_;
  size_t staged_bytes_ = 0;
  uint64_t drops_of_closed_ = 0;
  bool reports_refusals_ = false;
};

}  // namespace rdmaemu::runtime
