#include "emulator/cm/port_space.h"

#include <algorithm>

namespace rdmaemu::cm {

namespace {

// cma_addr_cmp: link-local addresses differ by their scope.
bool SameAddress(const SocketAddress& a, const SocketAddress& b) {
  return a.family == b.family && a.address == b.address &&
         (!a.address.IsLinkLocal() || a.scope_id == b.scope_id);
}

}  // namespace

Status PortSpaces::Bind(uint16_t port_space, PortBinding& binding, Random& random) {
  if (binding.source.port == 0) return BindEphemeral(port_space, binding, random);
  const Key key{port_space, binding.source.port};
  if (const Status free = Check(key, binding, binding.reuse_address); !free) return free;
  owners_[key].push_back(&binding);
  return {};
}

Status PortSpaces::BindEphemeral(uint16_t port_space, PortBinding& binding, Random& random) {
  constexpr uint32_t kPorts = kLastEphemeral - kFirstEphemeral + 1;
  const uint32_t start = random.Below(kPorts);
  for (uint32_t i = 0; i < kPorts; i++) {
    const auto port = static_cast<uint16_t>(kFirstEphemeral + (start + i) % kPorts);
    if (port == last_ephemeral_ || !IsUnique({port_space, port}, binding)) continue;
    last_ephemeral_ = port;
    binding.source.port = port;
    owners_[{port_space, port}].push_back(&binding);
    return {};
  }
  return Fail(EADDRNOTAVAIL);
}

Status PortSpaces::CheckExclusive(uint16_t port_space, const PortBinding& binding) const {
  return Check({port_space, binding.source.port}, binding, false);
}

Status PortSpaces::Check(const Key& key, const PortBinding& binding, bool reuse) const {
  const auto it = owners_.find(key);
  if (it == owners_.end()) return {};
  // The kernel checks the youngest binding first. This order decides which of two conflicts is
  // reported.
  for (auto each = it->second.rbegin(); each != it->second.rend(); ++each) {
    const PortBinding* other = *each;
    if (other == &binding || (reuse && other->reuse_address)) continue;
    if (binding.af_only && other->af_only && binding.source.family != other->source.family) {
      continue;
    }
    if (binding.source.IsAny() || other->source.IsAny()) return Fail(EADDRNOTAVAIL);
    if (SameAddress(binding.source, other->source)) return Fail(EADDRINUSE);
  }
  return {};
}

bool PortSpaces::IsUnique(const Key& key, const PortBinding& binding) const {
  const auto it = owners_.find(key);
  if (it == owners_.end()) return true;
  const auto differ = [](const SocketAddress& a, const SocketAddress& b) {
    return !a.IsAny() && !b.IsAny() && !SameAddress(a, b);
  };
  return std::ranges::all_of(it->second, [&](const PortBinding* other) {
    const uint16_t ours = binding.destination.port, theirs = other->destination.port;
    return (ours != 0 && theirs != 0 && ours != theirs) || differ(binding.source, other->source) ||
           differ(binding.destination, other->destination);
  });
}

void PortSpaces::Release(uint16_t port_space, const PortBinding& binding) {
  const auto it = owners_.find({port_space, binding.source.port});
  if (it == owners_.end()) return;
  std::erase(it->second, &binding);
  if (it->second.empty()) owners_.erase(it);
}

std::span<const PortBinding* const> PortSpaces::Owners(uint16_t port_space, uint16_t port) const {
  const auto it = owners_.find({port_space, port});
  if (it == owners_.end()) return {};
  return it->second;
}

}  // namespace rdmaemu::cm
