#include "emulator/runtime/peer_rings.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/eventfd_signal.h"
#include "emulator/runtime/peer_files.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {
namespace {

bool IsPipe(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

// A form whose payload another process copies into the ring.
class FormInRing final : public UnfilledForm {
 public:
  FormInRing(std::shared_ptr<RingWriter> ring, uint64_t position, std::span<std::byte> payload)
      : ring_(std::move(ring)), position_(position), payload_(payload) {}
  std::span<std::byte> payload() const override { return payload_; }
  std::byte* mark() const override { return ring_->MarkOf(position_); }
  std::byte filled_mark() const override {
    return std::byte{static_cast<uint8_t>(WireForm::kTrains)};
  }
  bool IsFilled() const override { return ring_->IsFilled(position_); }
  bool takes_references() const override {
    return mark() != nullptr && payload_.size() >= kMinDirectBytes;
  }
  void Refer(const JobReference& job) override { ring_->Refer(position_, payload_, job); }
  void Finish(bool filled) override { ring_->Finish(position_, filled); }
  void Abandon() override {
    ring_->Retire();
    Finish(false);
  }

 private:
  std::shared_ptr<RingWriter> ring_;
  uint64_t position_;
  std::span<std::byte> payload_;
};

}  // namespace

// ---- to other hosts

std::unique_ptr<PeerRing> PeerRing::Offer(std::shared_ptr<QueueMapping> page) {
  RingDoor& door = (*page)->rings;
  const uint32_t pid = door.pid, wake_fd = door.wake_fd;
  if (pid == 0) return nullptr;
  UniqueFd wake = OpenOf(pid, wake_fd, O_WRONLY);
  if (!wake || !IsPipe(wake.get())) return nullptr;
  auto writer = std::make_shared<RingWriter>(RingWriter::Create());
  if (!*writer) return nullptr;
  const RingOffer offer{static_cast<uint32_t>(getpid()), static_cast<uint32_t>(writer->fd())};
  std::unique_ptr<PeerRing> ring(new PeerRing(std::move(page), std::move(writer), std::move(wake)));
  ring->offered_ = offer.word();
  for (uint32_t slot = 0; slot < kMaxRingsToPort; slot++) {
    uint64_t free = 0;
    if (!door.slots[slot].compare_exchange_strong(free, offer.word())) continue;
    ring->slot_ = slot;
    door.offers.fetch_add(1);
    ring->Wake();
    return ring;
  }
  return nullptr;
}

// The reader frees the slot when it has read the rest.
PeerRing::~PeerRing() { writer_->End(); }

size_t PeerRing::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                             std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms,
                             bool may_overflow) {
  while (overflow_.size() > overflow_committed_) {  // allocated, and never committed
    overflow_bytes_ -= overflow_.back().bytes.size();
    overflow_.pop_back();
  }
  if (!overflow_.empty()) Flush();
  size_t count = 0;
  is_allocated_in_ring_ = overflow_.empty();
  if (is_allocated_in_ring_) count = writer_->AllocateRun(flow, traffic_class, form, bytes, rooms);
  if (count == 0) writer_->Publish();  // the reader makes room
  if (count == 0 && may_overflow) count = Overflow(flow, traffic_class, form, bytes, rooms);
  allocated_bytes_ = 0;
  for (size_t i = 0; i < count; i++) allocated_bytes_ += bytes[i];
  return count;
}

size_t PeerRing::Overflow(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                          std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
  is_allocated_in_ring_ = false;
  for (size_t i = 0; i < bytes.size(); i++) {
    if (overflow_bytes_ + bytes[i] > kMaxOverflowBytes || bytes[i] > MaxEntryBytes(form)) return i;
    overflow_.push_back({flow, traffic_class, form, std::vector<std::byte>(bytes[i])});
    overflow_bytes_ += bytes[i];
    rooms[i] = overflow_.back().bytes;
  }
  return bytes.size();
}

void PeerRing::Commit() {
  if (!is_allocated_in_ring_) {
    overflow_committed_ = overflow_.size();
    return;
  }
  writer_->Commit();
  if (writer_->unpublished() >= kPublishBytes) writer_->Publish();
  unannounced_bytes_ += allocated_bytes_;
  if (unannounced_bytes_ >= kWakeBytes) Wake();
}

std::unique_ptr<UnfilledForm> PeerRing::CommitUnfilled(std::span<std::byte> payload) {
  auto form = std::make_unique<FormInRing>(writer_, writer_->CommitUnfilled(), payload);
  writer_->Publish();
  unannounced_bytes_ += allocated_bytes_;
  return form;
}

void PeerRing::Flush(const OwnRings* own) {
  while (overflow_committed_ > 0) {
    const Waiting& next = overflow_.front();
    const size_t bytes = next.bytes.size();
    std::span<std::byte> room;
    if (writer_->AllocateRun(next.flow, next.traffic_class, next.form, {&bytes, 1}, {&room, 1}) ==
        0) {
      break;
    }
    std::copy(next.bytes.begin(), next.bytes.end(), room.begin());
    writer_->Commit();
    unannounced_bytes_ += bytes;
    overflow_bytes_ -= bytes;
    overflow_.pop_front();
    overflow_committed_--;
  }
  writer_->Publish();
  is_finish_unannounced_ |= writer_->TakeFinished();
  if (!is_finish_unannounced_ && unannounced_bytes_ == 0) return;
  if (own != nullptr && late_wakes_ < kMaxLateWakes && own->HasUnreadFrom(door().pid)) {
    late_wakes_++;
    return;
  }
  Wake();
}

// The reader sets `asleep` and then looks for datagrams. This host has published its datagrams
// before it reads `asleep`. One of the two sees the other.
void PeerRing::Wake() {
  writer_->Publish();
  unannounced_bytes_ = 0;
  is_finish_unannounced_ = false;
  late_wakes_ = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (door().asleep.load(std::memory_order_relaxed) == 0 || door().asleep.exchange(0) == 0) return;
  // A full pipe has woken up the reader. EPIPE: IsDead finds that the reader is dead.
  (void)!write(wake_.get(), "", 1);
}

bool PeerRing::IsDead(Time now) {
  if (!has_unread()) {
    is_waiting_ = is_deaf_ = false;
    return false;
  }
  const uint64_t released = writer_->released();
  if (!std::exchange(is_waiting_, true) || released != released_) {
    released_ = released;
    released_at_ = now;
    is_deaf_ = false;
    return false;
  }
  if (now - released_at_ < kCheckAfter) return false;
  is_deaf_ = now - released_at_ >= PeerQueues::kDeafAfter;
  pollfd pipe{wake_.get(), 0, 0};
  const bool has_no_reader = poll(&pipe, 1, 0) == 1 && (pipe.revents & POLLERR) != 0;
  return has_no_reader || door().slots[slot_].load(std::memory_order_acquire) != offered_;
}

UniqueFd PeerRing::OpenCounter(int fd) const { return DuplicateCounterOf(door().pid, fd); }

void PeerRing::TakeUnread(const std::function<void(const RingDatagram&)>& send) const {
  for (const RingDatagram& datagram : writer_->Unread()) send(datagram);
  for (size_t i = 0; i < overflow_committed_; i++) {
    const Waiting& waiting = overflow_[i];
    send({waiting.flow, waiting.traffic_class, waiting.form, waiting.bytes});
  }
}

PeerRing* PeerRings::Find(const NetAddress& peer) {
  const auto found = rings_.find(peer);
  if (found == rings_.end()) return nullptr;
  if (!found->second->is_closed() && !found->second->is_retired()) return found->second.get();
  rings_.erase(found);
  return nullptr;
}

bool PeerRings::MayOffer(const NetAddress& peer) {
  if (rings_.size() >= kMaxRings) return false;
  return queues_.PageForRing(peer) != nullptr;
}

PeerRing* PeerRings::FindOrOffer(const NetAddress& peer) {
  if (PeerRing* const ring = Find(peer)) return ring;
  if (!MayOffer(peer)) return nullptr;
  std::unique_ptr<PeerRing> ring = PeerRing::Offer(queues_.PageForRing(peer));
  if (ring == nullptr) {
    queues_.RefuseRings(peer);
    return nullptr;
  }
  return (rings_[peer] = std::move(ring)).get();
}

void PeerRings::Flush(const Abandoned& abandoned, const OwnRings* own) {
  for (auto each = rings_.begin(); each != rings_.end();) {
    PeerRing& ring = *each->second;
    if (!ring.has_unread()) {
      (void)ring.IsDead({});
      ++each;
      continue;
    }
    ring.Flush(own);
    if (ring.is_closed()) {
      each = rings_.erase(each);
    } else if (ring.IsDead(RealNow())) {
      const NetAddress peer = each->first;
      const std::unique_ptr<PeerRing> dead = std::move(each->second);
      each = rings_.erase(each);
      queues_.RefuseRings(peer);
      dead->TakeUnread([&](const RingDatagram& datagram) { abandoned(peer, datagram); });
    } else {
      ++each;
    }
  }
}

bool PeerRings::AwaitReaders() const {
  return std::ranges::any_of(rings_, [](const auto& each) { return each.second->awaits_reader(); });
}

std::shared_ptr<const int> PeerRings::OpenCounter(const NetAddress& peer, int fd) {
  PeerRing* const ring = Find(peer);
  if (ring == nullptr) return nullptr;
  UniqueFd counter = ring->OpenCounter(fd);
  if (!counter) return nullptr;
  // The pointer closes the descriptor with its last copy.
  return {new int(counter.Release()), [](const int* number) {
            const UniqueFd closes(*number);
            delete number;
          }};
}

void PeerRings::AddToCounter(const NetAddress& peer, int fd) {
  const std::shared_ptr<const int> counter = OpenCounter(peer, fd);
  if (counter == nullptr) return;
  EventfdSignal::OfProcess().Add(*counter, 1);
}

void PeerRings::ShowPoller(uint32_t processor) {
  for (const auto& [peer, ring] : rings_) ring->ShowPoller(processor);
}

bool PeerRings::HaveOverflow() const {
  return std::ranges::any_of(rings_, [](const auto& each) {
    return each.second->has_overflow() && !each.second->is_deaf();
  });
}

// ---- from other hosts

std::unique_ptr<OwnRings> OwnRings::Create() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
  return std::unique_ptr<OwnRings>(new OwnRings(UniqueFd(ends[0]), UniqueFd(ends[1])));
}

void OwnRings::Open(const NetAddress& port, QueuePage& page) {
  page.rings.wake_fd = static_cast<uint32_t>(wake_write_.get());
  page.rings.pid = static_cast<uint32_t>(getpid());
  ports_.push_back({port, &page});
}

void OwnRings::Close(const NetAddress& port) {
  for (const std::shared_ptr<Ring>& ring : rings_) ring->is_closed |= ring->port == port;
  std::erase_if(rings_, [](const auto& ring) { return ring->is_closed; });
  std::erase_if(ports_, [&](const Port& each) { return each.address == port; });
}

void OwnRings::TakeWake() {
  std::array<char, 256> bytes;
  (void)!read(wake_read_.get(), bytes.data(), bytes.size());
}

void OwnRings::PrepareSleep(bool asleep) {
  if (asleep) job_pages_.ForgetEnded();
  for (const Port& port : ports_) port.page->rings.asleep.store(asleep ? 1 : 0);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // PeerRing::Wake has the other
}

bool OwnRings::HasOffers() const {
  return std::ranges::any_of(ports_, [](const Port& port) {
    return port.page->rings.offers.load(std::memory_order_acquire) != port.offers_seen;
  });
}

void OwnRings::TakeOffers() {
  DropEnded();
  for (Port& port : ports_) TakeOffersOf(port);
}

void OwnRings::TakeOffersOf(Port& port) {
  RingDoor& door = port.page->rings;
  port.offers_seen = door.offers.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < kMaxRingsToPort; slot++) {
    const uint64_t word = door.slots[slot].load(std::memory_order_acquire);
    if (word == 0) continue;
    const bool is_known = std::ranges::any_of(rings_, [&](const std::shared_ptr<Ring>& ring) {
      return ring->port == port.address && ring->slot == slot;
    });
    if (is_known) continue;
    const RingOffer offer = RingOffer::Of(word);
    const UniqueFd memory = OpenOf(offer.pid, offer.fd, O_RDWR);
    auto ring = std::make_shared<Ring>();
    ring->port = port.address;
    ring->slot = slot;
    ring->offer = offer;
    if (memory) ring->reader = RingReader::Open(memory.get());
    if (ring->reader) {
      rings_.push_back(std::move(ring));
    } else {
      FreeSlot(*ring);  // the writer sees it, and sends to the socket
    }
  }
}

void OwnRings::FreeSlot(const Ring& ring) {
  for (const Port& port : ports_) {
    if (port.address != ring.port) continue;
    uint64_t word = ring.offer.word();
    port.page->rings.slots[ring.slot].compare_exchange_strong(word, 0);
  }
}

// A killed writer cannot end its rings.
void OwnRings::DropEnded() {
  std::erase_if(rings_, [this](const std::shared_ptr<Ring>& ring) {
    const bool is_dead = kill(static_cast<pid_t>(ring->offer.pid), 0) != 0 && errno == ESRCH;
    if (ring->in_use || !(ring->reader.ended() || (is_dead && !ring->reader.has_unread()))) {
      return false;
    }
    FreeSlot(*ring);
    job_pages_.Forget(ring->offer.pid);
    return true;
  });
}

bool OwnRings::HasUnread() const {
  return std::ranges::any_of(rings_, [](const auto& ring) {
    uint64_t end;
    return ring->reader.has_unread() || ring->NextUnnamed(end).has_value();
  });
}

bool OwnRings::Ring::IsDirect(const Ahead& each) const {
  return each.form != nullptr && (each.form->IsDirect() || reader.IsPlaced(each.position));
}

bool OwnRings::Ring::AreAllDirect() const {
  return std::ranges::all_of(ahead, [this](const Ahead& each) { return IsDirect(each); });
}

std::optional<RingDatagram> OwnRings::Ring::NextUnnamed(uint64_t& end) const {
  end = ahead.empty() ? reader.position() : ahead.back().end;
  if (ahead.size() >= kMaxAhead || reader.has_unread()) return std::nullopt;
  const std::optional<RingDatagram> next = reader.PeekReferring(end);
  if (!next || (next->position == later && !AreAllDirect())) return std::nullopt;
  return next;
}

// A destination may be named if all forms before it are read, or copied directly. Otherwise the
// host would copy an earlier payload after a later one.
void OwnRings::NameDestinations(Ring& ring, const DirectHandler& direct) {
  uint64_t end;
  while (const std::optional<RingDatagram> next = ring.NextUnnamed(end)) {
    const size_t head = transport::FormHeadBytes(next->bytes);
    std::shared_ptr<transport::ForeignJob> form;
    if (head > 0) form = job_pages_.Open(ring.offer.pid, next->bytes.subspan(head));
    if (form != nullptr) {
      wire::UdpFlow flow = next->flow;
      flow.destination = ring.port;
      flow.destination_port = wire::kRoceUdpPort;
      const bool is_next = ring.AreAllDirect();
      const Naming naming = direct(flow, next->bytes, is_next ? form : nullptr);
      if (ring.is_closed) return;
      if (naming == Naming::kLater && !is_next) {
        ring.later = next->position;
        return;
      }
      if (naming != Naming::kNamed) form->Decline();
    }
    ring.ahead.push_back({next->position, end, std::move(form)});
  }
}

bool OwnRings::ForgetRead(Ring& ring) {
  bool is_direct = false;
  while (!ring.ahead.empty() && ring.reader.position() >= ring.ahead.front().end) {
    const Ahead& front = ring.ahead.front();
    is_direct =
        ring.reader.position() == front.end && front.form != nullptr && front.form->was_offered();
    if (front.form != nullptr) ring.read.push_back(front.form);
    ring.ahead.pop_front();
  }
  return is_direct;
}

void OwnRings::WithdrawAhead(Ring& ring) {
  for (auto each = ring.ahead.rbegin(); each != ring.ahead.rend(); ++each) {
    if (each->form != nullptr) (void)each->form->Withdraw();
  }
}

OwnRings::Ring::~Ring() {
  WithdrawAhead(*this);
  for (const Ahead& each : ahead) {
    if (each.form != nullptr) each.form->SetOver();
  }
}

bool OwnRings::AwaitsPayload() const {
  return std::ranges::any_of(rings_,
                             [](const auto& ring) { return ring->reader.awaits_payload(); });
}

uint32_t OwnRings::PeersPoller() const {
  uint32_t poller = 0;
  for (const std::shared_ptr<Ring>& ring : rings_) {
    const uint32_t shown = ring->reader.poller();
    if (shown == 0 || shown == poller) continue;
    if (poller != 0) return 0;
    poller = shown;
  }
  return poller;
}

bool OwnRings::HasUnreadFrom(uint32_t pid) const {
  return std::ranges::any_of(rings_, [pid](const auto& ring) {
    return ring->offer.pid == pid && !ring->in_use && ring->reader.has_unread();
  });
}

std::shared_ptr<JobPage> OwnRings::OpenJobPage(const JobReference& page) {
  return receiving_from_ == 0 ? nullptr : job_pages_.OpenPage(receiving_from_, page);
}

Result<Segment> OwnRings::OpenLane(const JobReference& lane, SharedMemory& own) const {
  if (receiving_from_ == 0) return Fail(EINVAL);
  UniqueFd fd = OpenOf(receiving_from_, static_cast<uint32_t>(lane.fd), O_RDWR);
  return fd ? own.AdoptSegment(fd.Release(), sizeof(SendLane)) : Fail(EINVAL);
}

bool OwnRings::Receive(const Handler& handler, const DirectHandler& direct) {
  bool found = false, any_ended = false;
  // The handler may close a port, and thus change the list.
  for (size_t i = 0; i < rings_.size(); i++) {
    const std::shared_ptr<Ring> ring = rings_[i];
    if (ring->in_use) continue;
    if (ring->reader.has_unread()) found |= ReceiveFrom(*ring, handler);
    if (direct) NameDestinations(*ring, direct);
    any_ended |= ring->reader.ended();
  }
  if (any_ended) DropEnded();
  return found;
}

bool OwnRings::ReceiveFrom(Ring& ring, const Handler& handler) {
  // A nested call needs buffers of its own.
  Buffers& buffers = buffers_[receiving_ == 0 ? 0 : 1];
  if (buffers.copies == nullptr) {
    buffers.copies = std::make_unique_for_overwrite<std::byte[]>(kMaxAtOnce * kCopiedBytes);
  }
  std::span free_copies(buffers.copies.get(), kMaxAtOnce * kCopiedBytes);
  std::vector<std::span<const std::byte>>& payloads = buffers.payloads;
  const NetAddress at = ring.port;
  wire::UdpFlow flow{};
  flow.destination = at;
  flow.destination_port = wire::kRoceUdpPort;
  WireForm form = WireForm::kDatagrams;
  const auto hand_over = [&] {
    const uint32_t outer = std::exchange(receiving_from_, ring.offer.pid);
    if (!payloads.empty() && !ring.is_closed) handler(flow, form, payloads, at);
    receiving_from_ = outer;
    payloads.clear();
  };
  ring.in_use = true;
  receiving_++;
  size_t count = 0, total_bytes = 0;
  for (; count < kMaxAtOnce && total_bytes < kMaxBytesAtOnce && !ring.is_closed; count++) {
    const std::optional<RingDatagram> next = ring.reader.Next();
    const bool was_direct = ForgetRead(ring);
    if (!next) break;
    // The host copies this payload after those of later forms, which may be for the same bytes.
    if (next->form == WireForm::kTrains) WithdrawAhead(ring);
    // Nobody named a place: the form has no payload.
    if (next->form == WireForm::kPlacedTrains && !was_direct) continue;
    if (next->flow.source != flow.source || next->flow.source_port != flow.source_port ||
        next->form != form) {
      hand_over();
      form = next->form;
      flow.source = next->flow.source;
      flow.source_port = next->flow.source_port;
    }
    std::span<const std::byte> bytes = next->bytes;
    total_bytes += bytes.size();
    if (bytes.size() <= kCopiedBytes) {
      // In GCC 12, std::ranges::copy of spans copies single bytes.
      std::copy(bytes.begin(), bytes.end(), free_copies.begin());
      bytes = free_copies.first(bytes.size());
      free_copies = free_copies.subspan(bytes.size());
    }
    payloads.push_back(bytes);
  }
  hand_over();
  received_bytes_ += total_bytes;
  ring.reader.Release();
  for (const auto& form : std::exchange(ring.read, {})) form->SetOver();
  receiving_--;
  ring.in_use = false;
  return count > 0;
}

}  // namespace rdmaemu::runtime
