// The fill level of UDP receive queues, shared between the hosts of one user on one machine. The
// kernel silently drops a datagram when the receive queue is full. Hosts that share these counters
// wait instead. Each port publishes a page of shared memory. A small file in the registry says
// where the page is. Nothing of this is sent on the wire.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "emulator/base/net_address.h"
#include "emulator/base/time.h"
#include "emulator/runtime/ring_door.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// Returns the charge that the kernel counts against a receive queue, in bytes, as an upper bound of
// skb->truesize. `datagrams` above 1 means several that the kernel keeps as one burst
// (UDP_SEGMENT). Sender and receiver compute the same value.
uint64_t QueueCharge(size_t bytes, size_t datagrams);

// The shared page of a port. Any process of the same user can write it, so hosts do not trust its
// numbers. Because of wrong numbers a sender does not wait, or waits for at most
// PeerQueues::kDeafAfter.
struct QueuePage {
  uint64_t magic;
  uint8_t address[16];
  uint64_t network;                // inode of the network namespace
  uint64_t id;                     // inode of the page's memory
  uint64_t capacity;               // charge that the queue accepts without drops
  std::atomic<uint64_t> sent;      // total charge that senders gave to the kernel
  std::atomic<uint64_t> taken;     // total charge that was received or dropped
  std::atomic<uint32_t> is_ended;  // the port is closed
  RingDoor rings;                  // how other hosts avoid the socket
};

// One page of mapped shared memory. The memory is sealed against shrinking, so that an access
// cannot fault.
class QueueMapping {
 public:
  QueueMapping() = default;
  explicit QueueMapping(QueuePage* page) : page_(page) {}
  QueueMapping(QueueMapping&& other) noexcept : page_(other.page_) { other.page_ = nullptr; }
  QueueMapping& operator=(QueueMapping&& other) noexcept;
  ~QueueMapping();
  explicit operator bool() const { return page_ != nullptr; }
  QueuePage* operator->() const { return page_; }
  QueuePage& operator*() const { return *page_; }

 private:
  QueuePage* page_ = nullptr;
};

// The receive queue of a port of this host.
class OwnQueue {
 public:
  // Publishes the receive queue of a socket that is bound to `address`. Returns nullptr if the
  // system refuses. Senders then do not wait.
  static std::unique_ptr<OwnQueue> Publish(const std::string& directory, const NetAddress& address,
                                           int socket_fd);
  ~OwnQueue();

  QueuePage& page() const { return *page_; }
  // Returns the charge sent so far. Read it before receiving. Pass it to Emptied if there was no
  // datagram.
  uint64_t sent() const { return page_->sent.load(std::memory_order_acquire); }
  // Counts a received charge.
  void Took(uint64_t charge);
  // Records an empty queue. Everything that was sent before was received or dropped.
  void Emptied(uint64_t sent_before);

 private:
  OwnQueue(std::string path, UniqueFd memory, QueueMapping page)
      : path_(std::move(path)), memory_(std::move(memory)), page_(std::move(page)) {}

  std::string path_;
  UniqueFd memory_;  // open as long as the queue is published
  QueueMapping page_;
};

// The receive queues of the ports to which a host sends.
class PeerQueues {
 public:
  // The pause between two searches for the queue of an address that publishes none.
  static constexpr Duration kLookAgain = std::chrono::seconds(1);
  // A full queue that has not shrunk for this time may belong to a dead host. The sender searches
  // for the queue again.
  static constexpr Duration kCheckAfter = std::chrono::milliseconds(20);
  // A full queue that has not shrunk for this time belongs to a stopped host. Senders do not wait
  // for this queue until it shrinks.
  static constexpr Duration kDeafAfter = std::chrono::seconds(1);
  static constexpr size_t kMaxPeers = 4096;

  explicit PeerQueues(std::string directory) : directory_(std::move(directory)) {}

  // Returns whether the peer's queue has room for a datagram or burst of `charge`. `before` is the
  // total charge of others that are sent first. Returns true if the peer publishes no queue.
  bool Fits(const NetAddress& peer, uint64_t before, uint64_t charge);
  // Records that the kernel accepted datagrams of this charge for the peer.
  void Sent(const NetAddress& peer, uint64_t charge);

  // Returns the page of a peer that takes rings. nullptr: there is none, or RefuseRings was called.
  std::shared_ptr<QueueMapping> PageForRing(const NetAddress& peer);
  // Makes PageForRing return nullptr until another page appears at this address.
  void RefuseRings(const NetAddress& peer);

 private:
  struct Peer {
    std::shared_ptr<QueueMapping> page;  // nullptr: the peer publishes none
    bool refuses_rings = false;
    Time look_again{};
    // While the queue is full: the last seen value of `taken`, and when it changed.
    bool is_full = false;
    uint64_t taken = 0;
    Time taken_at{};
  };
  Peer* Find(const NetAddress& peer);
  void Open(const NetAddress& address, Peer& peer) const;
  QueueMapping Map(const NetAddress& peer) const;

  std::string directory_;
  std::unordered_map<NetAddress, Peer> peers_;
};

}  // namespace rdmaemu::runtime
