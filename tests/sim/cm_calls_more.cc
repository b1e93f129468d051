// Calls for options, attributes of queue pairs and multicast groups, in valid and invalid places.
#include "emulator/abi/command_structs.h"
#include "emulator/base/cm_event_names.h"
#include "emulator/cm/path_record.h"
#include "tests/sim/cm_calls.h"
#include "tests/sim/socket_addresses.h"

namespace rdmaemu::sim {
namespace {

constexpr int kNotSupportedByKernel = 524;  // its ENOTSUPP, which <cerrno> does not define
constexpr uint32_t kMulticastQpn = 0xffffff;
// Small enough that every wait for an acknowledgement ends within CmCalls::Bound.
constexpr uint32_t kMostAckTimeout = 18;

}  // namespace

void CmCalls::SetOption(Id& id, CmApi call) {
  Random& random = world_.random();
  CmSetOption option{};
  option.command.id = id.handle;
  option.command.level = RDMA_OPTION_ID;
  bool well_formed = random.Below(8) != 0;
  switch (call) {
    case CmApi::kSetTypeOfService:
      option.command.optname = RDMA_OPTION_ID_TOS;
      option.command.optlen = 1;
      break;
    case CmApi::kSetReuseAddress:
      option.command.optname = RDMA_OPTION_ID_REUSEADDR;
      option.command.optlen = sizeof(int);
      break;
    case CmApi::kSetAfOnly:
      option.command.optname = RDMA_OPTION_ID_AFONLY;
      option.command.optlen = sizeof(int);
      break;
    default:
      option.command.optname = RDMA_OPTION_ID_ACK_TIMEOUT;
      option.command.optlen = 1;
      break;
  }
  option.value[0] =
      call == CmApi::kSetAckTimeout ? static_cast<uint8_t>(random.Below(kMostAckTimeout + 1)) : 1;
  if (!well_formed) option.command.optlen++;
  // Only RC waits for acknowledgements.
  if (call == CmApi::kSetAckTimeout && id.port_space != RDMA_PS_TCP) well_formed = false;
  Do(id, call, RDMA_USER_CM_CMD_SET_OPTION, option, well_formed);
}

void CmCalls::SetPath(Id& id) {
  cm::PathRecord path;
  path.sgid = id.local.value_or(NetAddress{});
  path.dgid = id.destination;
  path.mtu = IBV_MTU_1024;
  path.packet_lifetime = 16;
  path.number_of_paths = 1;
  ib_path_rec_data data{};
  data.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  std::array<uint8_t, cm::kPathRecordBytes> record;
  cm::PackPath(path, record);
  std::memcpy(data.path_rec, record.data(), record.size());
  CmSetOption option{};
  option.command.id = id.handle;
  option.command.level = RDMA_OPTION_IB;
  option.command.optname = RDMA_OPTION_IB_PATH;
  const bool well_formed = world_.random().Below(8) != 0;
  option.command.optlen = well_formed ? sizeof data : sizeof data - 1;
  std::memcpy(option.value, &data, sizeof data);
  Do(id, CmApi::kSetPath, RDMA_USER_CM_CMD_SET_OPTION, option, well_formed);
}

void CmCalls::InitQpAttr(Id& id, CmApi call) {
  Random& random = world_.random();
  rdma_ucm_init_qp_attr command{};
  command.id = id.handle;
  command.qp_state = call == CmApi::kInitQpAttr ? IBV_QPS_INIT
                     : random.Below(2) == 0     ? IBV_QPS_RTR
                                                : IBV_QPS_RTS;
  const bool well_formed = random.Below(8) != 0;
  if (!well_formed) command.qp_state = IBV_QPS_ERR + 1;
  ib_uverbs_qp_attr answer{};
  const int error = Ask(id, call, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, answer, well_formed);
  if (error != 0 || (answer.qp_attr_mask & IBV_QP_DEST_QPN) == 0) return;
  world_.tally().Count("api.attributes_of_a_connection");
  if (id.partner == 0 || id.partner > ids_.size() ||
      answer.dest_qp_num != ids_[id.partner - 1].qpn) {
    world_.verdict().Complain("cm", NameOf(id) + ": its attributes lead to queue pair " +
                                        std::to_string(answer.dest_qp_num) + ", not its partner's");
  }
}

// ---- multicast

void CmCalls::JoinGroup(Id& id) {
  Random& random = world_.random();
  if (joins_.size() >= kMaxJoins) return;
  if (id.next == CmApi::kJoin) id.next = CmApi::kResolveRoute;
  // A unicast address can be joined as well.
  constexpr uint32_t kGroups = 0xef010100, kNoGroup = 0x0a090909;
  NetAddress group = NetAddress::Ipv4(random.Below(6) == 0 ? kNoGroup : kGroups + random.Below(4));
  const bool is_ipv6 = random.Below(6) == 0;
  if (is_ipv6) {
    group = {};
    group.bytes[0] = 0xff;
    group.bytes[15] = 1;
  }
  rdma_ucm_join_mcast command{};
  command.id = id.handle;
  command.uid = kJoinUid + joins_.size();
  command.addr_size = FillAddress(command.addr, group, 0);
  command.join_flags =
      random.Below(3) == 0 ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  const bool well_formed = random.Below(8) != 0;
  if (!well_formed) command.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  rdma_ucm_create_id_resp made{};
  const int due = is_ipv6 ? kNotSupportedByKernel : 0;
  if (Ask(id, CmApi::kJoin, RDMA_USER_CM_CMD_JOIN_MCAST, command, made, well_formed, due) != 0) {
    return;
  }
  const bool fails = !id.local || DevicesOf(id).DeviceOf(*id.local) == 0;
  groups_.Joined(static_cast<uint32_t>(joins_.size()), id.number, NameOf(id), fails);
  joins_.push_back({&id, made.id, group});
}

void CmCalls::LeaveGroup() {
  Random& random = world_.random();
  if (joins_.empty()) return;
  const uint32_t number = random.Below(static_cast<uint32_t>(joins_.size()));
  const Join& join = joins_[number];
  Process& process = *join.id->caller->process;
  if (!process.Runs()) return;
  const bool on_its_channel = random.Below(6) != 0;
  const uint32_t channel = on_its_channel ? join.id->channel : (join.id->channel + 1) % kChannels;
  rdma_ucm_destroy_id command{};
  command.id = join.handle;
  rdma_ucm_destroy_id_resp answer{};
  const int error = process.Cm(join.id->caller->channels[channel].handle,
                               RDMA_USER_CM_CMD_LEAVE_MCAST, command, answer);
  world_.tally().Count(error == 0 ? "api.rdma_leave_multicast.works"
                                  : "api.rdma_leave_multicast.refused");
  Say(*join.id, "leaves a group: errno " + std::to_string(error));
  groups_.Left(number, error, on_its_channel, answer.events_reported);
}

void CmCalls::GroupHappened(Caller& caller, uint32_t channel, const rdma_ucm_event_resp& event) {
  const uint64_t number = event.uid - kJoinUid;
  if (number >= joins_.size() || joins_[number].id->caller != &caller) {
    return world_.verdict().Complain("cm", caller.name + ": an event of nobody's group");
  }
  const Join& join = joins_[number];
  Say(*join.id, std::string("hears ") + CmEventName(event.event) + " of its group");
  if (event.id != join.handle || join.id->channel != channel) {
    world_.verdict().Complain("cm", NameOf(*join.id) + ": an event that is not its group's");
  }
  const auto kind = static_cast<CmEventKind>(event.event);
  model_.GroupEvent(join.id->number);
  groups_.Event(static_cast<uint32_t>(number), kind);
  if (kind != CmEventKind::kMulticastJoin) return;
  const rdma_ucm_ud_param& ud = event.param.ud;
  if (ud.qp_num != kMulticastQpn ||
      std::memcmp(ud.ah_attr.grh.dgid, join.group.bytes.data(), sizeof join.group.bytes) != 0) {
    world_.verdict().Complain("cm", NameOf(*join.id) + ": a join that leads elsewhere");
  }
}

}  // namespace rdmaemu::sim
