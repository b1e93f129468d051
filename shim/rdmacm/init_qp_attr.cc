// The host's QP attributes for the next state (rdma_init_qp_attr(3)), and librdmacm's transitions
// with them.
#include "emulator/abi/user_qp_attr.h"
#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Makes one transition of a QP as a step of a larger operation. `change` modifies the host's
// attributes.
template <class Change>
int Move(const Id& id, ibv_qp_state state, const Change& change) {
  ibv_qp_attr attributes = {};
  int mask = 0;
  const int error = Uninterrupted([&] { return InitQpAttributes(id, state, &attributes, &mask); });
  if (error != 0) return error;
  change(attributes);
  return ModifyQp(id.qp, attributes, mask);
}

}  // namespace

int ModifyQp(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  return Uninterrupted([&] { return ibv_modify_qp(qp, &attributes, mask); });
}

int InitQpAttributes(const Id& id, ibv_qp_state state, ibv_qp_attr* attributes, int* mask) {
  rdma_ucm_init_qp_attr command = {};
  command.id = id.handle;
  command.qp_state = static_cast<uint32_t>(state);
  ib_uverbs_qp_attr response = {};
  if (const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_INIT_QP_ATTR, command, &response);
      error != 0) {
    return error;
  }
  *attributes = ToUserQpAttr(response);
  attributes->qp_state = state;
  *mask = ToUserQpAttrMask(response.qp_attr_mask);
  return 0;
}

int ModifyQpToReadyToReceive(Id& id, uint8_t responder_resources) {
  // INIT again: the access rights depend on values negotiated after the QP was created.
  const int error = Move(id, IBV_QPS_INIT, [](ibv_qp_attr&) {});
  if (error != 0) return error;
  return Move(id, IBV_QPS_RTR, [&](ibv_qp_attr& attributes) {
    if (responder_resources != RDMA_MAX_RESP_RES) {
      attributes.max_dest_rd_atomic = responder_resources;
    }
  });
}

int ModifyQpToReadyToSend(Id& id, uint8_t initiator_depth) {
  return Move(id, IBV_QPS_RTS, [&](ibv_qp_attr& attributes) {
    if (initiator_depth != RDMA_MAX_INIT_DEPTH) attributes.max_rd_atomic = initiator_depth;
  });
}

int ModifyQpToError(const Id& id) {
  if (id.qp == nullptr) return 0;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  return ModifyQp(id.qp, attributes, IBV_QP_STATE);
}

}  // namespace rdmaemu::rdmacm

extern "C" int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return Fail(EINVAL);
  return ReturnErrno(InitQpAttributes(Private(id), qp_attr->qp_state, qp_attr, qp_attr_mask));
}
