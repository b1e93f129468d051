#include "emulator/runtime/queue_credit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "emulator/runtime/clock.h"

namespace rdmaemu::runtime {
namespace {

constexpr uint64_t kQueueMagic = 0x72646d6165327175;
constexpr size_t kPageBytes = 4096;
static_assert(sizeof(QueuePage) <= kPageBytes);
constexpr int kQueueSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// The bytes of a single datagram share a power of two with its headers, alignment and struct
// skb_shared_info. Its struct sk_buff is added to that. The bytes of a burst are in separate pages.
constexpr uint64_t kAloneOverhead = 448, kSkbBytes = 256, kBurstOverhead = 1280;
// The kernel may not yet have freed the room of received datagrams, up to a quarter of the buffer
// (udp_rmem_release).
constexpr uint64_t kUsableOf4 = 3;

uint64_t NetworkInode() {
  struct stat status;
  return stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0;
}

// Identifies the memory of one page: no two memfds that exist have the same inode.
uint64_t MemoryId(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

std::string QueuePath(const std::string& directory, const NetAddress& address) {
  return directory + "/" + std::to_string(NetworkInode()) + "-" + address.ToString() + ".queue";
}

QueueMapping Map(int fd) {
  void* const memory = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? QueueMapping() : QueueMapping(static_cast<QueuePage*>(memory));
}

}  // namespace

uint64_t QueueCharge(size_t bytes, size_t datagrams) {
  if (datagrams > 1) return bytes + kBurstOverhead;
  return std::bit_ceil(uint64_t{bytes} + kAloneOverhead) + kSkbBytes;
}

QueueMapping& QueueMapping::operator=(QueueMapping&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

QueueMapping::~QueueMapping() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
}

std::unique_ptr<OwnQueue> OwnQueue::Publish(const std::string& directory, const NetAddress& address,
                                            int socket_fd) {
  int buffer = 0;
  socklen_t size = sizeof buffer;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_RCVBUF, &buffer, &size) != 0) return nullptr;
  UniqueFd memory(memfd_create("rdmaemu-queue", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), kPageBytes) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kQueueSeals) != 0) {
    return nullptr;
  }
  QueueMapping page = Map(memory.get());
  if (!page) return nullptr;
  page->magic = kQueueMagic;
  std::memcpy(page->address, address.bytes.data(), sizeof page->address);
  page->network = NetworkInode();
  page->id = MemoryId(memory.get());
  page->capacity = static_cast<uint64_t>(buffer) * kUsableOf4 / 4;

  const std::string path = QueuePath(directory, address), made = path + ".new";
  const UniqueFd file(
      open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory.get()) + "\n";
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(made.c_str(), path.c_str()) != 0) {
    unlink(made.c_str());
    return nullptr;
  }
  return std::unique_ptr<OwnQueue>(new OwnQueue(path, std::move(memory), std::move(page)));
}

OwnQueue::~OwnQueue() {
  page_->is_ended.store(1, std::memory_order_release);
  unlink(path_.c_str());
}

void OwnQueue::Took(uint64_t charge) {
  page_->taken.store(page_->taken.load(std::memory_order_relaxed) + charge,
                     std::memory_order_release);
}

void OwnQueue::Emptied(uint64_t sent_before) {
  const uint64_t taken = page_->taken.load(std::memory_order_relaxed);
  if (static_cast<int64_t>(sent_before - taken) > 0) {
    page_->taken.store(sent_before, std::memory_order_release);
  }
}

QueueMapping PeerQueues::Map(const NetAddress& peer) const {
  std::ifstream file(QueuePath(directory_, peer));
  std::string where;
  if (!std::getline(file, where) || !where.starts_with("/proc/")) return {};
  const UniqueFd memory(open(where.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status;
  if (!memory || fstat(memory.get(), &status) != 0 || status.st_size != kPageBytes ||
      (fcntl(memory.get(), F_GET_SEALS) & kQueueSeals) != kQueueSeals) {
    return {};
  }
  QueueMapping page = runtime::Map(memory.get());
  // The file may belong to a dead host, and its descriptor number may have been reused.
  if (!page || page->magic != kQueueMagic || page->network != NetworkInode() ||
      std::memcmp(page->address, peer.bytes.data(), sizeof page->address) != 0) {
    return {};
  }
  return page;
}

// Hosts that reuse an address have a page of their own each.
void PeerQueues::Open(const NetAddress& address, Peer& peer) const {
  QueueMapping page = Map(address);
  const bool is_same = page && peer.page != nullptr && page->id == (*peer.page)->id;
  if (is_same) return;
  peer.page = page ? std::make_shared<QueueMapping>(std::move(page)) : nullptr;
  peer.refuses_rings = false;
}

PeerQueues::Peer* PeerQueues::Find(const NetAddress& address) {
  if (directory_.empty()) return nullptr;
  const auto found = peers_.find(address);
  if (found != peers_.end() && found->second.page != nullptr &&
      (*found->second.page)->is_ended.load(std::memory_order_acquire) == 0) {
    return &found->second;
  }
  const Time now = RealNow();
  if (found != peers_.end() && now < found->second.look_again) return nullptr;
  if (peers_.size() >= kMaxPeers) peers_.clear();
  Peer& peer = peers_[address];
  Open(address, peer);
  peer.look_again = now + kLookAgain;
  peer.is_full = false;
  return peer.page != nullptr ? &peer : nullptr;
}

std::shared_ptr<QueueMapping> PeerQueues::PageForRing(const NetAddress& address) {
  Peer* const peer = Find(address);
  if (peer == nullptr) return nullptr;
  if (peer->refuses_rings) {
    // The page may belong to a dead host, whose address another host has taken.
    const Time now = RealNow();
    if (now < peer->look_again) return nullptr;
    peer->look_again = now + kLookAgain;
    Open(address, *peer);
    if (peer->page == nullptr || peer->refuses_rings) return nullptr;
  }
  return (*peer->page)->rings.pid != 0 ? peer->page : nullptr;
}

void PeerQueues::RefuseRings(const NetAddress& address) {
  if (const auto found = peers_.find(address); found != peers_.end()) {
    found->second.refuses_rings = true;
  }
}

bool PeerQueues::Fits(const NetAddress& address, uint64_t before, uint64_t charge) {
  Peer* const peer = Find(address);
  if (peer == nullptr) return true;
  const QueuePage& page = **peer->page;
  const uint64_t taken = page.taken.load(std::memory_order_acquire);
  const uint64_t sent = page.sent.load(std::memory_order_acquire);
  const auto queued =
      static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(sent - taken)));
  const uint64_t used = queued + before;
  // An empty queue accepts one burst whatever its capacity is.
  if (used == 0 || used + charge <= page.capacity) {
    peer->is_full = false;
    return true;
  }
  const Time now = RealNow();
  if (!std::exchange(peer->is_full, true) || taken != peer->taken) {
    peer->taken = taken;
    peer->taken_at = now;
  }
  if (now - peer->taken_at < kCheckAfter) return false;
  if (now >= peer->look_again) {
    Open(address, *peer);  // the same queue, or that of a new host
    peer->look_again = now + (peer->page != nullptr ? kCheckAfter : kLookAgain);
    if (peer->page == nullptr) return true;
  }
  return now - peer->taken_at >= kDeafAfter;
}

void PeerQueues::Sent(const NetAddress& address, uint64_t charge) {
  Peer* const peer = Find(address);
  if (peer != nullptr) (*peer->page)->sent.fetch_add(charge, std::memory_order_acq_rel);
}

}  // namespace rdmaemu::runtime
