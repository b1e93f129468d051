#include "emulator/host/devices.h"

#include <algorithm>

namespace rdmaemu {
namespace {

bool IsLoopback(const NetAddress& address) {
  if (address.IsIpv4()) return address.ToIpv4() >> 24 == 127;
  return address == *NetAddress::Parse("::1");
}

}  // namespace

void HostDevices::Add(const DeviceConfig& config) {
  const rdmaemu::Device& device = verbs_.AddDevice(config);
  profiles_.push_back(config.profile);
  const ibv_device_attr_ex attributes = verbs_.QueryDevice(device);
  const ibv_port_attr port = verbs_.QueryPort(device);
  devices_.push_back({.name = config.name,
                      .index = static_cast<uint32_t>(devices_.size()),
                      .node_guid = attributes.orig_attr.node_guid,
                      .active_mtu = port.active_mtu,
                      .port_active = port.state == IBV_PORT_ACTIVE,
                      .ack_delay = attributes.orig_attr.local_ca_ack_delay,
                      .max_rd_atom = static_cast<uint8_t>(attributes.orig_attr.max_qp_rd_atom),
                      .profile = &profiles_.back()});
  uint8_t gid_index = 0;  // entry 0 is the link-local GID
  for (const HostAddress& address : config.addresses) {
    addresses_[address.address] = {&devices_.back(), ++gid_index, address.on_wire};
    order_.push_back(address.address);
  }
}

const cm::CmDevice* HostDevices::DeviceOf(const NetAddress& local) {
  const auto it = addresses_.find(local);
  return it == addresses_.end() ? nullptr : it->second.device;
}

std::vector<const cm::CmDevice*> HostDevices::Devices() {
  std::vector<const cm::CmDevice*> all;
  for (const cm::CmDevice& device : devices_) all.push_back(&device);
  return all;
}

uint8_t HostDevices::GidIndexOf(const NetAddress& local) {
  const auto it = addresses_.find(local);
  return it == addresses_.end() ? 0 : it->second.gid_index;
}

std::optional<NetAddress> HostDevices::SourceFor(const NetAddress& destination) {
  if (addresses_.contains(destination)) return destination;
  for (const NetAddress& own : order_) {
    if (addresses_.at(own).on_wire && own.IsIpv4() == destination.IsIpv4() &&
        (destination.IsMulticast() || IsLoopback(own) == IsLoopback(destination))) {
      return own;
    }
  }
  return std::nullopt;
}

bool HostDevices::IsSilent(const NetAddress& destination) {
  return std::ranges::any_of(silent_nets_,
                             [&](const NetPrefix& net) { return net.Contains(destination); });
}

bool HostDevices::IsOwnAddress(const NetAddress& address) { return addresses_.contains(address); }

void HostDevices::Send(Time now, const cm::CmRoute& route, const wire::CmMessage& message) {
  if (addresses_.contains(route.destination)) {
    fabric_.QueueLocal(now, route, message);
  } else {
    fabric_.SendMad(now, route, message);
  }
}

Status HostDevices::JoinGroup(uint32_t device_index, const NetAddress& local,
                              const NetAddress& group) {
  const std::pair key{device_index, group};
  if (const auto joined = groups_.find(key); joined != groups_.end()) {
    joined->second.joins++;
    return {};
  }
  const auto own = addresses_.find(local);
  const bool on_wire = own != addresses_.end() && own->second.on_wire;
  if (on_wire) {
    if (const Status joined = fabric_.JoinGroup(local, group); !joined) return joined;
  }
  groups_[key] = {local, on_wire, 1};
  verbs_.SetJoined(device_index, group, true);
  return {};
}

void HostDevices::LeaveGroup(uint32_t device_index, const NetAddress& group) {
  const auto joined = groups_.find({device_index, group});
  if (joined == groups_.end() || --joined->second.joins > 0) return;
  if (joined->second.on_wire) fabric_.LeaveGroup(joined->second.local, group);
  verbs_.SetJoined(device_index, group, false);
  groups_.erase(joined);
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
