#include "emulator/runtime/udp_network.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "emulator/runtime/epoll_tag.h"
#include "emulator/runtime/socket_options.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {

void UdpNetwork::Add(UdpPort port) {
  ports_.push_back(std::make_unique<Port>(Port{std::move(port), nullptr}));
  Publish(*ports_.back());
}

void UdpNetwork::ShareQueues(const std::string& directory) {
  directory_ = directory;
  peers_ = std::make_unique<PeerQueues>(directory);
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr) Publish(*port);
  }
}

void UdpNetwork::ShareRings() {
  own_rings_ = OwnRings::Create();
  if (own_rings_ == nullptr || peers_ == nullptr) return;
  peer_rings_ = std::make_unique<PeerRings>(*peers_);
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr && port->queue != nullptr) {
      own_rings_->Open(port->socket.address(), port->queue->page());
    }
  }
}

void UdpNetwork::ReportRefusals() {
  if (std::exchange(reports_refusals_, true)) return;
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr) port->socket.ReportRefusals();
  }
}

std::vector<UdpNetwork::Refused> UdpNetwork::TakeRefused() {
  std::vector<Refused> refused;
  if (!reports_refusals_) return refused;
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port == nullptr) continue;
    for (const NetAddress& remote : port->socket.TakeRefused()) {
      refused.push_back({port->socket.address(), remote});
    }
  }
  return refused;
}

void UdpNetwork::Publish(Port& port) {
  port.socket.SendBurstsTo(*emulators_);
  if (!sends_bursts_) port.socket.SendSingly();
  if (reports_refusals_) port.socket.ReportRefusals();
  if (peers_ == nullptr) return;
  port.socket.WaitFor(*peers_);
  port.queue = OwnQueue::Publish(directory_, port.socket.address(), port.socket.fd());
  if (own_rings_ != nullptr && port.queue != nullptr) {
    own_rings_->Open(port.socket.address(), port.queue->page());
  }
}

uint64_t UdpNetwork::queue_drops() const {
  uint64_t drops = drops_of_closed_;
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr) drops += SocketDrops(port->socket.fd());
  }
  for (const auto& [number, group] : groups_) drops += SocketDrops(group.fd());
  return drops;
}

SocketBytes UdpNetwork::socket_bytes() const {
  SocketBytes bytes{0, receiver_.received_bytes()};
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr) bytes.sent += port->socket.sent_bytes();
  }
  return bytes;
}

UdpPort* UdpNetwork::PortOf(const NetAddress& address) const {
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr && port->socket.address() == address) return &port->socket;
  }
  return nullptr;
}

Status UdpNetwork::WatchPort(uint32_t number) {
  epoll_event event = EventFor(EventKind::kUdpPort, number);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ports_[number]->socket.fd(), &event) != 0) {
    return Fail(errno);
  }
  return {};
}

Status UdpNetwork::Watch(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  for (uint32_t i = 0; i < ports_.size(); i++) {
    if (const Status watched = WatchPort(i); !watched) return watched;
  }
  if (own_rings_ == nullptr) return {};
  epoll_event event = EventFor(EventKind::kRings, 0);
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, own_rings_->wake_fd(), &event) != 0) return Fail(errno);
  return {};
}

Status UdpNetwork::Open(const HostAddress& address) {
  Result<UdpPort> port = UdpPort::Open(address.address, address.interface_index);
  if (!port) return Fail(port.error().code);
  auto place = std::find(ports_.begin(), ports_.end(), nullptr);
  if (place == ports_.end()) place = ports_.insert(place, nullptr);
  *place = std::make_unique<Port>(Port{std::move(*port), nullptr});
  Publish(**place);
  const Status watched = WatchPort(static_cast<uint32_t>(place - ports_.begin()));
  if (!watched) place->reset();
  return watched;
}

// Closes an address. Groups that the address joined stay open until LeaveGroup. No member receives
// their datagrams.
void UdpNetwork::Close(const NetAddress& address) {
  for (std::unique_ptr<Port>& port : ports_) {
    if (port == nullptr || port->socket.address() != address) continue;
    if (allocated_ == &port->socket) allocated_ = nullptr;
    port->socket.Flush();  // datagrams sent before the address was removed
    WaitForPeer(port->socket);
    FlushRings();
    if (own_rings_ != nullptr) own_rings_->Close(address);
    drops_of_closed_ += SocketDrops(port->socket.fd());
    port.reset();
  }
}

void UdpNetwork::CloseAll() {
  allocated_ = nullptr;
  allocated_ring_ = nullptr;
  if (peer_rings_ != nullptr) peer_rings_->Clear();
  own_rings_.reset();
  ports_.clear();
  groups_.clear();
}

Status UdpNetwork::JoinGroup(const NetAddress& local, const NetAddress& group) {
  if (groups_.size() >= kMaxGroups) return Fail(ENOBUFS);
  const UdpPort* const link = PortOf(local);
  if (link == nullptr) return Fail(EADDRNOTAVAIL);
  Result<GroupPort> opened = GroupPort::Open(local, link->interface_index(), group);
  if (!opened) return tl::make_unexpected(opened.error());
  // Closing the socket of a group removes it from the epoll descriptor.
  epoll_event event = EventFor(EventKind::kGroupPort, last_group_ + 1);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, opened->fd(), &event) != 0) return Fail(errno);
  groups_.emplace(++last_group_, std::move(*opened));
  return {};
}

void UdpNetwork::LeaveGroup(const NetAddress& local, const NetAddress& group) {
  std::erase_if(groups_, [&](const auto& each) {
    return each.second.local() == local && each.second.group() == group;
  });
}

// The addresses are passed by value because `handler` may close their port.
bool UdpNetwork::Receive(int fd, NetAddress destination, NetAddress at, const Handler& handler) {
  return receiver_.Receive(
      fd, destination,
      [&](const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> udp_payloads) {
        handler(flow, WireForm::kDatagrams, udp_payloads, at);
      });
}

bool UdpNetwork::ReceivePort(uint32_t number, const Handler& handler) {
  if (number >= ports_.size() || ports_[number] == nullptr) return false;
  // Staged datagrams arrived first, so deliver them first.
  return ReceiveStaged(handler) || ReceiveFrom(*ports_[number], receiver_, handler);
}

bool UdpNetwork::ReceiveFrom(const Port& port, UdpReceiver& receiver, const Handler& handler) {
  const NetAddress address = port.socket.address();
  const std::shared_ptr<OwnQueue> queue = port.queue;  // the handler may close the port
  const uint64_t sent_before = queue != nullptr ? queue->sent() : 0;
  const bool found = receiver.Receive(
      port.socket.fd(), address,
      [&](const wire::UdpFlow& flow, std::span<const std::span<const std::byte>> udp_payloads) {
        emulators_->NoteReceived(flow, udp_payloads.front());
        handler(flow, WireForm::kDatagrams, udp_payloads, address);
      });
  if (queue == nullptr) return found;
  if (found) {
    queue->Took(receiver.charge());
  } else {
    queue->Emptied(sent_before);
  }
  return found;
}

bool UdpNetwork::ReceiveStaged(const Handler& handler) {
  if (staged_.empty()) return false;
  // Handling a datagram may stage other datagrams, so this loop handles only those that are staged
  // now.
  for (size_t count = staged_.size(); count > 0 && !staged_.empty(); count--) {
    const Staged next = std::move(staged_.front());
    staged_.pop_front();
    staged_bytes_ -= next.bytes.size();
    std::vector<std::span<const std::byte>> udp_payloads;
    std::span<const std::byte> rest = next.bytes;
    for (const size_t size : next.sizes) {
      udp_payloads.push_back(rest.first(size));
      rest = rest.subspan(size);
    }
    handler(next.flow, next.form, udp_payloads, next.at);
  }
  return true;
}

// Stages one batch of each port. It uses separate buffers, because the caller may still be handling
// a batch in the other buffers.
bool UdpNetwork::Stage() {
  if (staging_receiver_ == nullptr) staging_receiver_ = std::make_unique<UdpReceiver>();
  const Handler stage = [&](const wire::UdpFlow& flow, WireForm form,
                            std::span<const std::span<const std::byte>> udp_payloads,
                            const NetAddress& at) {
    if (form == WireForm::kPermitOffers) return;  // valid only while its ring is read
    Staged& staged = staged_.emplace_back(Staged{flow, at, form, {}, {}});
    for (const std::span<const std::byte> payload : udp_payloads) {
      staged.bytes.insert(staged.bytes.end(), payload.begin(), payload.end());
      staged.sizes.push_back(payload.size());
    }
    staged_bytes_ += staged.bytes.size();
  };
  const auto stage_ports = [&] {
    bool found = false;
    for (const std::unique_ptr<Port>& port : ports_) {
      if (staged_bytes_ >= kMaxStagedBytes) return false;
      if (port != nullptr) found |= ReceiveFrom(*port, *staging_receiver_, stage);
    }
    return found;
  };
  bool found = stage_ports();
  if (own_rings_ == nullptr || staged_bytes_ >= kMaxStagedBytes) return found;
  if (own_rings_->HasOffers()) {
    // The writer of a new ring may have sent datagrams to the socket before.
    while (stage_ports()) {
    }
    own_rings_->TakeOffers();
  }
  return own_rings_->Receive(stage) || found;
}

// The peer may be waiting for this host. This host therefore receives the peer's datagrams
// meanwhile. They are handled later, because the sender must not be called here.
void UdpNetwork::WaitForPeer(UdpPort& port) {
  while (port.awaits_peer()) {
    AwaitPeer();
    port.Flush();
  }
}

// The peer may wait for a form of this host.
void UdpNetwork::AwaitPeer() {
  if (before_waiting_) before_waiting_();
  Stage();
  sched_yield();
}

PeerRing* UdpNetwork::RingTo(UdpPort& port, const NetAddress& peer) {
  if (peer_rings_ == nullptr || peer.IsMulticast()) return nullptr;
  if (PeerRing* const ring = peer_rings_->Find(peer)) return ring;
  if (!peer_rings_->MayOffer(peer)) return nullptr;
  // The peer reads its socket before it reads a new ring.
  port.Flush();
  return port.blocked() ? nullptr : peer_rings_->FindOrOffer(peer);
}

size_t UdpNetwork::AllocateInRing(PeerRing* ring, const wire::UdpFlow& flow, uint8_t traffic_class,
                                  WireForm form, std::span<const size_t> bytes,
                                  std::span<std::span<std::byte>> rooms, bool may_wait) {
  // A handler of OwnRings must not wait: its ring could not be released, and its writer may wait
  // for this host.
  const bool may_overflow = own_rings_->is_receiving();
  for (; ring != nullptr; ring = peer_rings_->Find(flow.destination)) {
    const size_t count = ring->AllocateRun(flow, traffic_class, form, bytes, rooms, may_overflow);
    if (count > 0) allocated_ring_ = ring;
    for (const size_t each : bytes.first(count)) sent_by_rings_ += each;
    if (count > 0 || may_overflow || ring->is_deaf() || !may_wait) return count;
    AwaitPeer();
    FlushRings();  // may remove the ring
  }
  return 0;
}

void UdpNetwork::FlushRings(bool may_wake_late) {
  if (peer_rings_ == nullptr) return;
  peer_rings_->Flush([this](const NetAddress& peer,
                            const RingDatagram& datagram) { SendBySocket(peer, datagram); },
                     may_wake_late ? own_rings_.get() : nullptr);
}

void UdpNetwork::SendBySocket(const NetAddress& peer, const RingDatagram& datagram) {
  UdpPort* const port = PortOf(datagram.flow.source);
  if (port == nullptr) return;
  wire::UdpFlow flow = datagram.flow;
  flow.destination = peer;
  flow.destination_port = wire::kRoceUdpPort;
  if (datagram.form == WireForm::kPermitOffers) return;  // for shared memory only
  if (datagram.form == WireForm::kDatagrams) {
    return SendBySocket(*port, flow, datagram.traffic_class, datagram.bytes);
  }
  transport::Train train;
  // The dead reader may have overwritten the train.
  if (!transport::ParseForm(flow, datagram.bytes, train)) return;
  transport::ForEachDatagram(train, [&](std::span<const std::byte> udp_payload) {
    SendBySocket(*port, flow, datagram.traffic_class, udp_payload);
  });
}

void UdpNetwork::SendBySocket(UdpPort& port, const wire::UdpFlow& flow, uint8_t traffic_class,
                              std::span<const std::byte> udp_payload) {
  const std::span<std::byte> room = port.Allocate(flow, traffic_class, udp_payload.size());
  if (room.size() != udp_payload.size()) return;  // lost, as in a full queue
  std::copy(udp_payload.begin(), udp_payload.end(), room.begin());
  port.Commit();
}

bool UdpNetwork::ReceiveShared(const Handler& handler, const OwnRings::DirectHandler& direct) {
  if (own_rings_ == nullptr) return ReceiveStaged(handler);
  if (own_rings_->HasOffers()) Stage();
  return ReceiveStaged(handler) || own_rings_->Receive(handler, direct);
}

void UdpNetwork::PrepareRingsForSleep(bool asleep) {
  if (own_rings_ != nullptr) own_rings_->PrepareSleep(asleep);
}

void UdpNetwork::TakeRingWake() { own_rings_->TakeWake(); }

bool UdpNetwork::HasUnreadInRings() const {
  return own_rings_ != nullptr && (own_rings_->HasUnread() || own_rings_->HasOffers());
}

bool UdpNetwork::ReceiveGroup(uint32_t number, const Handler& handler) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return false;
  const GroupPort& port = group->second;
  return Receive(port.fd(), port.group(), port.local(), handler);
}

std::span<std::byte> UdpNetwork::Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                          size_t bytes) {
  std::span<std::byte> room;
  AllocateRun(flow, traffic_class, {&bytes, 1}, {&room, 1});
  return room;
}

size_t UdpNetwork::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                               std::span<const size_t> bytes,
                               std::span<std::span<std::byte>> rooms) {
  allocated_ = nullptr;
  allocated_ring_ = nullptr;
  UdpPort* const port = PortOf(flow.source);
  if (port == nullptr) return 0;
  if (PeerRing* const ring = RingTo(*port, flow.destination); ring != nullptr) {
    const size_t in_ring = AllocateInRing(ring, flow, traffic_class, WireForm::kDatagrams, bytes,
                                          rooms, /*may_wait=*/true);
    if (in_ring > 0 || peer_rings_->Find(flow.destination) != nullptr) return in_ring;
  }
  size_t count = port->AllocateRun(flow, traffic_class, bytes, rooms);
  if (count == 0 && port->awaits_peer()) {
    WaitForPeer(*port);
    count = port->AllocateRun(flow, traffic_class, bytes, rooms);
  }
  if (count > 0) allocated_ = port;
  return count;
}

std::optional<std::span<std::byte>> UdpNetwork::AllocateEntry(const wire::UdpFlow& flow,
                                                              uint8_t traffic_class, WireForm form,
                                                              size_t bytes, bool may_wait) {
  allocated_ = nullptr;
  allocated_ring_ = nullptr;
  UdpPort* const port = PortOf(flow.source);
  PeerRing* const ring = port == nullptr ? nullptr : RingTo(*port, flow.destination);
  if (ring == nullptr) return std::nullopt;
  std::span<std::byte> room = ring->AllocateOne(flow, traffic_class, form, bytes);
  if (room.empty()) {
    AllocateInRing(ring, flow, traffic_class, form, {&bytes, 1}, {&room, 1}, may_wait);
    return room;
  }
  allocated_ring_ = ring;
  sent_by_rings_ += bytes;
  return room;
}

std::optional<std::span<std::byte>> UdpNetwork::AllocateForm(const wire::UdpFlow& flow,
                                                             uint8_t traffic_class, size_t bytes,
                                                             bool may_wait) {
  const auto room = AllocateEntry(flow, traffic_class, WireForm::kTrains, bytes, may_wait);
  allocated_form_ = room.value_or(std::span<std::byte>());
  if (allocated_form_.empty() && may_wait) return std::nullopt;
  return room;
}

bool UdpNetwork::SendOffer(const wire::UdpFlow& flow, std::span<const std::byte> offer) {
  const auto room =
      AllocateEntry(flow, 0, WireForm::kPermitOffers, offer.size(), /*may_wait=*/false);
  if (!room || room->empty()) return false;
  std::copy(offer.begin(), offer.end(), room->begin());
  Commit();
  return true;
}

std::unique_ptr<UnfilledForm> UdpNetwork::CommitUnfilled(size_t payload_bytes) {
  return std::exchange(allocated_ring_, nullptr)
      ->CommitUnfilled(allocated_form_.last(payload_bytes));
}

void UdpNetwork::Commit() {
  if (allocated_ != nullptr) allocated_->Commit();
  if (allocated_ring_ != nullptr) allocated_ring_->Commit();
  allocated_ = nullptr;
  allocated_ring_ = nullptr;
}

void UdpNetwork::Flush() {
  FlushRings(/*may_wake_late=*/true);
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr && port->socket.has_pending()) port->socket.Flush();
  }
}

void UdpNetwork::FlushAll() {
  Flush();
  FlushRings();
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port != nullptr) WaitForPeer(port->socket);
  }
  // Readers keep the rings' memory. Only what is not in a ring yet needs this host.
  while (peer_rings_ != nullptr && peer_rings_->HaveOverflow()) {
    AwaitPeer();
    FlushRings();
  }
}

bool UdpNetwork::blocked() const {
  if (peer_rings_ != nullptr && peer_rings_->AwaitReaders()) return true;
  return std::ranges::any_of(
      ports_, [](const auto& port) { return port != nullptr && port->socket.blocked(); });
}

}  // namespace rdmaemu::runtime
