// How full the receive queues of UDP ports are, shared between the hosts of one user on one
// machine. The kernel drops what a full receive queue gets and tells the sender nothing; hosts that
// share these counters wait instead. Each port publishes a page of shared memory and a small file
// in the registry that says where. Nothing of it is on the wire.
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
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

// What the kernel counts against a receive queue for one datagram, or for several that it keeps as
// one burst (UDP_SEGMENT): an upper bound of skb->truesize. Sender and receiver compute the same.
uint64_t QueueCharge(size_t bytes, size_t datagrams);

// The page. Its writers may be anybody of the same user, so its numbers are not trusted: the worst
// that they can do is a sender that does not wait, or waits for PeerQueues::kDeafAfter.
struct QueuePage {
  uint64_t magic;
  uint8_t address[16];
  uint64_t network;                // inode of the network namespace
  uint64_t capacity;               // charge that the queue holds without a drop
  std::atomic<uint64_t> sent;      // charge of what senders gave to the kernel, in total
  std::atomic<uint64_t> taken;     // charge of what left the queue, or never came into it
  std::atomic<uint32_t> is_ended;  // the port is closed
};

// Mapped shared memory of one page. Sealed against shrinking, so that touching it cannot fail.
class QueueMapping {
 public:
  QueueMapping() = default;
  explicit QueueMapping(QueuePage* page) : page_(page) {}
  QueueMapping(QueueMapping&& other) noexcept : page_(other.page_) { other.page_ = nullptr; }
  QueueMapping& operator=(QueueMapping&& other) noexcept;
  ~QueueMapping();
  explicit operator bool() const { return page_ != nullptr; }
  QueuePage* operator->() const { return page_; }

 private:
  QueuePage* page_ = nullptr;
};

// A port's own queue.
class OwnQueue {
 public:
  // Publishes the queue of a socket that is bound to the address. Null where the system refuses:
  // senders then do not wait.
  static std::unique_ptr<OwnQueue> Publish(const std::string& directory, const NetAddress& address,
                                           int socket_fd);
  ~OwnQueue();

  // Read this before looking into the queue, for Emptied.
  uint64_t sent() const { return page_->sent.load(std::memory_order_acquire); }
  void Took(uint64_t charge);
  // The queue was found empty: all that was sent before has been taken, or was dropped.
  void Emptied(uint64_t sent_before);

 private:
  OwnQueue(std::string path, UniqueFd memory, QueueMapping page)
      : path_(std::move(path)), memory_(std::move(memory)), page_(std::move(page)) {}

  std::string path_;
  UniqueFd memory_;  // open as long as the queue is published
  QueueMapping page_;
};

// The queues of the ports that a host sends to.
class PeerQueues {
 public:
  // An address without a published queue is looked for again after this time.
  static constexpr Duration kLookAgain = std::chrono::seconds(1);
  // A full queue from which nothing is taken in this time may be a dead host's: looked for again.
  static constexpr Duration kCheckAfter = std::chrono::milliseconds(20);
  // A full queue of a live host from which nothing is taken in this time (a stopped host) does not
  // hold senders up any more, until something is taken.
  static constexpr Duration kDeafAfter = std::chrono::seconds(1);
  static constexpr size_t kMaxPeers = 4096;

  explicit PeerQueues(std::string directory) : directory_(std::move(directory)) {}

  // Whether the peer's queue has room for a datagram or burst of that charge, behind others of
  // `before` that the kernel will be given first. Yes where the peer publishes nothing.
  bool Fits(const NetAddress& peer, uint64_t before, uint64_t charge);
  // The kernel has taken datagrams of that charge for the peer.
  void Sent(const NetAddress& peer, uint64_t charge);

 private:
  struct Peer {
    QueueMapping page;
    Time look_again{};
    // While the queue is full: how much was taken when it was seen to change last.
    bool is_full = false;
    uint64_t taken = 0;
    Time taken_at{};
  };
  Peer* Find(const NetAddress& peer);
  QueueMapping Open(const NetAddress& peer) const;

  std::string directory_;
  std::unordered_map<NetAddress, Peer> peers_;
};

}  // namespace rdmaemu::runtime
