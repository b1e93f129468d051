// What the host says a QP needs for its next state (rdma_init_qp_attr(3)), and the transitions that
// librdmacm makes with it.
#include "emulator/host/user_qp_attr.h"
#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
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
  // INIT once more: the access rights follow what was negotiated since the QP was made.
  ibv_qp_attr attributes = {};
  int mask = 0;
  if (const int error = InitQpAttributes(id, IBV_QPS_INIT, &attributes, &mask); error != 0) {
    return error;
  }
  if (const int error = ibv_modify_qp(id.qp, &attributes, mask); error != 0) return error;
  attributes = {};
  if (const int error = InitQpAttributes(id, IBV_QPS_RTR, &attributes, &mask); error != 0) {
    return error;
  }
  if (responder_resources != RDMA_MAX_RESP_RES) {
    attributes.max_dest_rd_atomic = responder_resources;
  }
  return ibv_modify_qp(id.qp, &attributes, mask);
}

int ModifyQpToReadyToSend(Id& id, uint8_t initiator_depth) {
  ibv_qp_attr attributes = {};
  int mask = 0;
  if (const int error = InitQpAttributes(id, IBV_QPS_RTS, &attributes, &mask); error != 0) {
    return error;
  }
  if (initiator_depth != RDMA_MAX_INIT_DEPTH) attributes.max_rd_atomic = initiator_depth;
  return ibv_modify_qp(id.qp, &attributes, mask);
}

int ModifyQpToError(const Id& id) {
  if (id.qp == nullptr) return 0;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(id.qp, &attributes, IBV_QP_STATE);
}

}  // namespace rdmaemu::rdmacm

extern "C" int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return Fail(EINVAL);
  return ReturnErrno(InitQpAttributes(Private(id), qp_attr->qp_state, qp_attr, qp_attr_mask));
}
