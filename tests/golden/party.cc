#include "tests/golden/party.h"

#include "emulator/abi/user_qp_attr.h"
#include "emulator/cm/socket_address.h"

namespace rdmaemu::golden {
namespace {

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

uint16_t Fill(__kernel_sockaddr_storage& storage, const std::string& address, uint16_t port) {
  const NetAddress parsed = *NetAddress::Parse(address);
  const uint16_t family = parsed.IsIpv4() ? AF_INET : AF_INET6;
  return static_cast<uint16_t>(cm::EmitSocketAddress(
      {family, parsed, port, 0, 0}, std::as_writable_bytes(std::span(&storage, 1))));
}

}  // namespace

Party::Party(testing::World& world, Host& host, const std::string& address)
    : world_(world), address_(address), client_(world, host), verb_(client_) {
  CmChannelOut channel{};
  Expect(client_.Call(CallOp::kCmCreateChannel, Nothing{}, channel) == 0, "no channel");
  channel_ = channel.channel;
  Expect(client_.Call(CallOp::kRegMr,
                      RegMrIn{verb_.pd, kAllAccess, reinterpret_cast<uint64_t>(memory_.data()),
                              kBytes, kMemory},
                      region_) == 0,
         "no region");
}

uint32_t Party::CreateId(uint16_t port_space) {
  rdma_ucm_create_id in{};
  in.uid = 1;
  in.ps = port_space;
  rdma_ucm_create_id_resp out{};
  Expect(Cm(RDMA_USER_CM_CMD_CREATE_ID, in, out) == 0, "no id");
  return out.id;
}

void Party::Listen(uint32_t id, uint16_t port) {
  rdma_ucm_bind bind{};
  bind.id = id;
  bind.addr_size = Fill(bind.addr, address_, port);
  Do(RDMA_USER_CM_CMD_BIND, bind);
  Do(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 8});
}

void Party::Resolve(uint32_t id, const std::string& destination, uint16_t port) {
  // A fixed source port.
  rdma_ucm_bind bind{};
  bind.id = id;
  bind.addr_size = Fill(bind.addr, address_, static_cast<uint16_t>(port + 1000));
  Do(RDMA_USER_CM_CMD_BIND, bind);
  rdma_ucm_resolve_addr resolve{};
  resolve.id = id;
  resolve.timeout_ms = 2000;
  resolve.dst_size = Fill(resolve.dst_addr, destination, port);
  Do(RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve);
  Event(cm::EventType::kAddrResolved);
  Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  Event(cm::EventType::kRouteResolved);
}

void Party::Destroy(uint32_t id) {
  rdma_ucm_destroy_id in{};
  in.id = id;
  Do(RDMA_USER_CM_CMD_DESTROY_ID, in);
}

rdma_ucm_event_resp Party::Event(cm::EventType type) {
  rdma_ucm_event_resp event{};
  const bool came = world_.RunUntil(
      [&] { return Cm(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, event) == 0; },
      std::chrono::seconds(20));
  Expect(came, std::string("no event, wanted ") + cm::EventName(type));
  Expect(event.event == static_cast<uint32_t>(type),
         std::string(CmEventName(event.event)) + " instead of " + cm::EventName(type));
  return event;
}

void Party::Modify(const testing::Verb::Qp& qp, uint32_t id, ibv_qp_state state) {
  rdma_ucm_init_qp_attr in{};
  in.id = id;
  in.qp_state = state;
  ib_uverbs_qp_attr out{};
  Expect(Cm(RDMA_USER_CM_CMD_INIT_QP_ATTR, in, out) == 0, "INIT_QP_ATTR failed");
  ibv_qp_attr attr = ToUserQpAttr(out);
  attr.qp_state = state;
  const int mask = ToUserQpAttrMask(out.qp_attr_mask);
  if (state == IBV_QPS_INIT && (mask & IBV_QP_ACCESS_FLAGS) != 0) {
    attr.qp_access_flags = static_cast<unsigned>(kAllAccess);
  }
  Expect(verb_.Modify(qp, mask | IBV_QP_STATE, attr) == 0,
         "the QP did not reach state " + std::to_string(state));
}

void Party::ReadyUd(const testing::Verb::Qp& qp, uint32_t id) {
  Modify(qp, id, IBV_QPS_INIT);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  Expect(verb_.Modify(qp, IBV_QP_STATE, attr) == 0, "the UD QP did not reach RTR");
  attr.qp_state = IBV_QPS_RTS;
  Expect(verb_.Modify(qp, IBV_QP_STATE | IBV_QP_SQ_PSN, attr) == 0, "the UD QP did not reach RTS");
}

void Party::PostReceive(testing::Verb::Qp& qp, size_t offset, uint32_t length) {
  verb_.PostRecv(qp, 1, reinterpret_cast<void*>(kMemory + offset), length, region_.lkey);
}

void Party::PostSend(testing::Verb::Qp& qp, ibv_wr_opcode opcode, size_t offset, uint32_t length,
                     const std::function<void(testing::PlainSend&)>& fill) {
  verb_.PostSend(qp, 1, opcode, reinterpret_cast<void*>(kMemory + offset), length, region_.lkey,
                 fill);
}

ib_uverbs_wc Party::Completion() {
  ib_uverbs_wc wc{};
  Expect(world_.RunUntil([&] { return verb_.Poll(wc); }, std::chrono::seconds(20)),
         "no completion");
  Expect(wc.status == IBV_WC_SUCCESS, "completion with status " + std::to_string(wc.status));
  return wc;
}

uint32_t Party::CreateAh(const ib_uverbs_ah_attr& attr) {
  HandleOut out{};
  Expect(client_.Call(CallOp::kCreateAh, CreateAhIn{verb_.pd, 0, ToUserAhAttr(attr)}, out) == 0,
         "no address handle");
  return out.handle;
}

}  // namespace rdmaemu::golden
