#include "emulator/embedded/embedded_network.h"

#include <algorithm>
#include <cerrno>

namespace rdmaemu::embedded {

std::span<std::byte> EmbeddedNetwork::Port::Allocate(const wire::UdpFlow& flow, uint8_t,
                                                     size_t bytes) {
  is_lost_ = !network_.ReachesAnybody(host_, flow.destination);
  if (!is_lost_ && network_.in_flight_.size() >= kMaxInFlight) return {};
  flow_ = flow;
  pending_.resize(bytes);
  return pending_;
}

void EmbeddedNetwork::Port::Commit() {
  if (is_lost_) {
    network_.lost_++;
    return;
  }
  network_.in_flight_.push_back({host_, flow_, std::move(pending_)});
  pending_.clear();
}

Status EmbeddedNetwork::Port::Open(const HostAddress& address) {
  const auto [owner, is_new] = network_.owners_.try_emplace(address.address, host_);
  if (!is_new && owner->second != host_) return Fail(EADDRINUSE);
  return {};
}

void EmbeddedNetwork::Port::Close(const NetAddress& address) {
  const auto owner = network_.owners_.find(address);
  if (owner != network_.owners_.end() && owner->second == host_) network_.owners_.erase(owner);
}

Status EmbeddedNetwork::Port::JoinGroup(const NetAddress& local, const NetAddress& group) {
  network_.groups_[group].insert({host_, local});
  return {};
}

void EmbeddedNetwork::Port::LeaveGroup(const NetAddress& local, const NetAddress& group) {
  const auto members = network_.groups_.find(group);
  if (members == network_.groups_.end()) return;
  members->second.erase({host_, local});
  if (members->second.empty()) network_.groups_.erase(members);
}

std::optional<uint32_t> EmbeddedNetwork::OwnerOf(const NetAddress& address) const {
  const auto owner = owners_.find(address);
  return owner == owners_.end() ? std::nullopt : std::optional(owner->second);
}

// Members on the sender's own host get a multicast packet without the network.
bool EmbeddedNetwork::ReachesAnybody(uint32_t from, const NetAddress& destination) const {
  if (!destination.IsMulticast()) return owners_.contains(destination);
  const auto members = groups_.find(destination);
  return members != groups_.end() &&
         std::ranges::any_of(members->second,
                             [&](const Member& member) { return member.host != from; });
}

bool EmbeddedNetwork::Deliver(const Receiver& receive) {
  // Replies are delivered in the next round, because the hosts work in between.
  const size_t count = in_flight_.size();
  for (size_t i = 0; i < count && !in_flight_.empty(); i++) {
    const Datagram datagram = std::move(in_flight_.front());
    in_flight_.pop_front();
    Arrive(datagram, receive);
  }
  return count > 0;
}

void EmbeddedNetwork::Arrive(const Datagram& datagram, const Receiver& receive) const {
  const NetAddress& to = datagram.flow.destination;
  if (!to.IsMulticast()) {
    if (const auto owner = OwnerOf(to)) receive(*owner, datagram.flow, datagram.bytes, to);
    return;
  }
  const auto members = groups_.find(to);
  if (members == groups_.end()) return;
  // A receiver may leave the group during the loop.
  const std::set<Member> reached = members->second;
  for (const Member& member : reached) {
    if (member.host == datagram.from) continue;
    receive(member.host, datagram.flow, datagram.bytes, member.local);
  }
}

void EmbeddedNetwork::Disconnect(uint32_t host) {
  std::erase_if(owners_, [&](const auto& each) { return each.second == host; });
  for (auto it = groups_.begin(); it != groups_.end();) {
    std::erase_if(it->second, [&](const Member& member) { return member.host == host; });
    it = it->second.empty() ? groups_.erase(it) : std::next(it);
  }
  // Datagrams that the host sent earlier are in flight and will still arrive.
}

}  // namespace rdmaemu::embedded
