// All wire addresses of a host as its Network. A datagram is sent through the socket of its source
// address. A datagram is received through the socket of its destination address or of the multicast
// group.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/contention_policy.h"
#include "emulator/runtime/group_port.h"
#include "emulator/runtime/peer_rings.h"
#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/udp_port.h"
#include "emulator/runtime/udp_receiver.h"

namespace rdmaemu::runtime {

class UdpNetwork final : public Network {
 public:
  static constexpr size_t kMaxGroups = 4096;  // one socket per group
  // Limit of the bytes that a host receives while it waits for room in a peer's queue. Above this
  // limit the sockets fill up, and the peers wait in turn.
  static constexpr size_t kMaxStagedBytes = size_t{64} << 20;

  // Hosts of the same registry directory wait for room in each other's receive queues instead of
  // losing datagrams to the kernel. A send may then block, for at most PeerQueues::kDeafAfter
  // without progress.
  void ShareQueues(const std::string& directory);
  // Hosts that have called ShareQueues with the same directory, and this function, send each other
  // no datagrams, but the same bytes by shared memory (peer_ring.h). Call this after ShareQueues
  // and before Watch. Does nothing if the system has no pipe left.
  void ShareRings();
  // Sends each packet as a datagram of its own, without bursts. Call this before ShareQueues.
  void SendPacketsSingly() { sends_bursts_ = false; }
  // The number of datagrams that the kernel dropped before this host could receive them.
  uint64_t queue_drops() const;
  // Returns how many bytes the open ports have sent and received by their sockets.
  SocketBytes socket_bytes() const;
  // Returns how many bytes the host has sent and received by rings.
  uint64_t sent_by_rings() const { return sent_by_rings_; }
  uint64_t received_by_rings() const {
    return own_rings_ == nullptr ? 0 : own_rings_->received_bytes();
  }

  // Exchanges with the hosts on the other ends of the rings where programs poll
  // (PeerRings::ShowPoller, OwnRings::PeersPoller).
  void ShowPoller(uint32_t processor) {
    if (peer_rings_ != nullptr) peer_rings_->ShowPoller(processor);
  }
  uint32_t PeersPoller() const { return own_rings_ == nullptr ? 0 : own_rings_->PeersPoller(); }

  // Adds a port. Datagrams that one Host::Work sends must leave the process before the loop sleeps,
  // so the loop calls Flush.
  void Add(UdpPort port);
  // Adds all sockets to the epoll descriptor, as kUdpPort and kGroupPort with their numbers, and
  // the wake-ups by other hosts, as kRings.
  // Sockets of later addresses and groups are added, too. Fails with an errno of epoll_ctl(2).
  Status Watch(int epoll_fd);

  // Opens an address that the host gets while it runs. Fails with EADDRINUSE, EADDRNOTAVAIL and the
  // other errors of bind(2).
  Status Open(const HostAddress& address) override;
  void Close(const NetAddress& address) override;

  // Enables TakeRefused. Its results are for Host::Refused.
  void ReportRefusals() override;
  struct Refused {
    NetAddress local, remote;
  };
  // Returns the addresses to which a port has sent since the last call and at which no socket
  // listens. Returns an empty list unless ReportRefusals was called.
  std::vector<Refused> TakeRefused();

  // Closes all sockets and drops unsent datagrams. Other hosts can then bind the addresses.
  void CloseAll();

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override;
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) override;
  std::optional<std::span<std::byte>> AllocateForm(const wire::UdpFlow& flow, uint8_t traffic_class,
                                                   size_t bytes, bool may_wait) override;
  void Commit() override;
  std::unique_ptr<UnfilledForm> CommitUnfilled(size_t payload_bytes) override;
  bool takes_unfilled() const override {
    return allocated_ring_ != nullptr && allocated_ring_->takes_unfilled();
  }
  bool SendOffer(const wire::UdpFlow& flow, std::span<const std::byte> offer) override;
  Result<Segment> OpenLane(const JobReference& lane, SharedMemory& own) override {
    return own_rings_ == nullptr ? Fail(EINVAL) : own_rings_->OpenLane(lane, own);
  }
  std::shared_ptr<JobPage> OpenJobPage(const JobReference& page) override {
    return own_rings_ == nullptr ? nullptr : own_rings_->OpenJobPage(page);
  }
  std::shared_ptr<const int> OpenCounter(const NetAddress& peer, int fd) override {
    return peer_rings_ == nullptr ? nullptr : peer_rings_->OpenCounter(peer, fd);
  }
  void AddToCounter(const NetAddress& peer, int fd) override {
    if (peer_rings_ != nullptr) peer_rings_->AddToCounter(peer, fd);
  }
  void BeforeWaiting(std::function<void()> before) override { before_waiting_ = std::move(before); }
  // Fails with ENOBUFS above kMaxGroups, with EADDRNOTAVAIL if no port has the address, and with
  // the errors of GroupPort::Open.
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override;
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override;

  // `at` is the host's own address at which the datagrams were received.
  using Handler = std::function<void(const wire::UdpFlow& flow, WireForm form,
                                     std::span<const std::span<const std::byte>> udp_payloads,
                                     const NetAddress& at)>;
  // Receives one batch from the port or group with this number. Returns false if there was no
  // datagram, the port is closed, or the host has left the group.
  bool ReceivePort(uint32_t number, const Handler& handler);
  bool ReceiveGroup(uint32_t number, const Handler& handler);
  // Delivers the datagrams that were received while a send waited, and then those in rings. Returns
  // true if there were any. `direct` acts as that of OwnRings::Receive.
  bool ReceiveShared(const Handler& handler, const OwnRings::DirectHandler& direct = nullptr);
  // Tells other hosts whether they must wake up this host, and acknowledges a wake-up (kRings).
  // After PrepareRingsForSleep(true), check HasUnreadInRings before sleeping.
  void PrepareRingsForSleep(bool asleep);
  void TakeRingWake();
  bool HasUnreadInRings() const;
  // Returns true if a program may show a datagram to this host without a wake-up. Call it before
  // HasUnreadInRings, and do not sleep for long after true.
  bool AwaitsPayload() const { return own_rings_ != nullptr && own_rings_->AwaitsPayload(); }

  // Gives all pending datagrams to the kernel.
  void Flush();
  // Flushes, and waits for room in the peers' queues. Call this for the last datagrams of a host or
  // an address.
  void FlushAll();
  // Returns true if the kernel did not accept all datagrams. Call Flush again shortly afterwards.
  bool blocked() const;

 private:
  struct Port {
    UdpPort socket;
    std::shared_ptr<OwnQueue> queue;  // null: not published
  };
  // Datagrams of one flow, as UdpReceiver delivers them.
  struct Staged {
    wire::UdpFlow flow;
    NetAddress at;
    WireForm form;
    std::vector<std::byte> bytes;
    std::vector<size_t> sizes;
  };

  bool ReceiveStaged(const Handler& handler);
  bool Receive(int fd, NetAddress destination, NetAddress at, const Handler& handler);
  bool ReceiveFrom(const Port& port, UdpReceiver& receiver, const Handler& handler);
  void Publish(Port& port);
  bool Stage();
  // Lets another host work, which this host waits for. Receives its datagrams meanwhile.
  void AwaitPeer();
  void WaitForPeer(UdpPort& port);
  // Returns the ring to a peer, or nullptr when the datagrams must use the port's socket.
  PeerRing* RingTo(UdpPort& port, const NetAddress& peer);
  // Allocates in the ring to the flow's destination. Waits until the ring has room, if `may_wait`.
  // Returns how many datagrams got one. Returns 0 if the reader does not read, or if there is no
  // ring any more.
  size_t AllocateInRing(PeerRing* ring, const wire::UdpFlow& flow, uint8_t traffic_class,
                        WireForm form, std::span<const size_t> bytes,
                        std::span<std::span<std::byte>> rooms, bool may_wait);
  // Allocates for one form or offer. Returns nothing if there is no ring to the destination, and an
  // empty room if the ring is full.
  std::optional<std::span<std::byte>> AllocateEntry(const wire::UdpFlow& flow,
                                                    uint8_t traffic_class, WireForm form,
                                                    size_t bytes, bool may_wait);
  // `may_wake_late`: readers that are busy with this host are woken up at a later call.
  void FlushRings(bool may_wake_late = false);
  // Sends what a ring's reader did not read as datagrams.
  void SendBySocket(const NetAddress& peer, const RingDatagram& datagram);
  void SendBySocket(UdpPort& port, const wire::UdpFlow& flow, uint8_t traffic_class,
                    std::span<const std::byte> udp_payload);
  Status WatchPort(uint32_t number);
  UdpPort* PortOf(const NetAddress& address) const;  // nullptr: there is none

  bool sends_bursts_ = true;
  std::unique_ptr<EmulatorPeers> emulators_ = std::make_unique<EmulatorPeers>();
  std::string directory_;                     // directory of the published queues
  std::unique_ptr<PeerQueues> peers_;         // nullptr: sends never wait for a peer
  std::vector<std::unique_ptr<Port>> ports_;  // by number; nullptr: free
  std::map<uint32_t, GroupPort> groups_;      // by number; a number is never reused
  uint32_t last_group_ = 0;
  int epoll_fd_ = -1;  // not owned
  UdpReceiver receiver_;
  UdpPort* allocated_ = nullptr;
  PeerRing* allocated_ring_ = nullptr;
  std::span<std::byte> allocated_form_;
  std::function<void()> before_waiting_;
  std::unique_ptr<PeerRings> peer_rings_;  // nullptr: without rings, as own_rings_
  std::unique_ptr<OwnRings> own_rings_;
  std::unique_ptr<UdpReceiver> staging_receiver_;  // created at the first use
  std::deque<Staged> staged_;
  size_t staged_bytes_ = 0;
  uint64_t drops_of_closed_ = 0;
  uint64_t sent_by_rings_ = 0;  // bytes
  bool reports_refusals_ = false;
};

}  // namespace rdmaemu::runtime
