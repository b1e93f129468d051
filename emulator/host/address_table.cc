#include "emulator/host/address_table.h"

#include <algorithm>

namespace rdmaemu {

using cm::Reach;

void AddressTable::Add(HostDevice& owner, const HostAddress& own) {
  rows_[own.address] = {&owner, own};
  order_.push_back(own.address);
}

void AddressTable::Remove(const NetAddress& address) {
  rows_.erase(address);
  std::erase(order_, address);
}

AddressTable::Row* AddressTable::Find(const NetAddress& address) {
  const auto found = rows_.find(address);
  return found == rows_.end() ? nullptr : &found->second;
}

const AddressTable::Row* AddressTable::Find(const NetAddress& address) const {
  const auto found = rows_.find(address);
  return found == rows_.end() ? nullptr : &found->second;
}

const AddressTable::Row* AddressTable::FindByLink(const NetAddress& local) const {
  return Find(AddressOfLinkLocal(local).value_or(local));
}

Device* AddressTable::DeviceAt(const NetAddress& local) const {
  const Row* const row = FindByLink(local);
  return row == nullptr ? nullptr : row->owner->device;
}

const cm::CmDevice* AddressTable::DeviceOf(const NetAddress& local) const {
  const Row* const row = FindByLink(local);
  return row == nullptr || row->owner->device == nullptr ? nullptr : &row->owner->cm;
}

std::vector<const cm::CmDevice*> AddressTable::Devices() const {
  std::vector<const cm::CmDevice*> present;
  for (const HostDevice* device : devices_) {
    if (device->device != nullptr) present.push_back(&device->cm);
  }
  return present;
}

uint8_t AddressTable::GidIndexOf(const NetAddress& local) const {
  const Row* const row = Find(local);
  if (row == nullptr || row->owner->device == nullptr) return 0;
  const std::vector<NetAddress>& gids = row->owner->device->gids;
  const auto entry = std::ranges::find(gids, local);
  return entry == gids.end() ? 0 : static_cast<uint8_t>(entry - gids.begin());
}

const Device* AddressTable::PresentDevice(uint32_t device_index) const {
  for (const HostDevice* each : devices_) {
    if (each->device != nullptr && each->cm.index == device_index) return each->device;
  }
  return nullptr;
}

std::optional<NetAddress> AddressTable::FirstGidOf(const cm::CmDevice& device) const {
  const Device* const present = PresentDevice(device.index);
  if (present == nullptr || present->gids.empty()) return std::nullopt;
  return present->gids[0];
}

bool AddressTable::IsPortUp(uint32_t device_index) const {
  const Device* const present = PresentDevice(device_index);
  return present != nullptr && present->port_state == IBV_PORT_ACTIVE;
}

uint16_t AddressTable::FirstPkeyOf(const cm::CmDevice& device) const {
  const Device* const present = PresentDevice(device.index);
  return present == nullptr ? Device::kDefaultPkey : present->PkeyAt(0);
}

std::optional<uint16_t> AddressTable::FindPkey(const NetAddress& local, uint16_t pkey) const {
  const Device* const device = DeviceAt(local);
  return device == nullptr ? CmAddresses::FindPkey(local, pkey) : device->FindPkey(pkey);
}

bool AddressTable::LivesOnLoopback(bool ipv4) const {
  return std::ranges::any_of(
      order_, [ipv4](const NetAddress& own) { return own.IsLoopback() && own.IsIpv4() == ipv4; });
}

bool AddressTable::IsSilent(const NetAddress& destination) const {
  return std::ranges::any_of(silent_nets_,
                             [&](const NetPrefix& net) { return net.Contains(destination); });
}

namespace {

// Returns true if the address may be on the interface with this index. 0: any interface. A
// simulated host does not know its interfaces.
bool MayBeOn(const HostAddress& own, uint32_t scope_id) {
  return scope_id == 0 || own.interface_index == 0 || own.interface_index == scope_id;
}

}  // namespace

bool AddressTable::IsOnLink(const NetAddress& own, uint32_t scope_id) const {
  const Row* const row = FindByLink(own);
  return row == nullptr || MayBeOn(row->own, scope_id);
}

const AddressTable::Row* AddressTable::OnLink(const NetAddress& destination, const HostDevice* by,
                                              uint32_t scope_id) const {
  const Row* best = nullptr;
  for (const NetAddress& each : order_) {
    const Row& row = rows_.at(each);
    if (!row.own.on_wire || row.owner->IsDown() || (by != nullptr && row.owner != by)) continue;
    if (!MayBeOn(row.own, scope_id)) continue;
    // No packet to a loopback address leaves through an interface, whatever the interface's prefix.
    if (each.IsLoopback() != destination.IsLoopback()) continue;
    const NetPrefix network = NetworkOf(row.own);
    if (!network.Contains(destination)) continue;
    if (best == nullptr || network.bits > NetworkOf(best->own).bits) best = &row;
  }
  return best;
}

Reach AddressTable::ByGateway(const NetAddress& destination, const HostDevice* by) const {
  if (destination.IsLoopback()) return {};
  for (const NetAddress& gateway : gateways_) {
    if (gateway.IsIpv4() != destination.IsIpv4()) continue;
    const Row* row = OnLink(gateway, by);
    if (row == nullptr) continue;
    return {IsSilent(gateway) ? Reach::Kind::kSilent : Reach::Kind::kFound, row->own.address};
  }
  return {};
}

const AddressTable::Row* AddressTable::FirstForGroup(const NetAddress& group) const {
  for (const NetAddress& each : order_) {
    const Row& row = rows_.at(each);
    if (row.own.on_wire && !row.owner->IsDown() && each.IsIpv4() == group.IsIpv4()) return &row;
  }
  return nullptr;
}

Reach AddressTable::FindRouteFrom(const Row& from, const NetAddress& destination) const {
  const Reach found{Reach::Kind::kFound, from.own.address};
  if (from.owner->IsDown() || !from.own.on_wire) return {};
  if (destination.IsMulticast() || OnLink(destination, from.owner) != nullptr) return found;
  const Reach by_gateway = ByGateway(destination, from.owner);
  if (by_gateway.kind == Reach::Kind::kSilent) return by_gateway;
  if (by_gateway.kind == Reach::Kind::kFound) return found;
  // The loopback interface has no assumed neighbours (measured).
  const bool assumes_neighbour = destination.IsIpv4() && !from.own.address.IsLoopback();
  return {assumes_neighbour ? Reach::Kind::kSilent : Reach::Kind::kNone, {}};
}

Reach AddressTable::FindRoute(const NetAddress& destination, const std::optional<NetAddress>& from,
                              uint32_t scope_id) const {
  if (const std::optional<NetAddress> ipv4 = AddressOfLinkLocal(destination)) {
    Reach reach = FindRoute(*ipv4, from, scope_id);
    if (reach.kind == Reach::Kind::kFound) reach.source = LinkLocalOf(reach.source);
    return reach;
  }
  const Row* const bound = from ? FindByLink(*from) : nullptr;
  const Row* const own = Find(destination);
  if (own != nullptr && MayBeOn(own->own, scope_id)) {
    return {Reach::Kind::kFound, bound != nullptr ? bound->own.address : destination};
  }
  if (IsSilent(destination)) return {Reach::Kind::kSilent, {}};
  if (bound != nullptr) return FindRouteFrom(*bound, destination);
  if (destination.IsMulticast()) {
    if (const Reach by_gateway = ByGateway(destination, nullptr);
        by_gateway.kind != Reach::Kind::kNone) {
      return {Reach::Kind::kFound, by_gateway.source};
    }
    const Row* const first = FirstForGroup(destination);
    return first == nullptr ? Reach{} : Reach{Reach::Kind::kFound, first->own.address};
  }
  const Row* const on_link = OnLink(destination, nullptr, scope_id);
  if (on_link != nullptr) return {Reach::Kind::kFound, on_link->own.address};
  return scope_id != 0 ? Reach{} : ByGateway(destination, nullptr);
}

std::optional<NetAddress> AddressTable::SourceInSubnet(const NetAddress& gid) const {
  if (FindByLink(gid) != nullptr) return gid;
  constexpr size_t kSubnetBytes = 8;
  for (const NetAddress& each : order_) {
    if (rows_.at(each).owner->IsDown()) continue;
    // Each device has a GID of the link-local subnet, made from its IPv4 address.
    if (gid.IsLinkLocal() && each.IsIpv4()) return LinkLocalOf(each);
    if (std::equal(gid.bytes.begin(), gid.bytes.begin() + kSubnetBytes, each.bytes.begin())) {
      return each;
    }
  }
  return std::nullopt;
}

}  // namespace rdmaemu
