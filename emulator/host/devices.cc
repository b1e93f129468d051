#include "emulator/host/devices.h"

#include <algorithm>
#include <utility>

namespace rdmaemu {

// ---- changes

HostDevices::Entry& HostDevices::NewEntry(const DeviceConfig& config) {
  Entry& entry = by_name_[config.name];
  entry.config = config;
  addresses_.AddDevice(entry);
  return entry;
}

void HostDevices::Attach(Entry& entry) {
  Device& device = verbs_.AddDevice(entry.config);
  const ibv_device_attr& attributes = entry.config.profile.device.orig_attr;
  entry.device = &device;
  entry.config.node_guid = device.node_guid;  // unchanged when the device returns
  entry.cm = {.name = entry.config.name,
              .index = device.index,
              .node_guid = device.node_guid,
              .active_mtu = device.active_mtu,
              .ack_delay = attributes.local_ca_ack_delay,
              .max_rd_atom = static_cast<uint8_t>(attributes.max_qp_rd_atom),
              .profile = &entry.config.profile};
  // TCP would report at once that no program listens.
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
  for (const Entry* entry : entries()) {
    if (entry->device != nullptr) names.push_back(entry->config.name);
  }
  return names;
}

std::optional<std::pair<std::string, HostAddress>> HostDevices::OwnerOf(
    const NetAddress& address) const {
  for (const Entry* entry : entries()) {
    const auto found = std::ranges::find(entry->config.addresses, address, &HostAddress::address);
    if (found != entry->config.addresses.end()) return std::pair(entry->config.name, *found);
  }
  return std::nullopt;
}

Status HostDevices::Remove(Time now, const std::string& name, std::optional<RemovalHabits> habits) {
  Entry* entry = FindPresent(name);
  if (entry == nullptr) return Fail(ENODEV);
  // Do this first, while the device can still send. Peers then detect the end of their connections,
  // as after an orderly removal by the kernel.
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
  const NetAddress gone = address;  // a copy: the reference may be into the device's own entry
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

}  // namespace rdmaemu
