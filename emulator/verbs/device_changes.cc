// Changes of devices while programs use them: removal, ports that go down, and changes of addresses
// (rxe_notify, ib_unregister_device and the GID cache of the kernel).
#include <algorithm>

#include "emulator/base/async_events.h"
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {

// ---- which packets are carried

const Device* Verbs::OwnerOf(const NetAddress& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? nullptr : found->second;
}

bool Verbs::Carries(const NetAddress& local) const {
  if (!links_may_be_down_) return true;
  const Device* owner = OwnerOf(local);
  return owner != nullptr && owner->Carries();
}

bool Verbs::Carries(const QueuePair& qp) const {
  if (!links_may_be_down_) return true;
  if (!qp.device->Carries()) return false;
  return qp.type == IBV_QPT_UD || OwnerOf(qp.path.source) == qp.device;
}

void Verbs::ListAddresses() {
  by_address_.clear();
  for (auto& [index, device] : devices_) {
    if (!device.present) continue;
    for (const NetAddress& gid : device.gids) {
      if (!gid.IsZero()) by_address_.try_emplace(gid, &device);
    }
  }
}

// ---- which objects are affected

size_t Verbs::ContextsOf(const Device& device) const {
  const auto found = device_counts_.find({device.index, ObjectKind::kContext});
  return found == device_counts_.end() ? 0 : static_cast<size_t>(found->second);
}

template <class T, class Visit>
void Verbs::EachOn(const Device& device, Visit visit) {
  for (const auto& [id, group] : groups_) {
    for (const Handle handle : group->handles[static_cast<size_t>(KindOf<T>::kKind)]) {
      T& object = *handles_.Find<T>(id, handle);
      if (DeviceOf(object) == &device) visit(object);
    }
  }
}

template <class T>
std::vector<const T*> Verbs::All(size_t limit) const {
  std::vector<const T*> all;
  for (const auto& [id, group] : groups_) {
    for (const Handle handle : group->handles[static_cast<size_t>(KindOf<T>::kKind)]) {
      if (all.size() == limit) return all;
      all.push_back(handles_.Find<T>(id, handle));
    }
  }
  return all;
}
template std::vector<const QueuePair*> Verbs::All(size_t) const;
template std::vector<const MemoryRegion*> Verbs::All(size_t) const;
template std::vector<const CompletionQueue*> Verbs::All(size_t) const;

void Verbs::RaiseOnDevice(const Device& device, const AsyncEvent& event) {
  EachOn<Context>(device, [&](Context& context) { PushAsync(context, event); });
}

bool Verbs::RaiseOf(GroupId group, Handle handle, ibv_event_type type) {
  const Result<QueuePair*> found = Find<QueuePair>(group, handle);
  if (!found) return false;
  QueuePair& qp = **found;
  switch (kAsyncEvents[type].of) {
    case EventObject::kQp:
      RaiseQp(qp, type);
      break;
    case EventObject::kCq:
      RaiseCq(*qp.send_cq, type);
      if (qp.recv_cq != qp.send_cq) RaiseCq(*qp.recv_cq, type);
      break;
    case EventObject::kSrq:
      if (qp.srq != nullptr) RaiseSrq(*qp.srq, type);
      break;
    case EventObject::kPort:
    case EventObject::kDevice:
      RaiseOnAll(*qp.device, type);
      break;
    case EventObject::kWq:
      break;  // there are no WQs
  }
  return true;
}

void Verbs::RaiseOnAll(const Device& device, ibv_event_type type) {
  switch (kAsyncEvents[type].of) {
    case EventObject::kQp:
      return EachOn<QueuePair>(device, [&](QueuePair& qp) { RaiseQp(qp, type); });
    case EventObject::kCq:
      return EachOn<CompletionQueue>(device, [&](CompletionQueue& cq) { RaiseCq(cq, type); });
    case EventObject::kSrq:
      return EachOn<SharedReceiveQueue>(device,
                                        [&](SharedReceiveQueue& srq) { RaiseSrq(srq, type); });
    case EventObject::kPort:
      return RaiseOnDevice(device, {type, Device::kPort});
    case EventObject::kDevice:
      return RaiseOnDevice(device, {type, 0});
    case EventObject::kWq:
      return;  // there are no WQs
  }
}

void Verbs::FailQpsOf(Time now, const Device& device) {
  std::vector<QueuePair*> qps;
  EachOn<QueuePair>(device, [&](QueuePair& qp) { qps.push_back(&qp); });
  for (QueuePair* qp : qps) FailQp(now, *qp);
}

// ---- removal

void Verbs::RemoveDevice(Time now, Device& device, std::optional<RemovalHabits> habits) {
  device.present = false;
  links_may_be_down_ = true;
  ListAddresses();
  const Profile& profile = device.profile;
  const RemovalHabits does =
      habits.value_or(RemovalHabits{profile.removal_flushes, profile.raises_device_fatal});
  if (does.flushes) FailQpsOf(now, device);
  if (does.raises_fatal) RaiseOnDevice(device, {IBV_EVENT_DEVICE_FATAL, 0});
  if (ContextsOf(device) == 0) devices_.erase(device.index);
}

// ---- ports

void Verbs::SetPortState(Time now, Device& device, ibv_port_state state) {
  if (device.port_state == state) return;
  if (state != IBV_PORT_ACTIVE) device.counters.link_downed++;
  device.port_state = state;
  links_may_be_down_ = true;
  const ibv_event_type type = state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  RaiseOnDevice(device, {type, Device::kPort});
  // siw_netdev_down, measured: connections end when the link that carries TCP is down.
  const bool is_rnic = device.profile.cm.manager == ConnectionManager::kIwarp;
  if (is_rnic && state != IBV_PORT_ACTIVE) FailQpsOf(now, device);
}

// mlx5_ib raises PKEY_CHANGE when the device reports it. rdma_rxe's table never changes.
Status Verbs::SetPkey(Device& device, uint32_t index, uint16_t pkey) {
  if (index >= device.pkeys.size()) return Fail(EINVAL);
  if (device.pkeys[index] == pkey) return {};
  device.pkeys[index] = pkey;
  RaiseOnDevice(device, {IBV_EVENT_PKEY_CHANGE, Device::kPort});
  return {};
}

// ---- addresses

void Verbs::SetGid(Device& device, size_t index, const NetAddress& gid) {
  if (device.gids[index] == gid) return;
  device.gids[index] = gid;
  if (!device.profile.has_ip_gids) return;  // no program sees the GID
  RaiseOnDevice(device, {IBV_EVENT_GID_CHANGE, Device::kPort});
}

void Verbs::SetLinkLocalGid(Device& device) {
  const auto ipv4 = std::ranges::find_if(
      device.addresses, [](const HostAddress& own) { return own.address.IsIpv4(); });
  const uint16_t lid = device.Lid();
  SetGid(device, 0, ipv4 == device.addresses.end() ? NetAddress{} : LinkLocalOf(ipv4->address));
  if (device.Lid() == lid) return;
  RaiseOnDevice(device, {IBV_EVENT_LID_CHANGE, Device::kPort});
  RaiseOnDevice(device, {IBV_EVENT_SM_CHANGE, Device::kPort});  // its LID is the port's own
}

Status Verbs::AddAddress(Device& device, const HostAddress& address) {
  const auto first = device.gids.begin() + 1;
  auto free = std::find(first, device.gids.end(), NetAddress{});
  if (free == device.gids.end()) {
    // The addresses of an RNIC are not in its GID table. HostDevices::kMaxAddresses limits their
    // number.
    if (device.profile.has_ip_gids &&
        device.gids.size() >= static_cast<size_t>(device.profile.port.gid_tbl_len)) {
      return Fail(ENOSPC);
    }
    free = device.gids.insert(free, NetAddress{});
  }
  device.addresses.push_back(address);
  SetGid(device, static_cast<size_t>(free - device.gids.begin()), address.address);
  SetLinkLocalGid(device);
  SetActiveMtu(device);
  ListAddresses();
  return {};
}

void Verbs::RemoveAddress(Device& device, const NetAddress& address) {
  links_may_be_down_ = true;
  std::erase_if(device.addresses, [&](const HostAddress& own) { return own.address == address; });
  const auto entry = std::find(device.gids.begin() + 1, device.gids.end(), address);
  if (entry != device.gids.end()) {
    SetGid(device, static_cast<size_t>(entry - device.gids.begin()), NetAddress{});
  }
  SetLinkLocalGid(device);
  SetActiveMtu(device);
  ListAddresses();
}

}  // namespace rdmaemu
