#include "emulator/cm/commands.h"

#include <infiniband/ib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/base/nothing_queued.h"
#include "emulator/cm/path_record.h"
#include "emulator/verbs/device.h"

namespace rdmaemu::cm {

namespace {

using In = std::span<const std::byte>;
using Out = std::span<std::byte>;
using Filled = Result<size_t>;

// Returns a copy of the command, because programs' memory is not aligned. The table has checked its
// size.
template <class T>
T Load(In in) {
  T value;
  if (in.size() < sizeof value) value = {};
  std::memcpy(&value, in.data(), std::min(in.size(), sizeof value));
  return value;
}
template <class T>
Filled Store(const T& value, Out out) {
  const size_t bytes = std::min(out.size(), sizeof value);
  std::memcpy(out.data(), &value, bytes);
  return bytes;
}
Filled Done(const Status& status) {
  if (!status) return tl::make_unexpected(status.error());
  return 0;
}
template <class T>
In BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
Result<CmaId*> IdOf(CommandContext& context, uint32_t handle) {
  return context.ids.Get(context.channel.handle, handle);
}
Result<CmaId*> IdWithDevice(CommandContext& context, uint32_t handle) {
  return context.ids.GetWithDevice(context.channel.handle, handle);
}

// ---- ids

Filled CreateId(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_create_id>(in);
  auto qp_type = static_cast<ibv_qp_type>(command.qp_type);
  switch (command.ps) {
    case RDMA_PS_TCP:
      qp_type = IBV_QPT_RC;
      break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      qp_type = IBV_QPT_UD;
      break;
    case RDMA_PS_IB:
      break;
    default:
      return Fail(EINVAL);
  }
  const Result<CmaId*> id = context.ids.Create(
      context.group, context.process, context.channel.handle, command.uid, command.ps, qp_type);
  if (!id) return tl::make_unexpected(id.error());
  return Store(rdma_ucm_create_id_resp{(*id)->handle}, out);
}

Filled DestroyId(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_destroy_id>(in);
  const Result<uint32_t> reported =
      context.ids.Destroy(context.now, context.channel.handle, command.id);
  if (!reported) return tl::make_unexpected(reported.error());
  return Store(rdma_ucm_destroy_id_resp{*reported}, out);
}

Filled MigrateId(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_migrate_id>(in);
  const Channel* to = context.channels.Find(context.group, command.fd);
  if (to == nullptr) return Fail(ENOENT);
  const Result<uint32_t> reported =
      context.ids.Migrate(context.channel.handle, command.id, to->handle);
  if (!reported) return tl::make_unexpected(reported.error());
  return Store(rdma_ucm_migrate_resp{*reported}, out);
}

Filled GetEvent(CommandContext& context, In, Out out) {
  context.channels.BeforeFetch(context.channel.handle);
  const PendingEvent* event = context.channels.Front(context.channel);
  if (event == nullptr) return Fail(kNothingQueued);
  const Filled filled = Store(event->response, out);
  context.ids.EventReported(*event);
  context.channels.PopFront(context.channel);
  return filled;
}

// ---- addresses and routes

Filled BindTo(CommandContext& context, uint32_t handle, In sockaddr) {
  const Result<SocketAddress> address = ParseSocketAddress(sockaddr);
  if (!address) return tl::make_unexpected(address.error());
  if (address->IsNone()) return Fail(EINVAL);
  const Result<CmaId*> id = IdOf(context, handle);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.Bind(**id, *address));
}

Filled BindIp(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_bind_ip>(in);
  return BindTo(context, command.id, BytesOf(command.addr));
}

Filled Bind(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_bind>(in);
  const In sockaddr = BytesOf(command.addr);
  if (command.reserved != 0 || command.addr_size == 0 ||
      command.addr_size != SocketAddressBytes(FamilyOf(sockaddr))) {
    return Fail(EINVAL);
  }
  return BindTo(context, command.id, sockaddr);
}

Filled ResolveTo(CommandContext& context, uint32_t handle, In source, In destination,
                 uint32_t timeout_ms) {
  const Result<SocketAddress> from = ParseSocketAddress(source);
  const Result<SocketAddress> to = ParseSocketAddress(destination);
  if (!from) return tl::make_unexpected(from.error());
  if (!to) return tl::make_unexpected(to.error());
  if (to->IsNone()) return Fail(EINVAL);
  const Result<CmaId*> id = IdOf(context, handle);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.ResolveAddress(context.now, **id, *from, *to, timeout_ms));
}

Filled ResolveIp(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_resolve_ip>(in);
  return ResolveTo(context, command.id, BytesOf(command.src_addr), BytesOf(command.dst_addr),
                   command.timeout_ms);
}

Filled ResolveAddr(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_resolve_addr>(in);
  const In source = BytesOf(command.src_addr), destination = BytesOf(command.dst_addr);
  if (command.reserved != 0 || command.dst_size == 0 ||
      command.dst_size != SocketAddressBytes(FamilyOf(destination)) ||
      (command.src_size != 0 && command.src_size != SocketAddressBytes(FamilyOf(source)))) {
    return Fail(EINVAL);
  }
  return ResolveTo(context, command.id, source, destination, command.timeout_ms);
}

Filled ResolveRoute(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_resolve_route>(in);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.ResolveRoute(context.now, **id, command.timeout_ms));
}

// iWARP uses IP's routes, which no path record describes.
bool HasPath(const CmaId& id) { return id.path && !id.IsIwarp(); }

Filled QueryRoute(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_query>(in);
  const Result<CmaId*> found = IdOf(context, command.id);
  if (!found) return tl::make_unexpected(found.error());
  const CmaId& id = **found;
  rdma_ucm_query_route_resp response = {};
  EmitSocketAddress(id.source(), std::as_writable_bytes(std::span(&response.src_addr, 1)));
  EmitSocketAddress(id.destination(), std::as_writable_bytes(std::span(&response.dst_addr, 1)));
  if (id.device) {
    response.node_guid = id.device->local.node_guid_be;
    response.port_num = id.device->port;
    response.ibdev_index = id.device->index;
    PathRecord path;
    path.dgid = id.DestinationGid();
    path.sgid = id.SourceGid();
    response.num_paths = HasPath(id) ? 1 : 0;
    response.ib_route[0] = ToUserPath(id.path.value_or(path));
  }
  return Store(response, out);
}

rdma_ucm_query_addr_resp DeviceResponse(const CmaId& id) {
  rdma_ucm_query_addr_resp response = {};
  if (!id.device) return response;
  response.node_guid = id.device->local.node_guid_be;
  response.ibdev_index = id.device->index;
  response.port_num = id.device->port;
  response.pkey = htobe16(id.address_pkey);
  return response;
}

template <class T>
std::span<std::byte> StorageOf(T& storage) {
  return std::as_writable_bytes(std::span(&storage, 1));
}

Filled QueryAddr(const CmaId& id, Out out) {
  rdma_ucm_query_addr_resp response = DeviceResponse(id);
  response.src_size =
      static_cast<uint16_t>(EmitSocketAddress(id.source(), StorageOf(response.src_addr)));
  response.dst_size =
      static_cast<uint16_t>(EmitSocketAddress(id.destination(), StorageOf(response.dst_addr)));
  return Store(response, out);
}

Filled QueryGid(const CmaId& id, Out out) {
  rdma_ucm_query_addr_resp response = DeviceResponse(id);
  const auto emit = [&id](const SocketAddress& address, const ibv_gid& gid, auto& storage) {
    sockaddr_ib ib = {};
    ib.sib_family = AF_IB;
    ib.sib_pkey = htobe16(id.address_pkey);
    std::memcpy(&ib.sib_addr, &gid, sizeof gid);
    ib.sib_sid = htobe64(id.ServiceId(address));
    std::memcpy(&storage, &ib, sizeof ib);
    return static_cast<uint16_t>(sizeof ib);
  };
  ibv_gid source = {}, destination = {};
  if (id.IsIwarp()) {
    // rdma_read_gids returns MACs. The destination's MAC is unknown before the address is resolved,
    // and librdmacm does not ask for it then.
    source = MacGidOf(id.device->local.node_guid_be);
  } else if (id.device) {
    source = id.SourceGid().ToGid();
    destination = id.DestinationGid().ToGid();
  }
  response.src_size = emit(id.source(), source, response.src_addr);
  response.dst_size = emit(id.destination(), destination, response.dst_addr);
  return Store(response, out);
}

Filled QueryPath(const CmaId& id, Out out) {
  CmQueryPathOut response = {};
  size_t bytes = 2 * sizeof(uint32_t);
  if (HasPath(id)) {
    response.num_paths = 1;
    response.paths[0].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    std::array<uint8_t, kPathRecordBytes> record;
    PackPath(*id.path, record);
    std::memcpy(response.paths[0].path_rec, record.data(), record.size());
    bytes += sizeof response.paths[0];
  }
  // The kernel, too, omits a path that does not fit.
  if (bytes > out.size()) bytes = 2 * sizeof(uint32_t);
  std::memcpy(out.data(), &response, bytes);
  return bytes;
}

Filled Query(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_query>(in);
  const Result<CmaId*> id = IdOf(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  const size_t least = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
  switch (command.option) {
    case RDMA_USER_CM_QUERY_ADDR:
      return out.size() < least ? Fail(ENOSPC) : QueryAddr(**id, out);
    case RDMA_USER_CM_QUERY_PATH:
      return QueryPath(**id, out);
    case RDMA_USER_CM_QUERY_GID:
      return out.size() < least ? Fail(ENOSPC) : QueryGid(**id, out);
    default:
      return Fail(ENOSYS);
  }
}

// ---- connections

Filled Connect(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_connect>(in);
  if (command.conn_param.valid == 0) return Fail(EINVAL);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  // The outcome of a blocking connect is queued on the caller's own channel.
  if (command.reserved != 0 && context.channels.Find(context.group, command.reserved) == nullptr) {
    return Fail(EINVAL);
  }
  return Done(
      context.ids.Connect(context.now, **id, command.conn_param, command.ece, command.reserved));
}

Filled Listen(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_listen>(in);
  const Result<CmaId*> id = IdOf(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.Listen(**id, command.backlog));
}

Filled Accept(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_accept>(in);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  if (command.conn_param.valid == 0) {
    return Done(context.ids.Accept(context.now, **id, nullptr, command.ece, 0));
  }
  return Done(context.ids.Accept(context.now, **id, &command.conn_param, command.ece, command.uid));
}

Filled Reject(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_reject>(in);
  auto reason = RejectReason::kConsumer;
  if (command.reason == static_cast<uint8_t>(RejectReason::kVendorOption)) {
    reason = RejectReason::kVendorOption;
  } else if (command.reason != 0 && command.reason != static_cast<uint8_t>(reason)) {
    return Fail(EINVAL);
  }
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.Reject(context.now, **id, reason,
                                 std::span(command.private_data, command.private_data_len)));
}

Filled Disconnect(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_disconnect>(in);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.Disconnect(context.now, **id));
}

Filled InitQpAttr(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_init_qp_attr>(in);
  if (command.qp_state > IBV_QPS_ERR) return Fail(EINVAL);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  const Result<ib_uverbs_qp_attr> attributes =
      context.ids.InitQpAttr(**id, static_cast<ibv_qp_state>(command.qp_state));
  if (!attributes) return tl::make_unexpected(attributes.error());
  return Store(*attributes, out);
}

Filled Notify(CommandContext& context, In in, Out) {
  const auto command = Load<rdma_ucm_notify>(in);
  const Result<CmaId*> id = IdWithDevice(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.Notify(context.now, **id, command.event));
}

// ---- options

Filled SetIdOption(CommandContext& context, CmaId& id, const CmSetOption& option) {
  const uint32_t length = option.command.optlen;
  int number;
  std::memcpy(&number, option.value, sizeof number);
  switch (option.command.optname) {
    case RDMA_OPTION_ID_TOS:
      if (length != 1) return Fail(EINVAL);
      id.type_of_service = option.value[0];
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (length != sizeof number) return Fail(EINVAL);
      return Done(context.ids.SetReuseAddress(id, number != 0));
    case RDMA_OPTION_ID_AFONLY:
      if (length != sizeof number) return Fail(EINVAL);
      return Done(context.ids.SetAfOnly(id, number != 0));
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (length != 1) return Fail(EINVAL);
      return Done(context.ids.SetAckTimeout(id, option.value[0]));
    default:
      return Fail(ENOSYS);
  }
}

Filled SetIbPath(CommandContext& context, CmaId& id, const CmSetOption& option) {
  constexpr uint32_t kPrimary = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  if (option.command.optlen % sizeof(ib_path_rec_data) != 0) return Fail(EINVAL);
  for (size_t at = 0; at < option.command.optlen; at += sizeof(ib_path_rec_data)) {
    ib_path_rec_data data;
    std::memcpy(&data, option.value + at, sizeof data);
    if (data.flags != kPrimary) continue;
    std::array<uint8_t, kPathRecordBytes> record;
    std::memcpy(record.data(), data.path_rec, record.size());
    return Done(context.ids.SetPath(context.now, id, UnpackPath(record)));
  }
  return Fail(EINVAL);
}

Filled SetOption(CommandContext& context, In in, Out) {
  const auto option = Load<CmSetOption>(in);
  const Result<CmaId*> id = IdOf(context, option.command.id);
  if (!id) return tl::make_unexpected(id.error());
  if (option.command.optlen > kMaxCmOptionBytes) return Fail(EINVAL);
  switch (option.command.level) {
    case RDMA_OPTION_ID:
      return SetIdOption(context, **id, option);
    case RDMA_OPTION_IB:
      if (option.command.optname != RDMA_OPTION_IB_PATH) return Fail(ENOSYS);
      return SetIbPath(context, **id, option);
    default:
      return Fail(ENOSYS);
  }
}

Filled WriteEvent(CommandContext& context, In in, Out) {
  const auto command = Load<CmWriteEvent>(in);
  if (command.event != kCmEventUser && command.event != kCmEventInternal) return Fail(EINVAL);
  const Result<CmaId*> id = IdOf(context, command.id);
  if (!id) return tl::make_unexpected(id.error());
  return Done(context.ids.WriteEvent(context.now, **id, command));
}

// ---- multicast

Filled JoinGroup(CommandContext& context, uint32_t handle, In sockaddr, uint64_t uid,
                 bool send_only, Out out) {
  const Result<SocketAddress> group = ParseSocketAddress(sockaddr);
  if (!group) return tl::make_unexpected(group.error());
  if (group->IsNone()) return Fail(EINVAL);
  const Result<CmaId*> id = IdWithDevice(context, handle);
  if (!id) return tl::make_unexpected(id.error());
  const Result<uint32_t> joined =
      context.ids.JoinMulticast(context.now, **id, {*group, uid, send_only});
  if (!joined) return tl::make_unexpected(joined.error());
  return Store(rdma_ucm_create_id_resp{*joined}, out);
}

Filled JoinIpMcast(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_join_ip_mcast>(in);
  return JoinGroup(context, command.id, BytesOf(command.addr), command.uid, /*send_only=*/false,
                   out);
}

Filled JoinMcast(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_join_mcast>(in);
  const In sockaddr = BytesOf(command.addr);
  if (command.addr_size != SocketAddressBytes(FamilyOf(sockaddr)) ||
      command.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
    return Fail(EINVAL);
  }
  const bool send_only = command.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  return JoinGroup(context, command.id, sockaddr, command.uid, send_only, out);
}

Filled LeaveMcast(CommandContext& context, In in, Out out) {
  const auto command = Load<rdma_ucm_destroy_id>(in);
  const Result<uint32_t> reported = context.ids.LeaveMulticast(context.channel.handle, command.id);
  if (!reported) return tl::make_unexpected(reported.error());
  return Store(rdma_ucm_destroy_id_resp{*reported}, out);
}

// ---- the table

struct CommandEntry {
  size_t in_bytes;
  size_t older_in_bytes;  // the size that programs without the ECE members send
  size_t least_out_bytes;
  Filled (*run)(CommandContext&, In, Out);
  size_t id_offset;  // kNoId: the command has no id
};
constexpr size_t kNoId = SIZE_MAX;

template <class T>
constexpr size_t IdOffset() {
  if constexpr (requires(T command) { command.id; }) return offsetof(T, id);
  return kNoId;
}

template <class T>
constexpr CommandEntry Entry(Filled (*run)(CommandContext&, In, Out), size_t least_out_bytes = 0,
                             size_t older_in_bytes = sizeof(T)) {
  return {sizeof(T), older_in_bytes, least_out_bytes, run, IdOffset<T>()};
}

using Table = std::array<CommandEntry, kCmCommandWriteEvent + 1>;

constexpr Table MakeTable() {
  Table table = {};
  constexpr size_t kId = sizeof(rdma_ucm_create_id_resp);
  constexpr size_t kReported = sizeof(rdma_ucm_destroy_id_resp);
  table[RDMA_USER_CM_CMD_CREATE_ID] = Entry<rdma_ucm_create_id>(CreateId, kId);
  table[RDMA_USER_CM_CMD_DESTROY_ID] = Entry<rdma_ucm_destroy_id>(DestroyId, kReported);
  table[RDMA_USER_CM_CMD_BIND_IP] = Entry<rdma_ucm_bind_ip>(BindIp);
  table[RDMA_USER_CM_CMD_RESOLVE_IP] = Entry<rdma_ucm_resolve_ip>(ResolveIp);
  table[RDMA_USER_CM_CMD_RESOLVE_ROUTE] = Entry<rdma_ucm_resolve_route>(ResolveRoute);
  table[RDMA_USER_CM_CMD_QUERY_ROUTE] =
      Entry<rdma_ucm_query>(QueryRoute, offsetof(rdma_ucm_query_route_resp, ibdev_index));
  table[RDMA_USER_CM_CMD_CONNECT] =
      Entry<rdma_ucm_connect>(Connect, 0, offsetof(rdma_ucm_connect, ece));
  table[RDMA_USER_CM_CMD_LISTEN] = Entry<rdma_ucm_listen>(Listen);
  table[RDMA_USER_CM_CMD_ACCEPT] =
      Entry<rdma_ucm_accept>(Accept, 0, offsetof(rdma_ucm_accept, ece));
  table[RDMA_USER_CM_CMD_REJECT] = Entry<rdma_ucm_reject>(Reject);
  table[RDMA_USER_CM_CMD_DISCONNECT] = Entry<rdma_ucm_disconnect>(Disconnect);
  table[RDMA_USER_CM_CMD_INIT_QP_ATTR] =
      Entry<rdma_ucm_init_qp_attr>(InitQpAttr, sizeof(ib_uverbs_qp_attr));
  table[RDMA_USER_CM_CMD_GET_EVENT] =
      Entry<rdma_ucm_get_event>(GetEvent, offsetof(rdma_ucm_event_resp, reserved));
  table[RDMA_USER_CM_CMD_SET_OPTION] = Entry<CmSetOption>(SetOption);
  table[RDMA_USER_CM_CMD_NOTIFY] = Entry<rdma_ucm_notify>(Notify);
  table[RDMA_USER_CM_CMD_JOIN_IP_MCAST] = Entry<rdma_ucm_join_ip_mcast>(JoinIpMcast, kId);
  table[RDMA_USER_CM_CMD_LEAVE_MCAST] = Entry<rdma_ucm_destroy_id>(LeaveMcast, kReported);
  table[RDMA_USER_CM_CMD_MIGRATE_ID] =
      Entry<rdma_ucm_migrate_id>(MigrateId, sizeof(rdma_ucm_migrate_resp));
  table[RDMA_USER_CM_CMD_QUERY] = Entry<rdma_ucm_query>(Query, 2 * sizeof(uint32_t));
  table[RDMA_USER_CM_CMD_BIND] = Entry<rdma_ucm_bind>(Bind);
  table[RDMA_USER_CM_CMD_RESOLVE_ADDR] = Entry<rdma_ucm_resolve_addr>(ResolveAddr);
  table[RDMA_USER_CM_CMD_JOIN_MCAST] = Entry<rdma_ucm_join_mcast>(JoinMcast, kId);
  table[kCmCommandWriteEvent] = Entry<CmWriteEvent>(WriteEvent);
  return table;
}

constexpr auto kTable = MakeTable();

}  // namespace

Result<size_t> RunCommand(CommandContext& context, uint32_t command, std::span<const std::byte> in,
                          std::span<std::byte> out) {
  if (command >= kTable.size()) return Fail(EINVAL);
  const CommandEntry& entry = kTable[command];
  if (entry.run == nullptr) return Fail(ENOSYS);
  if (in.size() != entry.in_bytes && in.size() != entry.older_in_bytes) return Fail(EINVAL);
  if (out.size() < entry.least_out_bytes) return Fail(ENOSPC);
  return entry.run(context, in, out);
}

uint32_t IdOf(uint32_t command, std::span<const std::byte> in) {
  if (command >= kTable.size() || kTable[command].run == nullptr) return 0;
  const size_t offset = kTable[command].id_offset;
  uint32_t id = 0;
  if (offset == kNoId || in.size() < offset + sizeof id) return 0;
  std::memcpy(&id, in.data() + offset, sizeof id);
  return id;
}

ChangedEvents EventsChangedBy(uint32_t command, std::span<const std::byte> in) {
  using enum ChangedEvents::Which;
  switch (command) {
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return {kNone};
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return {kAny};  // names a membership
    default:
      break;
  }
  const uint32_t id = IdOf(command, in);
  return {id == 0 ? kNone : kOfId, id};
}

}  // namespace rdmaemu::cm
