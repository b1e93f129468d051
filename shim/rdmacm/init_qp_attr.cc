// What the host says a QP needs for its next state (rdma_init_qp_attr(3)), and the transitions that
// librdmacm makes with it.
#include <cstring>

#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

void Convert(const ib_uverbs_ah_attr& from, ibv_ah_attr& to) {
  std::memcpy(to.grh.dgid.raw, from.grh.dgid, sizeof(to.grh.dgid.raw));
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
}

void Convert(const ib_uverbs_qp_attr& from, ibv_qp_attr& to) {
  to.cur_qp_state = static_cast<ibv_qp_state>(from.cur_qp_state);
  to.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  to.path_mig_state = static_cast<ibv_mig_state>(from.path_mig_state);
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.qp_access_flags = from.qp_access_flags;
  to.cap.max_send_wr = from.max_send_wr;
  to.cap.max_recv_wr = from.max_recv_wr;
  to.cap.max_send_sge = from.max_send_sge;
  to.cap.max_recv_sge = from.max_recv_sge;
  to.cap.max_inline_data = from.max_inline_data;
  Convert(from.ah_attr, to.ah_attr);
  Convert(from.alt_ah_attr, to.alt_ah_attr);
  to.pkey_index = from.pkey_index;
  to.alt_pkey_index = from.alt_pkey_index;
  to.en_sqd_async_notify = from.en_sqd_async_notify;
  to.sq_draining = from.sq_draining;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.alt_port_num = from.alt_port_num;
  to.alt_timeout = from.alt_timeout;
}

// Bits that verbs.h does not know (the kernel's RoCE attributes) are no business of ibv_modify_qp.
constexpr uint32_t kVerbsMask = (static_cast<uint32_t>(IBV_QP_RATE_LIMIT) << 1) - 1;
constexpr uint32_t kKernelOnlyMask = 0x1e00000;

}  // namespace

int InitQpAttributes(const Id& id, ibv_qp_state state, ibv_qp_attr* attributes, int* mask) {
  rdma_ucm_init_qp_attr command = {};
  command.id = id.handle;
  command.qp_state = static_cast<uint32_t>(state);
  ib_uverbs_qp_attr response = {};
  if (const int error = Call(ChannelOf(id), RDMA_USER_CM_CMD_INIT_QP_ATTR, command, &response);
      error != 0) {
    return error;
  }
  Convert(response, *attributes);
  attributes->qp_state = state;
  *mask = static_cast<int>(response.qp_attr_mask & kVerbsMask & ~kKernelOnlyMask);
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
