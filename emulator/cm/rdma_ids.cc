// RDMA CM ids: creation and destruction, addresses, ports, routes, listening, migration.
#include "emulator/cm/rdma_ids.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/verbs/device.h"

namespace rdmaemu::cm {

// ---- creation and destruction

size_t RdmaIds::OfGroup(GroupId group) const {
  const auto it = per_group_.find(group);
  return it == per_group_.end() ? 0 : it->second;
}

std::vector<CmListener> RdmaIds::Listeners() const {
  std::vector<CmListener> listeners;
  for (const auto& [handle, id] : ids_) {
    if (id.state != IdState::kListen) continue;
    listeners.push_back({id.port_space, id.source().address, id.source().port});
  }
  return listeners;
}

std::vector<const CmaId*> RdmaIds::All(size_t limit) const {
  std::vector<const CmaId*> all;
  for (const auto& [handle, id] : ids_) {
    if (all.size() == limit) break;
    all.push_back(&id);
  }
  return all;
}

Result<CmaId*> RdmaIds::Create(GroupId group, ProcessId process, uint32_t channel, uint64_t uid,
                               uint16_t port_space, ibv_qp_type qp_type) {
  if (OfGroup(group) >= kMaxIdsPerGroup) return Fail(ENOMEM);
  per_group_[group]++;
  const uint32_t handle = handles_.At(++made_);
  CmaId& id = ids_[handle];
  id.handle = handle;
  id.binding.id = id.handle;
  id.group = group;
  id.process = process;
  id.channel = channel;
  by_channel_.insert({channel, id.handle});
  id.uid = uid;
  id.port_space = port_space;
  id.qp_type = qp_type;
  id.starting_psn = random_.Next24();
  return &id;
}

CmaId* RdmaIds::Find(uint32_t handle) {
  const auto it = ids_.find(handle);
  return it == ids_.end() ? nullptr : &it->second;
}

Result<CmaId*> RdmaIds::Get(uint32_t channel, uint32_t handle) {
  CmaId* id = Find(handle);
  if (id == nullptr) return Fail(ENOENT);
  if (id->channel != channel) return Fail(EINVAL);
  if (id->state == IdState::kRemoved) return Fail(ENXIO);
  return id;
}

Result<CmaId*> RdmaIds::GetWithDevice(uint32_t channel, uint32_t handle) {
  const Result<CmaId*> id = Get(channel, handle);
  if (id && !(*id)->device) return Fail(EINVAL);
  return id;
}

Result<uint32_t> RdmaIds::Destroy(Time now, uint32_t channel, uint32_t handle) {
  CmaId* id = Find(handle);
  if (id == nullptr) return Fail(ENOENT);
  if (id->channel != channel) return Fail(EINVAL);
  const uint32_t reported = id->events_reported;
  Erase(now, *id);
  return reported;
}

void RdmaIds::DestroyOfChannel(Time now, uint32_t channel) {
  // Drops all events first, so that no id searches through the events. Requests that were not
  // fetched are ids of this channel, too.
  channels_.Clear(channel);
  for (auto it = by_channel_.lower_bound({channel, 0});
       it != by_channel_.end() && it->first == channel;
       it = by_channel_.lower_bound({channel, 0})) {
    Erase(now, *Find(it->second));
  }
}

void RdmaIds::Erase(Time now, CmaId& id) {
  ReleaseResources(now, id);
  for (const auto& each : id.memberships) multicast_owner_.erase(each.first);
  const uint32_t handle = id.handle;
  const std::vector<PendingEvent> unfetched = channels_.Take(id.channel, handle);
  if (--per_group_[id.group] == 0) per_group_.erase(id.group);
  by_channel_.erase({id.channel, handle});
  ids_.erase(handle);
  for (const PendingEvent& event : unfetched) {
    if (event.new_id == 0) continue;
    if (CmaId* requested = Find(event.new_id)) Erase(now, *requested);
  }
}

void RdmaIds::ReleaseResources(Time now, CmaId& id) {
  if (id.connection != 0) ib_cm_.Destroy(now, std::exchange(id.connection, 0));
  TellOutcome(now, id, -ECONNABORTED);
  ReleaseIwarpQp(now, id);
  EndAllMemberships(id);
  queries_.Cancel(id.handle);
  ReleasePort(id);
  id.device.reset();
}

void RdmaIds::ReleasePort(CmaId& id) {
  if (std::exchange(id.holds_port, false)) ports_.Release(id.bound_port_space, id.binding);
}

Result<uint32_t> RdmaIds::Migrate(uint32_t channel, uint32_t handle, uint32_t new_channel) {
  const Result<CmaId*> found = Get(channel, handle);
  if (!found) return tl::make_unexpected(found.error());
  CmaId& id = **found;
  if (channel == new_channel) return id.events_reported;
  const auto move = [&](CmaId& moving) {
    by_channel_.erase({moving.channel, moving.handle});
    moving.channel = new_channel;
    by_channel_.insert({new_channel, moving.handle});
  };
  move(id);
  std::vector<PendingEvent> moved = channels_.Take(channel, handle);
  for (PendingEvent& event : moved) {
    // The kernel keeps a request's id on the old channel, where no call finds the id. The emulator
    // moves the id instead.
    if (CmaId* requested = Find(event.new_id)) move(*requested);
    channels_.Move(new_channel, std::move(event));
  }
  return id.events_reported;
}

void RdmaIds::EventReported(const PendingEvent& event) {
  CmaId* id = Find(event.id);
  if (id == nullptr) return;
  id->events_reported++;
  if (event.new_id != 0) id->backlog_left++;
  const auto membership = id->memberships.find(event.multicast);
  if (membership != id->memberships.end()) membership->second.events_reported++;
}

// ---- events

PendingEvent RdmaIds::MakeEvent(const CmaId& id, EventType type, int status) const {
  PendingEvent event;
  event.id = id.handle;
  event.response.uid = id.uid;
  event.response.id = id.handle;
  event.response.event = static_cast<uint32_t>(type);
  event.response.status = static_cast<uint32_t>(status);
  return event;
}

bool RdmaIds::Push(Time now, const CmaId& id, EventType type, int status) {
  return Push(now, id, MakeEvent(id, type, status));
}

bool RdmaIds::Push(Time now, const CmaId& id, PendingEvent event) {
  // An error on a request that is not accepted yet is reported when it is accepted
  // (ucma_event_handler).
  if (id.uid == 0 && event.new_id == 0) return false;
  const uint32_t subject = event.new_id != 0 ? event.new_id : id.handle;
  const EventType type = event.type();
  const auto status = static_cast<int32_t>(event.response.status);
  if (!channels_.Push(id.channel, std::move(event))) {
    ib_cm_.statistics().dropped_channel_full++;
    return false;
  }
  if (trace_.wants_records()) {
    trace::Record record{now,
                         id.process,
                         "cm.event",
                         "id " + std::to_string(subject & handles_.last()),
                         EventName(type),
                         {}};
    record.fields.push_back({"status", int64_t{status}});
    if (subject != id.handle)
      record.fields.push_back({"listener", uint64_t{id.handle & handles_.last()}});
    trace_.Write(record);
  }
  return true;
}

Status RdmaIds::WriteEvent(Time now, CmaId& id, const CmWriteEvent& written) {
  if (written.event == kCmEventUser && !channels_.HasRoomForWriter(id.channel)) return Fail(ENOMEM);
  PendingEvent event =
      MakeEvent(id, static_cast<EventType>(written.event), static_cast<int>(written.status));
  std::memcpy(&event.response.param, &written.param.arg, sizeof written.param.arg);
  return Push(now, id, std::move(event)) ? Status() : Fail(ENOMEM);
}

// ---- addresses

void RdmaIds::AttachTo(CmaId& id, const CmDevice& device) {
  id.device = BoundDevice{device.index,
                          {device.node_guid, device.ack_delay, device.profile->cm},
                          device.port,
                          static_cast<uint8_t>(device.active_mtu),
                          device.profile->port.link_layer == IBV_LINK_LAYER_INFINIBAND};
  id.attach_order = ++last_attach_;
}

Status RdmaIds::AttachDevice(CmaId& id, const NetAddress& local) {
  const CmDevice* device = addresses_.DeviceOf(local);
  if (device == nullptr) return Fail(addresses_.IsOwnAddress(local) ? ENODEV : EADDRNOTAVAIL);
  const bool has_lids = device->profile->port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  if (id.port_space == RDMA_PS_IPOIB && !has_lids) return Fail(EINVAL);  // InfiniBand links only
  AttachTo(id, *device);
  id.on_link = true;
  // An IPoIB interface is a full member of the partition in the first entry (ipoib_intf_init).
  if (has_lids) id.address_pkey = addresses_.FirstPkeyOf(*device) | 0x8000;
  return {};
}

// cma_translate_ib and cma_validate_port: only a port with LIDs has GIDs that are no IP addresses.
Status RdmaIds::AttachByGid(CmaId& id, const NetAddress& gid, uint16_t pkey) {
  const CmDevice* device = addresses_.DeviceOf(gid);
  if (device == nullptr || device->profile->port.link_layer != IBV_LINK_LAYER_INFINIBAND) {
    return Fail(ENODEV);
  }
  AttachTo(id, *device);
  id.address_pkey = pkey;
  return {};
}

// A loopback address counts as a wildcard (cma_any_addr). On a host whose devices have loopback
// addresses, a loopback address is an ordinary address, because other loopback addresses are peers.
SocketAddress RdmaIds::WithLoopback(SocketAddress address) {
  address.is_loopback =
      address.address.IsLoopback() && !addresses_.LivesOnLoopback(address.address.IsIpv4());
  return address;
}

Status RdmaIds::Bind(CmaId& id, const SocketAddress& address) {
  SocketAddress nowhere;
  nowhere.family = address.family;
  if (address.family == AF_INET) nowhere.address = NetAddress::Ipv4(0);
  return BindWithDestination(id, WithLoopback(address), nowhere);
}

// cma_get_port: the service id of an AF_IB source selects the port space.
Status RdmaIds::BindPort(CmaId& id) {
  SocketAddress& source = id.binding.source;
  id.bound_port_space = id.port_space;
  if (source.family == AF_IB) {
    const uint64_t mask = source.service_id_mask & ~uint64_t{0xffff};
    uint16_t chosen = 0;
    for (const uint16_t space : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP}) {
      const bool may = id.port_space == RDMA_PS_IB || id.port_space == space;
      if (chosen == 0 && may && ((source.service_id ^ (uint64_t{space} << 16)) & mask) == 0) {
        chosen = space;
      }
    }
    if (chosen == 0) return Fail(EPROTONOSUPPORT);
    id.bound_port_space = chosen;
  }
  if (const Status bound = ports_.Bind(id.bound_port_space, id.binding, random_); !bound) {
    return bound;
  }
  if (source.family == AF_IB) {
    source.service_id = uint64_t{id.bound_port_space} << 16;
    source.service_id_mask = ~uint64_t{0};
  }
  return {};
}

Status RdmaIds::BindWithDestination(CmaId& id, const SocketAddress& source,
                                    const SocketAddress& destination) {
  if (source.IsNone()) return Fail(EAFNOSUPPORT);
  if (id.state != IdState::kIdle) return Fail(EINVAL);
  if (source.family == AF_INET6 && source.address.IsLinkLocal()) {
    if (source.scope_id == 0) return Fail(EINVAL);
    if (!addresses_.IsOnLink(source.address, source.scope_id)) return Fail(ENODEV);
  }
  if (!source.IsAny()) {
    const Status attached = source.family == AF_IB ? AttachByGid(id, source.address, source.pkey)
                                                   : AttachDevice(id, source.address);
    if (!attached) return attached;
  }
  const PortBinding before = id.binding;
  id.binding.source = source;
  id.binding.destination = destination;
  id.binding.destination.family = source.family;
  if (!id.af_only_set) id.binding.af_only = source.family == AF_INET;
  if (const Status bound = BindPort(id); !bound) {
    id.binding = before;
    id.device.reset();
    id.on_link = false;
    return bound;
  }
  id.holds_port = true;
  id.state = IdState::kAddrBound;
  return {};
}

// cma_bind_loopback: any device is suitable.
Status RdmaIds::ResolveLoopback(CmaId& id) {
  if (id.device) return {};
  const std::vector<const CmDevice*> devices = addresses_.Devices();
  if (devices.empty()) return Fail(ENODEV);
  AttachTo(id, *devices.front());
  if (id.HasLids()) id.loopback_gid = addresses_.FirstGidOf(*devices.front());
  id.address_pkey = addresses_.FirstPkeyOf(*devices.front());
  SocketAddress& source = id.binding.source;
  source.address = *NetAddress::Parse(source.family == AF_INET ? "127.0.0.1" : "::1");
  source.is_loopback = true;
  return {};
}

// cma_resolve_ib_dev: finds the device that has the GID, or a device in the same subnet.
Status RdmaIds::ResolveGid(CmaId& id) {
  if (id.device) return {};
  const SocketAddress& to = id.destination();
  const std::optional<NetAddress> local = addresses_.SourceInSubnet(to.address);
  const CmDevice* device = local ? addresses_.DeviceOf(*local) : nullptr;
  if (device == nullptr || !addresses_.FindPkey(*local, to.pkey)) return Fail(ENODEV);
  AttachTo(id, *device);
  if (id.HasLids()) id.address_pkey = id.source().pkey;
  id.binding.source.address = *local;
  return {};
}

Status RdmaIds::ResolveAddress(Time now, CmaId& id, const SocketAddress& source,
                               const SocketAddress& asked, uint32_t timeout_ms) {
  const SocketAddress destination = WithLoopback(asked);
  if (id.state == IdState::kIdle) {
    SocketAddress from = WithLoopback(source);
    if (from.IsNone()) {
      from.family = destination.family;
      from.scope_id = destination.scope_id;
      from.pkey = destination.pkey;
      if (from.family == AF_INET) from.address = NetAddress::Ipv4(0);
    }
    if (const Status bound = BindWithDestination(id, from, destination); !bound) return bound;
  } else if (id.state != IdState::kAddrBound) {
    return Fail(EINVAL);
  }
  if (id.source().family != destination.family) return Fail(EINVAL);
  id.binding.destination = destination;
  if (destination.IsAny()) {
    if (const Status done = ResolveLoopback(id); !done) return done;
  } else if (destination.family == AF_IB) {
    if (const Status done = ResolveGid(id); !done) return done;
  } else {
    return ResolveRoutedAddress(now, id, timeout_ms);
  }
  id.state = IdState::kAddrResolved;
  Push(now, id, EventType::kAddrResolved, 0);
  return {};
}

// rdma_resolve_ip: an id with a device uses only that device's routes.
Status RdmaIds::ResolveRoutedAddress(Time now, CmaId& id, uint32_t timeout_ms) {
  const NetAddress& destination = id.destination().address;
  const auto from = id.device ? std::optional(id.source().address) : std::nullopt;
  // The interface of a bound source decides, whatever the destination's scope.
  const bool has_scope = !from && destination.IsLinkLocal();
  const Reach reach =
      addresses_.FindRoute(destination, from, has_scope ? id.destination().scope_id : 0);
  const bool is_broadcast = destination == NetAddress::Ipv4(0xffffffff);
  if (reach.kind == Reach::Kind::kNone || is_broadcast) return Fail(ENETUNREACH);
  if (reach.kind == Reach::Kind::kSilent) {
    id.state = IdState::kAddrQuery;
    queries_.Arm(id.handle, now + std::chrono::milliseconds(timeout_ms));
    return {};
  }
  if (!id.device) {
    if (const Status attached = AttachDevice(id, reach.source); !attached) {
      Push(now, id, EventType::kAddrError, -attached.error().code);
      return {};
    }
    id.binding.source.address = reach.source;
  }
  id.state = IdState::kAddrResolved;
  Push(now, id, EventType::kAddrResolved, 0);
  return {};
}

void RdmaIds::Expire(Time now) {
  while (const std::optional<uint32_t> handle = queries_.PopExpired(now)) {
    CmaId& id = *Find(*handle);
    const bool asked_for_path = id.state == IdState::kRouteQuery;
    id.state = asked_for_path ? IdState::kAddrResolved : IdState::kAddrBound;
    Push(now, id, asked_for_path ? EventType::kRouteError : EventType::kAddrError, -ETIMEDOUT);
  }
}

// ---- routes

void RdmaIds::AddLids(const CmaId& id, PathRecord& path) const {
  // The first address makes the port's LID, and is entry 1 of the GID table.
  if (!id.device->has_lids || addresses_.GidIndexOf(AddressOfGid(path.sgid)) != 1) return;
  const NetAddress own = AddressOfGid(path.sgid), peer = AddressOfGid(path.dgid);
  const uint16_t slid = LidOf(own), dlid = LidOf(peer);
  if (slid == 0 || dlid == 0 || (own.ToIpv4() ^ peer.ToIpv4()) >> 16 != 0) return;
  path.slid = slid;
  path.dlid = dlid;
}

PathRecord RdmaIds::MakePath(const CmaId& id) const {
  PathRecord path;
  path.sgid = id.SourceGid();
  // A wildcard destination is an address of this host.
  path.dgid = id.destination().IsAny() ? path.sgid : id.DestinationGid();
  AddLids(id, path);
  if (id.HasLids()) path.pkey = id.address_pkey;
  if (path.dlid == 0) {
    path.flow_label = (uint32_t{id.source().port} * 31 + id.destination().port) & 0xfffff;
  }
  path.traffic_class = id.type_of_service.value_or(0);
  path.mtu = id.device->active_mtu;
  path.number_of_paths = 1;
  const uint8_t asked = id.ack_timeout.value_or(0);
  path.packet_lifetime = asked != 0 ? static_cast<uint8_t>(std::min(asked - 1, 31))
                                    : id.device->local.profile.packet_lifetime;
  return path;
}

Status RdmaIds::ResolveRoute(Time now, CmaId& id, uint32_t timeout_ms) {
  if (timeout_ms == 0 || id.state != IdState::kAddrResolved) return Fail(EINVAL);
  if (id.HasLids()) {
    QueryPath(now, id, timeout_ms);
    return {};
  }
  if (!id.on_link && !id.IsIwarp()) return Fail(ENODEV);
  id.path = MakePath(id);
  id.state = IdState::kRouteResolved;
  Push(now, id, EventType::kRouteResolved, 0);
  return {};
}

Status RdmaIds::SetPath(Time now, CmaId& id, const PathRecord& path) {
  if (!id.device || id.state != IdState::kAddrResolved) return Fail(EINVAL);
  if (!id.on_link && !id.IsIwarp() && !id.HasLids()) return Fail(ENODEV);
  id.path = path;
  if (!id.device->has_lids) id.path->slid = id.path->dlid = 0;
  id.state = IdState::kRouteResolved;
  Push(now, id, EventType::kRouteResolved, 0);
  return {};
}

// ---- listening and options

Status RdmaIds::Listen(CmaId& id, uint32_t backlog) {
  if (id.state != IdState::kAddrBound) {
    SocketAddress any;
    any.family = AF_INET;
    any.address = NetAddress::Ipv4(0);
    if (const Status bound = Bind(id, any); !bound) return bound;
  }
  if (id.binding.reuse_address) {
    if (const Status alone = ports_.CheckExclusive(id.bound_port_space, id.binding); !alone) {
      return alone;
    }
    id.binding.reuse_address = false;
  }
  uint32_t most = id.device ? id.device->local.profile.max_backlog : 0;
  if (most == 0) {
    for (const CmDevice* device : addresses_.Devices()) {
      most = std::max(most, device->profile->cm.max_backlog);
    }
  }
  id.backlog_left = backlog == 0 || backlog > most ? most : backlog;
  id.state = IdState::kListen;
  return {};
}

Status RdmaIds::SetReuseAddress(CmaId& id, bool reuse) {
  if (!(reuse && id.state != IdState::kListen) && id.state != IdState::kIdle) return Fail(EINVAL);
  id.binding.reuse_address = reuse;
  return {};
}

Status RdmaIds::SetAfOnly(CmaId& id, bool af_only) {
  if (id.state != IdState::kIdle && id.state != IdState::kAddrBound) return Fail(EINVAL);
  id.af_only_set = true;
  id.binding.af_only = af_only;
  return {};
}

Status RdmaIds::SetAckTimeout(CmaId& id, uint8_t timeout) {
  if (id.qp_type != IBV_QPT_RC && id.qp_type != IBV_QPT_XRC_SEND) return Fail(EINVAL);
  id.ack_timeout = timeout;
  return {};
}

}  // namespace rdmaemu::cm
