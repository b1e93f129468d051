// Conversions of QP and address attributes from the kernel's uverbs structs to the structs of
// verbs.h. They make the answer of INIT_QP_ATTR ready for ibv_modify_qp, as
// ib_copy_qp_attr_from_kern() does (marshall.c of libibverbs).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cstring>

namespace rdmaemu {

inline ibv_ah_attr ToUserAhAttr(const ib_uverbs_ah_attr& from) {
  ibv_ah_attr to = {};
  std::memcpy(to.grh.dgid.raw, from.grh.dgid, sizeof to.grh.dgid.raw);
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
  return to;
}

// Converts all members except qp_state, which the caller sets.
inline ibv_qp_attr ToUserQpAttr(const ib_uverbs_qp_attr& from) {
  ibv_qp_attr to = {};
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
  to.ah_attr = ToUserAhAttr(from.ah_attr);
  to.alt_ah_attr = ToUserAhAttr(from.alt_ah_attr);
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
  return to;
}

// Removes the bits that ibv_modify_qp does not define (the kernel's attributes of RoCE).
inline int ToUserQpAttrMask(uint32_t mask) {
  constexpr uint32_t kVerbs = (static_cast<uint32_t>(IBV_QP_RATE_LIMIT) << 1) - 1;
  constexpr uint32_t kKernelOnly = 0x1e00000;
  return static_cast<int>(mask & kVerbs & ~kKernelOnly);
}

}  // namespace rdmaemu
