// The rings between this host and the other hosts of its user on this machine (peer_ring.h).
// PeerRings has the rings to which this host writes, OwnRings those that it reads.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/base/net_address.h"
#include "emulator/base/time.h"
#include "emulator/runtime/direct_forms.h"
#include "emulator/runtime/peer_ring.h"
#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/ring_door.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class OwnRings;

// A ring to one port of another host.
class PeerRing {
 public:
  // A reader that has released nothing for this long may be dead.
  static constexpr Duration kCheckAfter = std::chrono::milliseconds(1);
  // The reader is woken up at the latest when this many bytes were written.
  static constexpr size_t kWakeBytes = size_t{64} << 10;
  // The most calls of Flush that leave a busy reader asleep. Together they receive less than a
  // quarter of a ring.
  static constexpr int kMaxLateWakes = 3;
  // An awake reader sees datagrams at the latest when this many bytes were written.
  static constexpr size_t kPublishBytes = size_t{2} << 10;
  // Limit of the datagrams that wait for room while the host must not block.
  static constexpr size_t kMaxOverflowBytes = size_t{64} << 20;

  // Creates a ring and offers it to the port of `page`. Returns nullptr if the port takes none.
  static std::unique_ptr<PeerRing> Offer(std::shared_ptr<QueueMapping> page);
  ~PeerRing();

  // Act as those of UdpPort. AllocateRun returns 0 if the ring is full. With `may_overflow` it then
  // allocates ordinary memory, and Flush moves the datagrams to the ring.
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms,
                     bool may_overflow);
  // Allocates for one. Returns an empty room if the ring is full, or if others wait for room.
  std::span<std::byte> AllocateOne(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                                   size_t bytes) {
    if (!overflow_.empty()) return {};
    is_allocated_in_ring_ = true;
    allocated_bytes_ = bytes;
    return writer_->AllocateOne(flow, traffic_class, form, bytes);
  }
  void Commit();
  // Sends the allocated form, whose payload is missing. nullptr: the form waits for room, so takes
  // its payload at once.
  std::unique_ptr<UnfilledForm> CommitUnfilled(std::span<std::byte> payload);
  void ShowPoller(uint32_t processor) { writer_->ShowPoller(processor); }
  // Returns true if CommitUnfilled works now.
  bool takes_unfilled() const { return is_allocated_in_ring_; }
  // Moves waiting datagrams to the ring, and wakes up the reader. With `own` the wake-up waits
  // while this host has unread datagrams from the reader, because each wake-up interrupts this host
  // if both share a processor. Call Flush again then.
  void Flush(const OwnRings* own = nullptr);
  // Returns true while the reader has datagrams to read.
  bool has_unread() const { return !writer_->empty() || !overflow_.empty(); }
  // Returns true while unread datagrams need a later Flush and IsDead.
  bool awaits_reader() const { return has_unread() && !is_deaf_; }
  // Returns true while datagrams wait for room.
  bool has_overflow() const { return overflow_committed_ > 0; }

  // Returns true if the reader has ended in order. Its unread datagrams are lost, as those in the
  // queue of a closed socket.
  bool is_closed() const { return (*page_)->is_ended.load(std::memory_order_acquire) != 0; }
  // Returns true if a further ring must replace this one (UnfilledForm::Abandon).
  bool is_retired() const { return writer_->is_retired(); }
  // Returns true if the reader has refused the ring, or was killed. The caller must then send the
  // unread datagrams to the socket.
  bool IsDead(Time now);
  // Returns true if the reader has released nothing for PeerQueues::kDeafAfter.
  bool is_deaf() const { return is_deaf_; }
  // Duplicates a counter of the reader. Returns an empty descriptor if the reader has no such
  // counter, or if the system denies it.
  UniqueFd OpenCounter(int fd) const;
  // Calls `send` for each unread datagram, oldest first.
  void TakeUnread(const std::function<void(const RingDatagram&)>& send) const;

 private:
  struct Waiting {
    wire::UdpFlow flow;
    uint8_t traffic_class;
    WireForm form;
    std::vector<std::byte> bytes;
  };
  PeerRing(std::shared_ptr<QueueMapping> page, std::shared_ptr<RingWriter> writer, UniqueFd wake)
      : page_(std::move(page)), writer_(std::move(writer)), wake_(std::move(wake)) {}
  RingDoor& door() const { return (*page_)->rings; }
  size_t Overflow(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                  std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms);
  void Wake();

  std::shared_ptr<QueueMapping> page_;
  std::shared_ptr<RingWriter> writer_;  // unfilled forms keep it
  UniqueFd wake_;
  uint32_t slot_ = 0;
  uint64_t offered_ = 0;  // the slot's word
  bool is_allocated_in_ring_ = true;
  size_t unannounced_bytes_ = 0, allocated_bytes_ = 0;
  bool is_finish_unannounced_ = false;
  int late_wakes_ = 0;
  std::deque<Waiting> overflow_;
  size_t overflow_bytes_ = 0;
  size_t overflow_committed_ = 0;  // further ones are only allocated
  uint64_t released_ = 0;          // at the last IsDead
  Time released_at_{};
  bool is_waiting_ = false, is_deaf_ = false;
};

class PeerRings {
 public:
  // The most rings to which a host writes. It sends to further peers by sockets.
  static constexpr size_t kMaxRings = 64;

  explicit PeerRings(PeerQueues& queues) : queues_(queues) {}

  // Returns the ring to `peer`, or nullptr if there is none.
  PeerRing* Find(const NetAddress& peer);
  // Returns the ring to `peer`. Offers one if there is none and the peer takes rings. Flush the
  // socket before this call, because the reader reads the socket before a new ring.
  PeerRing* FindOrOffer(const NetAddress& peer);
  // Returns true if FindOrOffer may offer a ring.
  bool MayOffer(const NetAddress& peer);
  // Flushes all rings. Calls `abandoned` for each unread datagram of a ring whose reader is dead.
  // `own` acts as that of PeerRing::Flush.
  using Abandoned = std::function<void(const NetAddress& peer, const RingDatagram& datagram)>;
  void Flush(const Abandoned& abandoned, const OwnRings* own = nullptr);
  // Returns true while any ring awaits its reader.
  bool AwaitReaders() const;
  // Returns true while datagrams wait for room in the ring of a reader that is not deaf.
  bool HaveOverflow() const;
  // Act as those of Network.
  std::shared_ptr<const int> OpenCounter(const NetAddress& peer, int fd);
  void AddToCounter(const NetAddress& peer, int fd);
  // Tells all peers where this host's program polls (RingHeader::poller).
  void ShowPoller(uint32_t processor);
  void Clear() { rings_.clear(); }

 private:
  PeerQueues& queues_;
  std::unordered_map<NetAddress, std::unique_ptr<PeerRing>> rings_;
};

// The rings to the ports of this host.
class OwnRings {
 public:
  // The most datagrams that one ring delivers before the next ring. They have less than a quarter
  // of the ring's bytes at an MTU of 4096 bytes, so that the writer continues meanwhile.
  static constexpr size_t kMaxAtOnce = 48;
  // The same limit in bytes, for forms of trains.
  static constexpr size_t kMaxBytesAtOnce = size_t{256} << 10;
  // The most unfilled forms of a ring whose destination is named.
  static constexpr size_t kMaxAhead = 32;
  // A datagram of at most this many bytes is copied before it is read, because the writer may
  // change the ring. CM messages are smaller. Of a larger datagram, the host reads each header
  // field once.
  static constexpr size_t kCopiedBytes = 1024;

  // Returns nullptr if the system has no pipe left. The host then takes no rings.
  static std::unique_ptr<OwnRings> Create();

  // Lets other hosts offer rings to the port of `page`.
  void Open(const NetAddress& port, QueuePage& page);
  // Ends the port's rings. Their unread datagrams are lost.
  void Close(const NetAddress& port);

  // The descriptor that is readable after another host has woken up this host, and TakeWake, which
  // makes it unreadable.
  int wake_fd() const { return wake_read_.get(); }
  void TakeWake();
  // Tells the writers whether they must wake up this host.
  void PrepareSleep(bool asleep);
  // Returns true if a ring was offered since the last TakeOffers.
  bool HasOffers() const;
  void TakeOffers();
  bool HasUnread() const;
  // Returns true if a ring waits for the payload of a form. A program may end this wait, and does
  // not wake up this host.
  bool AwaitsPayload() const;
  // Returns true if a ring of the host with this pid has unread datagrams.
  bool HasUnreadFrom(uint32_t pid) const;

  using Handler = std::function<void(const wire::UdpFlow& flow, WireForm form,
                                     std::span<const std::span<const std::byte>> udp_payloads,
                                     const NetAddress& at)>;
  // Acts as Host::Direct.
  using DirectHandler =
      std::function<Naming(const wire::UdpFlow& flow, std::span<const std::byte> form,
                           const std::shared_ptr<DirectForm>& direct)>;
  // Delivers the next datagrams of each ring. The spans are valid in the handler only. In a nested
  // call, which a handler makes, the ring of that handler is left out. Returns true if there were
  // datagrams. Then calls `direct`, if it is set, for forms whose payload is missing.
  bool Receive(const Handler& handler, const DirectHandler& direct = nullptr);
  // Acts as Network::OpenJobPage, during a handler of Receive.
  std::shared_ptr<JobPage> OpenJobPage(const JobReference& page);
  // Acts as Network::OpenLane, during a handler of Receive.
  Result<Segment> OpenLane(const JobReference& lane, SharedMemory& own) const;
  // Returns the processor of the one peer's program that polls, counted from 1. Returns 0 if there
  // is none, or if peers' programs poll on several processors.
  uint32_t PeersPoller() const;
  // Returns how many bytes Receive has delivered.
  uint64_t received_bytes() const { return received_bytes_; }
  // Returns true during a handler of Receive.
  bool is_receiving() const { return receiving_ > 0; }

 private:
  struct Port {
    NetAddress address;
    QueuePage* page;  // of UdpNetwork's OwnQueue
    uint32_t offers_seen = 0;
  };
  // An unfilled form that NameDestinations has examined.
  struct Ahead {
    uint64_t position, end;
    std::shared_ptr<transport::ForeignJob> form;  // nullptr: its reference was wrong
  };
  struct Ring {
    NetAddress port{};
    uint32_t slot = 0;
    RingOffer offer{};
    RingReader reader{};
    bool in_use = false;        // by a handler
    bool is_closed = false;     // its port was closed
    std::deque<Ahead> ahead{};  // in their order, from the next entry on
    std::vector<std::shared_ptr<transport::ForeignJob>> read{};  // during ReceiveFrom
    uint64_t later = UINT64_MAX;  // the position of a form that awaits those before it
    // Takes the named destinations back.
    ~Ring();
    bool IsDirect(const Ahead& form) const;
    bool AreAllDirect() const;
    // Returns the next form to examine, and the position behind it.
    std::optional<RingDatagram> NextUnnamed(uint64_t& end) const;
  };
  OwnRings(UniqueFd read, UniqueFd write)
      : wake_read_(std::move(read)), wake_write_(std::move(write)) {}
  void TakeOffersOf(Port& port);
  bool ReceiveFrom(Ring& ring, const Handler& handler);
  void NameDestinations(Ring& ring, const DirectHandler& direct);
  // Forgets examined forms that were read. Returns true if the last one was copied directly.
  static bool ForgetRead(Ring& ring);
  static void WithdrawAhead(Ring& ring);
  void FreeSlot(const Ring& ring);
  void DropEnded();

  UniqueFd wake_read_, wake_write_;
  std::vector<Port> ports_;
  std::vector<std::shared_ptr<Ring>> rings_;  // in the order of their offers
  struct Buffers {
    std::vector<std::span<const std::byte>> payloads;
    std::unique_ptr<std::byte[]> copies;
  };
  std::array<Buffers, 2> buffers_;
  ForeignJobPages job_pages_;
  int receiving_ = 0;
  uint32_t receiving_from_ = 0;  // the pid of the writer whose datagrams a handler has now
  uint64_t received_bytes_ = 0;
};

}  // namespace rdmaemu::runtime
