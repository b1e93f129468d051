// Converts QP attributes and path records between the kernel's structs and the library's. librdmacm
// uses these functions, and programs may.

#include <endian.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <string.h>

#include "shim/verbs/objects.h"

RDMAEMU_EXPORT void ibv_copy_ah_attr_from_kern(ibv_ah_attr* out, const ib_uverbs_ah_attr* in) {
  memcpy(out->grh.dgid.raw, in->grh.dgid, sizeof out->grh.dgid);
  out->grh.flow_label = in->grh.flow_label;
  out->grh.sgid_index = in->grh.sgid_index;
  out->grh.hop_limit = in->grh.hop_limit;
  out->grh.traffic_class = in->grh.traffic_class;
  out->dlid = in->dlid;
  out->sl = in->sl;
  out->src_path_bits = in->src_path_bits;
  out->static_rate = in->static_rate;
  out->is_global = in->is_global;
  out->port_num = in->port_num;
}

RDMAEMU_EXPORT void ibv_copy_qp_attr_from_kern(ibv_qp_attr* out, const ib_uverbs_qp_attr* in) {
  out->qp_state = static_cast<ibv_qp_state>(in->qp_state);
  out->cur_qp_state = static_cast<ibv_qp_state>(in->cur_qp_state);
  out->path_mtu = static_cast<ibv_mtu>(in->path_mtu);
  out->path_mig_state = static_cast<ibv_mig_state>(in->path_mig_state);
  out->qkey = in->qkey;
  out->rq_psn = in->rq_psn;
  out->sq_psn = in->sq_psn;
  out->dest_qp_num = in->dest_qp_num;
  out->qp_access_flags = in->qp_access_flags;
  out->cap = {in->max_send_wr, in->max_recv_wr, in->max_send_sge, in->max_recv_sge,
              in->max_inline_data};
  ibv_copy_ah_attr_from_kern(&out->ah_attr, &in->ah_attr);
  ibv_copy_ah_attr_from_kern(&out->alt_ah_attr, &in->alt_ah_attr);
  out->pkey_index = in->pkey_index;
  out->alt_pkey_index = in->alt_pkey_index;
  out->en_sqd_async_notify = in->en_sqd_async_notify;
  out->sq_draining = in->sq_draining;
  out->max_rd_atomic = in->max_rd_atomic;
  out->max_dest_rd_atomic = in->max_dest_rd_atomic;
  out->min_rnr_timer = in->min_rnr_timer;
  out->port_num = in->port_num;
  out->timeout = in->timeout;
  out->retry_cnt = in->retry_cnt;
  out->rnr_retry = in->rnr_retry;
  out->alt_port_num = in->alt_port_num;
  out->alt_timeout = in->alt_timeout;
}

namespace {
// Fields with the same name, type and meaning in both structs.
template <class To, class From>
void CopyCommonPathFields(To& out, const From& in) {
  out.dlid = in.dlid;
  out.slid = in.slid;
  out.raw_traffic = in.raw_traffic;
  out.flow_label = in.flow_label;
  out.reversible = in.reversible;
  out.mtu = in.mtu;
  out.pkey = in.pkey;
  out.hop_limit = in.hop_limit;
  out.traffic_class = in.traffic_class;
  out.numb_path = in.numb_path;
  out.sl = in.sl;
  out.mtu_selector = in.mtu_selector;
  out.rate_selector = in.rate_selector;
  out.rate = in.rate;
  out.packet_life_time_selector = in.packet_life_time_selector;
  out.packet_life_time = in.packet_life_time;
  out.preference = in.preference;
}
}  // namespace

RDMAEMU_EXPORT void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* out, const ib_user_path_rec* in) {
  memcpy(out->dgid.raw, in->dgid, sizeof out->dgid);
  memcpy(out->sgid.raw, in->sgid, sizeof out->sgid);
  CopyCommonPathFields(*out, *in);
}

RDMAEMU_EXPORT void ibv_copy_path_rec_to_kern(ib_user_path_rec* out, const ibv_sa_path_rec* in) {
  memcpy(out->dgid, in->dgid.raw, sizeof out->dgid);
  memcpy(out->sgid, in->sgid.raw, sizeof out->sgid);
  CopyCommonPathFields(*out, *in);
}
