#include "tests/fuzz/calls.h"

#include <endian.h>
#include <infiniband/ib.h>

#include "emulator/abi/sequence.h"
#include "emulator/abi/write_event.h"
#include "emulator/host/testing/cm_program.h"

namespace rdmaemu::fuzz {
namespace {

using testing::CmProgram;
using testing::Ipv4Socket;

template <class To, class From>
To Widened(const From& from) {
  To to{};
  std::memcpy(&to, &from, sizeof from);
  return to;
}

// A sequence of two calls (emulator/abi/sequence.h).
template <class First, class Second>
struct Pair {
  SequenceIn head;
  StepHeader first_header;
  First first;
  StepHeader second_header;
  Second second;
};
template <class First, class Second>
Pair<First, Second> InOneMessage(uint32_t first_op, const First& first, StepGift gift,
                                 uint32_t second_op, const Second& second, StepLink link) {
  static_assert(sizeof(First) % kStepAlignment == 0 && sizeof(Second) % kStepAlignment == 0);
  return {{2, UINT32_MAX},
          {first_op, sizeof first, 0, static_cast<uint32_t>(gift)},
          first,
          {second_op, sizeof second, static_cast<uint32_t>(link), 0},
          second};
}

void Put(std::vector<std::byte>& body, size_t at, const void* value, size_t bytes) {
  if (at >= body.size()) return;
  std::memcpy(body.data() + at, value, std::min(bytes, body.size() - at));
}

}  // namespace

void Calls::AddCmCommands() {
  const auto own = Ipv4Socket(kOwnAddress, 0);
  const auto peer = Ipv4Socket(kPeerAddress, 7000);
  const auto self = Ipv4Socket(kOwnAddress, 7000);
  const auto group = Ipv4Socket(kGroupAddress, 0);
  using Storage = decltype(rdma_ucm_bind::addr);
  constexpr uint32_t id = kIdHere;
  Add(CallOp::kCmCreateChannel, Nothing{});
  Add(CallOp::kCmDestroyChannel, HandleIn{kChannelHere, 0});
  AddCm(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{7, 0, RDMA_PS_TCP, IBV_QPT_RC, {}});
  AddCm(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{8, 0, RDMA_PS_UDP, IBV_QPT_UD, {}});
  AddCm(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0});
  AddCm(RDMA_USER_CM_CMD_BIND_IP, rdma_ucm_bind_ip{0, own, id});
  AddCm(RDMA_USER_CM_CMD_BIND, rdma_ucm_bind{id, sizeof(sockaddr_in), 0, Widened<Storage>(own)});
  AddCm(RDMA_USER_CM_CMD_RESOLVE_IP, rdma_ucm_resolve_ip{{}, peer, id, 2000});
  AddCm(RDMA_USER_CM_CMD_RESOLVE_IP, rdma_ucm_resolve_ip{{}, self, id, 2000});
  AddCm(RDMA_USER_CM_CMD_RESOLVE_ADDR,
        rdma_ucm_resolve_addr{id, 2000, 0, sizeof(sockaddr_in), 0, {}, Widened<Storage>(self)});
  AddCm(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  AddCm(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0});
  AddCm(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{CmProgram::Parameters(), id, 0, {}});
  AddCm(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 4});
  AddCm(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{9, CmProgram::Parameters(), id, 0, {}});
  AddCm(RDMA_USER_CM_CMD_ACCEPT, rdma_ucm_accept{9, {}, id, 0, {}});
  AddCm(RDMA_USER_CM_CMD_REJECT, rdma_ucm_reject{id, 8, 0, {}, {}});
  AddCm(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  AddCm(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, IBV_QPS_RTR});
  // GET_EVENT is more frequent than the rest, because its replies contain new ids.
  for (int i = 0; i < 3; ++i) AddCm(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{});
  AddCm(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, IBV_EVENT_COMM_EST});
  AddCm(RDMA_USER_CM_CMD_JOIN_IP_MCAST, rdma_ucm_join_ip_mcast{0, 5, group, id});
  AddCm(RDMA_USER_CM_CMD_JOIN_MCAST,
        rdma_ucm_join_mcast{0, 5, id, sizeof(sockaddr_in), 0, Widened<Storage>(group)});
  AddCm(RDMA_USER_CM_CMD_LEAVE_MCAST, rdma_ucm_destroy_id{0, id, 0});
  AddCm(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, id, kChannelHere});
  for (uint32_t option = 0; option < 3; ++option) {
    AddCm(RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, id, option});
  }
  CmSetOption option{};
  option.command.id = id;
  option.command.optname = RDMA_OPTION_ID_REUSEADDR;
  option.command.optlen = sizeof(int);
  option.value[0] = 1;
  AddCm(RDMA_USER_CM_CMD_SET_OPTION, option);
  option.command.level = RDMA_OPTION_IB;
  option.command.optname = RDMA_OPTION_IB_PATH;
  option.command.optlen = sizeof(ib_path_rec_data);
  const ib_path_rec_data path{IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL, 0, {}};
  std::memcpy(option.value, &path, sizeof path);
  AddCm(RDMA_USER_CM_CMD_SET_OPTION, option);
  AddCm(kCmCommandWriteEvent, CmWriteEvent{id, 0, kCmEventUser, 0, {}});
  sockaddr_ib any{};
  any.sib_family = AF_IB;
  any.sib_sid = htobe64(uint64_t{RDMA_PS_TCP} << 16);
  AddCm(RDMA_USER_CM_CMD_BIND, rdma_ucm_bind{id, sizeof any, 0, Widened<Storage>(any)});
  for (uint32_t option = 0; option < 3; ++option) {
    Add(CallOp::kSequence,
        InOneMessage(CmProgram::Op(RDMA_USER_CM_CMD_GET_EVENT),
                     CmCall<rdma_ucm_get_event>{kChannelHere, 0, {}}, StepGift::kEvent,
                     CmProgram::Op(RDMA_USER_CM_CMD_QUERY),
                     CmCall<rdma_ucm_query>{kChannelHere, 0, {0, 0, option}}, StepLink::kEvent));
  }
}

void Calls::AddVerbs(const DataScene& data) {
  const uint32_t context = data.verb.context, pd = data.verb.pd, cq = data.verb.cq.handle;
  const uint32_t qp = data.pairs[0].qp.made.handle;
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  HelloIn hello{};
  hello.version = kCallVersion;
  Add(CallOp::kHello, hello);
  std::memcpy(hello.group_token, data.client.hello.group_token, sizeof hello.group_token);
  hello.parent = data.client.hello.process;
  hello.fork = 1;
  Add(CallOp::kHello, hello);
  Add(CallOp::kMapSegment, MapSegmentIn{1, 0});
  Add(CallOp::kHostStatus, Nothing{});
  Add(CallOp::kListDevices, Nothing{});
  Add(CallOp::kOpenDevice, OpenDeviceIn{0, 0});
  Add(CallOp::kCloseDevice, HandleIn{context, 0});
  Add(CallOp::kQueryDevice, HandleIn{context, 0});
  Add(CallOp::kQueryPort, QueryPortIn{context, 1});
  Add(CallOp::kQueryGids, QueryGidsIn{context, 1, 0, 4});
  Add(CallOp::kQueryPkey, QueryPkeyIn{context, 1, 0, 0});
  Add(CallOp::kQueryClock, HandleIn{context, 0});
  Add(CallOp::kGetAsyncEvent, HandleIn{context, 0});
  Add(CallOp::kAllocPd, AllocPdIn{context, 0});
  Add(CallOp::kDeallocPd, HandleIn{pd, 0});
  Add(CallOp::kRegMr, RegMrIn{pd, kAll, kMemoryAt, 4096, kMemoryAt});
  Add(CallOp::kReregMr,
      ReregMrIn{data.regions[0].handle, IBV_REREG_MR_CHANGE_ACCESS, pd, kAll, kMemoryAt, 4096});
  Add(CallOp::kDeregMr, HandleIn{data.regions[1].handle, 0});
  Add(CallOp::kAllocMw, AllocMwIn{pd, IBV_MW_TYPE_2});
  Add(CallOp::kDeallocMw, HandleIn{data.windows[0].handle, 0});
  Add(CallOp::kCreateChannel, HandleIn{context, 0});
  Add(CallOp::kDestroyChannel, HandleIn{context, 0});
  Add(CallOp::kTakeChannelOverflow, HandleIn{context, 0});
  Add(CallOp::kCreateCq, CreateCqIn{context, 0, 15, 0, 6});
  Add(CallOp::kResizeCq, ResizeCqIn{cq, 100});
  Add(CallOp::kRaiseCq, RaiseCqIn{cq, EventPart::kAll});
  Add(CallOp::kCloseLanes, HandleIn{cq, 0});
  Add(CallOp::kDestroyCq, HandleIn{cq, 0});
  Add(CallOp::kCreateSrq, CreateSrqIn{pd, 15, 2, 0, 7});
  Add(CallOp::kModifySrq, ModifySrqIn{data.srq.handle, IBV_SRQ_LIMIT, 15, 2});
  Add(CallOp::kQuerySrq, HandleIn{data.srq.handle, 0});
  Add(CallOp::kDestroySrq, HandleIn{data.srq.handle, 0});
  CreateQpIn create{};
  create.pd = pd;
  create.send_cq = create.recv_cq = cq;
  create.type = IBV_QPT_RC;
  create.cap = {15, 15, 2, 2, 64};
  Add(CallOp::kCreateQp, create);
  ModifyQpIn modify{};
  modify.handle = qp;
  modify.mask = IBV_QP_STATE;
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_SQD, IBV_QPS_ERR}) {
    modify.attr.qp_state = state;
    Add(CallOp::kModifyQp, modify);
  }
  modify.attr.qp_state = IBV_QPS_INIT;
  Add(CallOp::kSequence,
      InOneMessage(CmProgram::Op(RDMA_USER_CM_CMD_INIT_QP_ATTR),
                   CmCall<rdma_ucm_init_qp_attr>{kChannelHere, 0, {0, kIdHere, IBV_QPS_INIT}},
                   StepGift::kAttributes, static_cast<uint32_t>(CallOp::kModifyQp), modify,
                   StepLink::kAttributesButReads));
  modify.attr.port_num = 1;
  modify.mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  Add(CallOp::kModifyQp, modify);
  modify.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify.attr.qp_state = IBV_QPS_RTR;
  modify.attr.path_mtu = IBV_MTU_256;
  modify.attr.dest_qp_num = data.pairs[4].qp.made.qpn;
  modify.attr.max_dest_rd_atomic = modify.attr.max_rd_atomic = 2;
  modify.attr.ah_attr.is_global = modify.attr.ah_attr.port_num = 1;
  modify.attr.ah_attr.grh.sgid_index = 1;
  modify.attr.ah_attr.grh.dgid = NetAddress::Parse(kOwnAddress)->ToGid();
  Add(CallOp::kModifyQp, modify);
  modify.mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  modify.attr.qp_state = IBV_QPS_RTS;
  modify.attr.timeout = 1;
  Add(CallOp::kModifyQp, modify);
  Add(CallOp::kQueryQp, HandleIn{qp, 0});
  Add(CallOp::kOpenLane, OpenLaneIn{qp, 1});
  Add(CallOp::kOpenLaneCounter, HandleIn{qp, 0});
  Add(CallOp::kRaiseLaneEvent, HandleIn{qp, 0});
  Add(CallOp::kCloseSentLane, HandleIn{qp, 0});
  Add(CallOp::kDestroyQp, HandleIn{qp, 0});
  CreateAhIn ah{};
  ah.pd = pd;
  ah.attr = modify.attr.ah_attr;
  Add(CallOp::kCreateAh, ah);
  Add(CallOp::kDestroyAh, HandleIn{data.address_handles[0], 0});
  McastIn group{};
  group.qp = data.pairs[3].qp.made.handle;
  group.gid = NetAddress::Parse(kGroupAddress)->ToGid();
  Add(CallOp::kAttachMcast, group);
  Add(CallOp::kDetachMcast, group);
  Add(CallOp::kPostSend, AskIn{qp, 0});
  Add(CallOp::kPollCq, AskIn{cq, 1});
  for (const ScenePair& pair : data.pairs) handles.Add(pair.qp.made.handle);
  for (const uint32_t handle : {context, pd, cq, data.srq.handle, data.regions[0].handle}) {
    handles.Add(handle);
  }
}

void Calls::AddDeviceChanges() {
  const auto add = [&](DeviceChange change, const char* device, const char* address) {
    ChangeDeviceIn in{};
    in.change = static_cast<uint32_t>(change);
    in.on_wire = 1;
    in.link_mtu_bytes = 1500;
    in.pkey = 0xffff;
    std::strcpy(in.device, device);
    std::strcpy(in.profile, "rxe");
    const NetAddress parsed = *NetAddress::Parse(address);
    std::copy(parsed.bytes.begin(), parsed.bytes.end(), in.address);
    Add(CallOp::kChangeDevice, in);
  };
  add(DeviceChange::kRemoveDevice, "rxe0", kOwnAddress);
  // Additions are more frequent than removals.
  for (int i = 0; i < 2; ++i) {
    add(DeviceChange::kAddDevice, "rxe0", kOwnAddress);
    add(DeviceChange::kPortUp, "rxe0", kOwnAddress);
    add(DeviceChange::kMoveAddress, "rxe0", kOwnAddress);
  }
  add(DeviceChange::kPortDown, "rxe0", kOwnAddress);
  add(DeviceChange::kAddDevice, "more", kOwnAddress);
  add(DeviceChange::kRemoveDevice, "more", kOwnAddress);
  add(DeviceChange::kMoveAddress, "more", kOwnAddress);
  add(DeviceChange::kAddAddress, "rxe0", "127.0.9.9");
  add(DeviceChange::kRemoveAddress, "", "127.0.9.9");
  add(DeviceChange::kSetPkey, "rxe0", kOwnAddress);
}

void Calls::Fill(Input& in, std::vector<std::byte>& body) const {
  for (size_t at = 0; at + 4 <= body.size(); at += 4) {
    uint32_t word;
    std::memcpy(&word, body.data() + at, 4);
    if (word == kIdHere) {
      word = ids.Pick(in);
    } else if (word == kChannelHere) {
      // Mostly the first one, because an id's calls must use the id's channel.
      word = channels.empty() ? 1 : in.OneIn(8) ? in.Pick(channels) : channels[0];
    } else {
      continue;
    }
    std::memcpy(body.data() + at, &word, 4);
  }
}

void Calls::Patch(Input& in, std::vector<std::byte>& body) const {
  const size_t at = in.U8() * size_t{4} % std::max<size_t>(body.size(), 4);
  switch (in.Below(8)) {
    case 0: {
      const uint32_t number = handles.Pick(in);
      return Put(body, at, &number, sizeof number);
    }
    case 1: {
      const uint32_t number = ids.Pick(in);
      return Put(body, at, &number, sizeof number);
    }
    case 2: {
      const uint64_t address = kMemoryAt + in.U16();
      return Put(body, at, &address, sizeof address);
    }
    case 3: {
      constexpr const char* kAddresses[] = {kOwnAddress, kPeerAddress, kGroupAddress,
                                            "0.0.0.0",   "127.0.0.1",  "10.9.9.9"};
      const sockaddr_in6 socket = Ipv4Socket(in.Pick(kAddresses), in.OneIn(2) ? 7000 : in.U16());
      return Put(body, at, &socket, sizeof(sockaddr_in));
    }
    case 4: {
      const auto bytes = in.Bytes(in.Below(32));
      return Put(body, at + in.Below(4), bytes.data(), bytes.size());
    }
    default: {
      const uint32_t number = in.Edge32();
      return Put(body, at, &number, in.OneIn(4) ? 1 : sizeof number);
    }
  }
}

void Calls::Make(Input& in, testing::Client& client) {
  const uint32_t which = in.U8();
  uint32_t op = which;
  std::vector<std::byte> body;
  if (which >= 250) {
    // Shape and size may be wrong.
    op = in.OneIn(2) ? in.Edge32() : 0x100 + in.Below(32);
    const auto bytes = in.Bytes(in.U8());
    body.assign(bytes.begin(), bytes.end());
    if (in.OneIn(4)) body.resize(in.U16() % kMaxCallBytes);
  } else {
    const Template& from = templates_[which % templates_.size()];
    op = from.op;
    body = from.body;
    Fill(in, body);
    const uint32_t changes = in.U8();
    for (uint32_t left = changes < 96 ? 0 : changes % 4; left > 0; --left) Patch(in, body);
    if (changes == 255) body.resize(in.U16() % 600);
  }
  const Reply reply = client.CallBytes(op, body.data(), body.size());
  REQUIRE(reply.body.size() <= kMaxReplyBytes);
  REQUIRE(reply.descriptors.size() <= kMaxReplyDescriptors);
  REQUIRE(reply.error >= 0 && (reply.error == 0 || reply.body.empty()));
  Learn(op, reply);
}

void Calls::Learn(uint32_t op, const Reply& reply) {
  if (reply.error != 0) return;
  // A reply begins with handles and numbers.
  constexpr size_t kWords = 6;
  const bool is_cm = op >= static_cast<uint32_t>(CallOp::kCmCommand);
  for (size_t at = 0; at + 4 <= std::min(reply.body.size(), kWords * 4); at += 4) {
    uint32_t word;
    std::memcpy(&word, reply.body.data() + at, 4);
    (is_cm ? ids : handles).Add(word);
  }
  if (op == static_cast<uint32_t>(CallOp::kCmCreateChannel)) {
    uint32_t channel;
    std::memcpy(&channel, reply.body.data(), sizeof channel);
    if (channels.size() < 8) channels.push_back(channel);
  }
}

}  // namespace rdmaemu::fuzz
