#include "emulator/host/devices.h"

#include <algorithm>
#include <utility>

namespace rdmaemu {

// ---- changes

HostDevices::Entry& HostDevices::NewEntry(const DeviceConfig& config) {
  Entry& entry = by_name_[config.name];
  entry.config = config;
  order_.push_back(&entry);
  return entry;
}

void HostDevices::Attach(Entry& entry) {
  Device& device = verbs_.AddDevice(entry.config);
  const ibv_device_attr& attributes = entry.config.profile.device.orig_attr;
  entry.device = &device;
  entry.config.node_guid = device.node_guid;  // it returns with the same
  entry.cm = {.name = entry.config.name,
              .index = device.index,
              .node_guid = device.node_guid,
              .active_mtu = device.active_mtu,
              .ack_delay = attributes.local_ca_ack_delay,
              .max_rd_atom = static_cast<uint8_t>(attributes.max_qp_rd_atom),
              .profile = &entry.config.profile};
  // TCP would say at once that nobody listens.
  if (entry.config.profile.cm.manager == ConnectionManager::kIwarp) network_.ReportRefusals();
}

void HostDevices::Start(const DeviceConfig& config) {
  Entry& entry = NewEntry(config);
  for (const HostAddress& own : config.addresses) addresses_.Add(entry, own);
  Attach(entry);
}

HostDevices::Entry* HostDevices::Find(const std::string& name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

HostDevices::Entry* HostDevices::FindPresent(const std::string& name) {
  Entry* entry = Find(name);
  return entry == nullptr || entry->device == nullptr ? nullptr : entry;
}

std::vector<std::string> HostDevices::PresentNames() const {
  std::vector<std::string> names;
  for (const Entry* entry : order_) {
    if (entry->device != nullptr) names.push_back(entry->config.name);
  }
  return names;
}

std::optional<std::pair<std::string, HostAddress>> HostDevices::OwnerOf(
    const NetAddress& address) const {
  for (const Entry* entry : order_) {
    const auto found = std::ranges::find(entry->config.addresses, address, &HostAddress::address);
    if (found != entry->config.addresses.end()) return std::pair(entry->config.name, *found);
  }
  return std::nullopt;
}

Status HostDevices::Remove(Time now, const std::string& name, std::optional<RemovalHabits> habits) {
  Entry* entry = FindPresent(name);
  if (entry == nullptr) return Fail(ENODEV);
  // While the device can still send: peers hear of the end of their connections, as they do of
  // one that the kernel removes in good order.
  cm_->DeviceRemoved(now, entry->cm.index);
  Device& device = *std::exchange(entry->device, nullptr);
  verbs_.RemoveDevice(now, device, habits);
  return {};
}

Status HostDevices::Add(const std::string& name, const Profile* profile) {
  Entry* entry = Find(name);
  if (entry != nullptr && entry->device != nullptr) return Fail(EEXIST);
  if (entry == nullptr && profile == nullptr) return Fail(EINVAL);
  const bool remembers = entry != nullptr || by_name_.size() < kMaxNames;
  if (verbs_.devices().size() >= kMaxDevices || !remembers) return Fail(ENOSPC);
  if (entry == nullptr) entry = &NewEntry({name, *profile, {}});
  if (profile != nullptr) entry->config.profile = *profile;
  Attach(*entry);
  return {};
}

Status HostDevices::SetPort(Time now, const std::string& name, bool up) {
  Entry* entry = FindPresent(name);
  if (entry == nullptr) return Fail(ENODEV);
  verbs_.SetPortState(now, *entry->device, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
  return {};
}

std::optional<uint16_t> HostDevices::PkeyOf(const std::string& name, uint32_t index) {
  const Entry* entry = FindPresent(name);
  if (entry == nullptr || index >= entry->device->pkeys.size()) return std::nullopt;
  return entry->device->pkeys[index];
}

Status HostDevices::SetPkey(const std::string& name, uint32_t index, uint16_t pkey) {
  Entry* entry = FindPresent(name);
  return entry == nullptr ? Fail(ENODEV) : verbs_.SetPkey(*entry->device, index, pkey);
}

Status HostDevices::GiveTo(Entry& entry, const HostAddress& address) {
  if (const Status added = verbs_.AddAddress(*entry.device, address); !added) return added;
  entry.config.addresses.push_back(address);
  entry.cm.active_mtu = entry.device->active_mtu;
  return {};
}

Status HostDevices::AddAddress(const std::string& name, const HostAddress& address) {
  Entry* entry = FindPresent(name);
  if (entry == nullptr) return Fail(ENODEV);
  if (addresses_.Find(address.address) != nullptr) return Fail(EEXIST);
  if (addresses_.size() >= kMaxAddresses) return Fail(ENOSPC);
  if (address.on_wire) {
    if (const Status open = network_.Open(address); !open) return open;
  }
  if (const Status given = GiveTo(*entry, address); !given) {
    network_.Close(address.address);
    return given;
  }
  addresses_.Add(*entry, address);
  return {};
}

void HostDevices::TakeFrom(Entry& from, const NetAddress& address) {
  std::erase_if(from.config.addresses,
                [&](const HostAddress& each) { return each.address == address; });
  if (from.device == nullptr) return;
  verbs_.RemoveAddress(*from.device, address);
  from.cm.active_mtu = from.device->active_mtu;
}

Status HostDevices::RemoveAddress(const NetAddress& address) {
  const AddressTable::Row* const row = addresses_.Find(address);
  if (row == nullptr) return Fail(EADDRNOTAVAIL);
  const NetAddress gone = address;  // it may be the device's own entry
  TakeFrom(*row->owner, gone);
  if (row->own.on_wire) network_.Close(gone);
  addresses_.Remove(gone);
  return {};
}

Status HostDevices::MoveAddress(Time now, const NetAddress& address, const std::string& to) {
  Entry* entry = FindPresent(to);
  if (entry == nullptr) return Fail(ENODEV);
  AddressTable::Row* const row = addresses_.Find(address);
  if (row == nullptr) return Fail(EADDRNOTAVAIL);
  if (row->owner == entry) return Fail(EALREADY);
  if (const Status given = GiveTo(*entry, row->own); !given) return given;
  TakeFrom(*row->owner, row->own.address);
  row->owner = entry;
  cm_->AddressMoved(now, row->own.address, entry->cm.index);
  return {};
}

// ---- what there is

const Device* HostDevices::DeviceAt(const NetAddress& local) const {
  const AddressTable::Row* const row = addresses_.FindByLink(local);
  return row == nullptr ? nullptr : row->owner->device;
}

uint16_t HostDevices::FirstPkeyOf(const cm::CmDevice& device) {
  const Entry* const entry = FindPresent(device.name);
  return entry == nullptr ? Device::kDefaultPkey : entry->device->PkeyAt(0);
}

std::optional<uint16_t> HostDevices::FindPkey(const NetAddress& local, uint16_t pkey) {
  const Device* const device = DeviceAt(local);
  return device == nullptr ? CmEnvironment::FindPkey(local, pkey) : device->FindPkey(pkey);
}

bool HostDevices::TakesGsiPkey(const NetAddress& local, uint16_t pkey) const {
  const Device* const device = DeviceAt(local);
  if (device == nullptr || device->pkeys.empty()) {
    return wire::PkeysMatch(Device::kDefaultPkey, pkey);
  }
  return std::ranges::any_of(device->pkeys,
                             [&](uint16_t entry) { return wire::PkeysMatch(entry, pkey); });
}

// Paths of RoCE are of the default partition; where its entry has gone meanwhile, as what it was.
uint16_t HostDevices::GsiPkey(const NetAddress& local) const {
  const Device* const device = DeviceAt(local);
  if (device == nullptr) return Device::kDefaultPkey;
  return device->PkeyAt(device->FindPkey(Device::kDefaultPkey).value_or(0));
}

const cm::CmDevice* HostDevices::DeviceOf(const NetAddress& local) {
  const AddressTable::Row* const row = addresses_.FindByLink(local);
  return row == nullptr || row->owner->device == nullptr ? nullptr : &row->owner->cm;
}

std::vector<const cm::CmDevice*> HostDevices::Devices() {
  std::vector<const cm::CmDevice*> all;
  for (const Entry* entry : order_) {
    if (entry->device != nullptr) all.push_back(&entry->cm);
  }
  return all;
}

uint8_t HostDevices::GidIndexOf(const NetAddress& local) {
  const AddressTable::Row* const row = addresses_.Find(local);
  if (row == nullptr || row->owner->device == nullptr) return 0;
  const std::vector<NetAddress>& gids = row->owner->device->gids;
  const auto entry = std::ranges::find(gids, local);
  return entry == gids.end() ? 0 : static_cast<uint8_t>(entry - gids.begin());
}

Status HostDevices::Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
  const AddressTable::Row* const source = addresses_.Find(route.source);
  if (source == nullptr || source->owner->device == nullptr) return {};  // lost
  const Entry& from = *source->owner;
  if (from.IsDown()) {
    return from.config.profile.fails_sends_without_link ? Fail(ETIMEDOUT) : Status();
  }
  return faults_.Pass(now, fault::Direction::kSend, route, message);
}

void HostDevices::SendMessage(Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
  const AddressTable::Row* const destination = addresses_.Find(route.destination);
  const uint16_t pkey = GsiPkey(route.source);
  if (destination == nullptr) {
    fabric_.SendMad(now, route, message, pkey);
  } else if (destination->owner->IsDown()) {
    return;
  } else if (TakesGsiPkey(route.destination, pkey)) {
    fabric_.QueueLocal(now, route, message, pkey);
  } else {
    fabric_.counters().dropped_gsi_key++;
  }
}

bool HostDevices::IsJoinedOn(const NetAddress& local, const NetAddress& group) const {
  return std::ranges::any_of(groups_, [&](const auto& each) {
    return each.second.on_wire && each.second.local == local && each.first.second == group;
  });
}

Status HostDevices::JoinGroup(uint32_t device_index, const NetAddress& local,
                              const NetAddress& group) {
  const std::pair key{device_index, group};
  if (const auto joined = groups_.find(key); joined != groups_.end()) {
    joined->second.joins++;
    return {};
  }
  const AddressTable::Row* const own = addresses_.Find(local);
  const bool on_wire = own != nullptr && own->own.on_wire;
  if (on_wire && !IsJoinedOn(local, group)) {
    if (const Status joined = fabric_.JoinGroup(local, group); !joined) return joined;
  }
  groups_[key] = {local, on_wire, 1};
  verbs_.SetJoined(device_index, group, true);
  return {};
}

void HostDevices::LeaveGroup(uint32_t device_index, const NetAddress& group) {
  const auto joined = groups_.find({device_index, group});
  if (joined == groups_.end() || --joined->second.joins > 0) return;
  const JoinedGroup left = joined->second;
  groups_.erase(joined);
  if (left.on_wire && !IsJoinedOn(left.local, group)) fabric_.LeaveGroup(left.local, group);
  verbs_.SetJoined(device_index, group, false);
}

Status HostDevices::CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) {
  return verbs_.CheckConnectable(group, local, qpn);
}
Status HostDevices::ConnectQp(Time now, GroupId group, uint32_t qpn,
                              const QpConnection& connection) {
  return verbs_.ConnectQp(now, group, qpn, connection);
}
void HostDevices::DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) {
  verbs_.DisconnectQp(now, group, local, qpn);
}

}  // namespace rdmaemu
