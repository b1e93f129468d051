// Describes the structs of the two libraries field by field. The layer writes a recording by these
// descriptions, and `rdmaemu run` reads it by them.
//
// `Describe(visitor, value)` visits fields in a fixed order. A reading visitor fills in each field,
// so that later fields may depend on earlier ones (a mask, an opcode). The descriptions call these
// functions of a visitor:
//   Field(name, scalar)              Flags(name, integer, set)
//   Object(name, pointer to object)  Number(name, which, integer)
//   Memory(name, pointer or integer) Big(name, big-endian integer)
//   Struct(name, struct)             Pointer(name, struct pointer)
//   Array(name, pointer, count)      Bytes(name, pointer, length)
//   Text(name, C string)             Gid(name, gid)
//   Address(name, sockaddr)
//   Payload()                        the place of a work request's hash, which has its own record
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <type_traits>

namespace rdmaemu::layer::trace {

enum class FlagSet : uint8_t {
  kNone,
  kAccess,
  kQpAttr,
  kSrqAttr,
  kSend,
  kWc,
  kCqWc,
  kCqInit,
  kCqCreate,
  kQpInit,
  kSendOps,
  kSrqInit,
  kRereg,
  kDeviceCap,
  kPortCap,
  kWq,
  kWqAttr,
  kXrcd,
  kAddrinfo,
  kMcast,
};

// Kinds of numbers that a device chooses for an object.
enum class NumberOf : uint8_t { kQp, kLkey, kRkey, kSrq };

template <class T, class U>
inline constexpr bool kIs = std::is_same_v<std::remove_cv_t<T>, U>;

// An object T in the layout of IBVERBS_1.0. Only its address is known.
template <class T>
class Old {};
template <class T>
inline constexpr bool kIsOld = false;
template <class T>
inline constexpr bool kIsOld<Old<T>> = true;

// Whether T is an RDMA object. Pointers to RDMA objects get stable names.
template <class T>
inline constexpr bool kIsObject =
    kIsOld<std::remove_cv_t<T>> || kIs<T, ibv_context> || kIs<T, ibv_pd> || kIs<T, ibv_mr> ||
    kIs<T, ibv_mw> || kIs<T, ibv_cq> || kIs<T, ibv_cq_ex> || kIs<T, ibv_comp_channel> ||
    kIs<T, ibv_qp> || kIs<T, ibv_qp_ex> || kIs<T, ibv_srq> || kIs<T, ibv_ah> || kIs<T, ibv_wq> ||
    kIs<T, ibv_dm> || kIs<T, ibv_flow> || kIs<T, ibv_td> || kIs<T, ibv_xrcd> ||
    kIs<T, ibv_counters> || kIs<T, ibv_flow_action> || kIs<T, ibv_rwq_ind_table> ||
    kIs<T, rdma_event_channel> || kIs<T, rdma_cm_id>;

// Returns the kind of an object in its stable name. A CQ or QP and its extended form are one
// object.
template <class T>
struct KindOfOld;
template <class T>
constexpr const char* KindOf() {
  if constexpr (kIsOld<T>) return KindOfOld<T>::Name();
  if (kIs<T, ibv_context>) return "context";
  if (kIs<T, ibv_pd>) return "pd";
  if (kIs<T, ibv_mr>) return "mr";
  if (kIs<T, ibv_mw>) return "mw";
  if (kIs<T, ibv_cq> || kIs<T, ibv_cq_ex>) return "cq";
  if (kIs<T, ibv_comp_channel>) return "compchannel";
  if (kIs<T, ibv_qp> || kIs<T, ibv_qp_ex>) return "qp";
  if (kIs<T, ibv_srq>) return "srq";
  if (kIs<T, ibv_ah>) return "ah";
  if (kIs<T, ibv_wq>) return "wq";
  if (kIs<T, ibv_dm>) return "dm";
  if (kIs<T, ibv_flow>) return "flow";
  if (kIs<T, ibv_td>) return "td";
  if (kIs<T, ibv_xrcd>) return "xrcd";
  if (kIs<T, ibv_counters>) return "counters";
  if (kIs<T, ibv_flow_action>) return "flowaction";
  if (kIs<T, ibv_rwq_ind_table>) return "indtable";
  if (kIs<T, rdma_event_channel>) return "channel";
  return "id";
}
template <class T>
struct KindOfOld<Old<T>> {
  static constexpr const char* Name() { return KindOf<T>(); }
};

// The numbers that the device chose for a new object. They are recorded with the object.
struct ObjectNumbers {
  uint32_t first = 0, second = 0;  // QP: its number; MR: lkey, rkey; MW: rkey in `second`
};
template <class T>
ObjectNumbers NumbersOf(const T* object) {
  if (object == nullptr) return {};
  if constexpr (kIs<T, ibv_qp>) return {object->qp_num, 0};
  if constexpr (kIs<T, ibv_qp_ex>) return {object->qp_base.qp_num, 0};
  if constexpr (kIs<T, ibv_mr>) return {object->lkey, object->rkey};
  if constexpr (kIs<T, ibv_mw>) return {0, object->rkey};
  return {};
}

// ---- structs

template <class V>
void Describe(V& v, ibv_global_route& s) {
  v.Gid("dgid", s.dgid);
  v.Field("flow_label", s.flow_label);
  v.Field("sgid_index", s.sgid_index);
  v.Field("hop_limit", s.hop_limit);
  v.Field("traffic_class", s.traffic_class);
}
template <class V>
void Describe(V& v, ibv_ah_attr& s) {
  v.Field("is_global", s.is_global);
  if (s.is_global) v.Struct("grh", s.grh);
  v.Field("dlid", s.dlid);
  v.Field("sl", s.sl);
  v.Field("src_path_bits", s.src_path_bits);
  v.Field("static_rate", s.static_rate);
  v.Field("port_num", s.port_num);
}
template <class V>
void Describe(V& v, ibv_qp_cap& s) {
  v.Field("max_send_wr", s.max_send_wr);
  v.Field("max_recv_wr", s.max_recv_wr);
  v.Field("max_send_sge", s.max_send_sge);
  v.Field("max_recv_sge", s.max_recv_sge);
  v.Field("max_inline_data", s.max_inline_data);
}
template <class V, class S>
void DescribeQpInit(V& v, S& s) {
  v.Object("send_cq", s.send_cq);
  v.Object("recv_cq", s.recv_cq);
  v.Object("srq", s.srq);
  v.Struct("cap", s.cap);
  v.Field("qp_type", s.qp_type);
  v.Field("sq_sig_all", s.sq_sig_all);
}
template <class V>
void Describe(V& v, ibv_qp_init_attr& s) {
  DescribeQpInit(v, s);
}
template <class V>
void Describe(V& v, ibv_qp_init_attr_ex& s) {
  DescribeQpInit(v, s);
  v.Flags("comp_mask", s.comp_mask, FlagSet::kQpInit);
  if (s.comp_mask & IBV_QP_INIT_ATTR_PD) v.Object("pd", s.pd);
  if (s.comp_mask & IBV_QP_INIT_ATTR_XRCD) v.Object("xrcd", s.xrcd);
  if (s.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) v.Field("create_flags", s.create_flags);
  if (s.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) v.Field("max_tso_header", s.max_tso_header);
  if (s.comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) v.Object("rwq_ind_tbl", s.rwq_ind_tbl);
  if (s.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
    v.Flags("send_ops_flags", s.send_ops_flags, FlagSet::kSendOps);
  }
}
template <class V>
void Describe(V& v, ibv_qp_open_attr& s) {
  v.Field("comp_mask", s.comp_mask);
  v.Number("qp_num", NumberOf::kQp, s.qp_num);
  v.Object("xrcd", s.xrcd);
  v.Field("qp_type", s.qp_type);
}
// Visits only the fields that the mask selects.
template <class V>
void DescribeQpAttr(V& v, ibv_qp_attr& s, int mask) {
  if (mask & IBV_QP_STATE) v.Field("qp_state", s.qp_state);
  if (mask & IBV_QP_CUR_STATE) v.Field("cur_qp_state", s.cur_qp_state);
  if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) v.Field("en_sqd_async_notify", s.en_sqd_async_notify);
  if (mask & IBV_QP_ACCESS_FLAGS) v.Flags("qp_access_flags", s.qp_access_flags, FlagSet::kAccess);
  if (mask & IBV_QP_PKEY_INDEX) v.Field("pkey_index", s.pkey_index);
  if (mask & IBV_QP_PORT) v.Field("port_num", s.port_num);
  if (mask & IBV_QP_QKEY) v.Field("qkey", s.qkey);
  if (mask & IBV_QP_AV) v.Struct("ah_attr", s.ah_attr);
  if (mask & IBV_QP_PATH_MTU) v.Field("path_mtu", s.path_mtu);
  if (mask & IBV_QP_TIMEOUT) v.Field("timeout", s.timeout);
  if (mask & IBV_QP_RETRY_CNT) v.Field("retry_cnt", s.retry_cnt);
  if (mask & IBV_QP_RNR_RETRY) v.Field("rnr_retry", s.rnr_retry);
  if (mask & IBV_QP_RQ_PSN) v.Field("rq_psn", s.rq_psn);
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) v.Field("max_rd_atomic", s.max_rd_atomic);
  if (mask & IBV_QP_ALT_PATH) v.Struct("alt_ah_attr", s.alt_ah_attr);
  if (mask & IBV_QP_MIN_RNR_TIMER) v.Field("min_rnr_timer", s.min_rnr_timer);
  if (mask & IBV_QP_SQ_PSN) v.Field("sq_psn", s.sq_psn);
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) v.Field("max_dest_rd_atomic", s.max_dest_rd_atomic);
  if (mask & IBV_QP_PATH_MIG_STATE) v.Field("path_mig_state", s.path_mig_state);
  if (mask & IBV_QP_CAP) v.Struct("cap", s.cap);
  if (mask & IBV_QP_DEST_QPN) v.Number("dest_qp_num", NumberOf::kQp, s.dest_qp_num);
  if (mask & IBV_QP_RATE_LIMIT) v.Field("rate_limit", s.rate_limit);
}
template <class V>
void Describe(V& v, ibv_srq_attr& s) {
  v.Field("max_wr", s.max_wr);
  v.Field("max_sge", s.max_sge);
  v.Field("srq_limit", s.srq_limit);
}
template <class V>
void Describe(V& v, ibv_srq_init_attr& s) {
  v.Struct("attr", s.attr);
}
template <class V>
void Describe(V& v, ibv_srq_init_attr_ex& s) {
  v.Struct("attr", s.attr);
  v.Flags("comp_mask", s.comp_mask, FlagSet::kSrqInit);
  if (s.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) v.Field("srq_type", s.srq_type);
  if (s.comp_mask & IBV_SRQ_INIT_ATTR_PD) v.Object("pd", s.pd);
  if (s.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) v.Object("xrcd", s.xrcd);
  if (s.comp_mask & IBV_SRQ_INIT_ATTR_CQ) v.Object("cq", s.cq);
}
template <class V>
void Describe(V& v, ibv_cq_init_attr_ex& s) {
  v.Field("cqe", s.cqe);
  v.Object("channel", s.channel);
  v.Field("comp_vector", s.comp_vector);
  v.Flags("wc_flags", s.wc_flags, FlagSet::kCqWc);
  v.Flags("comp_mask", s.comp_mask, FlagSet::kCqInit);
  if (s.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) v.Flags("flags", s.flags, FlagSet::kCqCreate);
  if (s.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) v.Object("parent_domain", s.parent_domain);
}
template <class V>
void Describe(V& v, ibv_modify_cq_attr& s) {
  v.Field("attr_mask", s.attr_mask);
  v.Field("cq_count", s.moderate.cq_count);
  v.Field("cq_period", s.moderate.cq_period);
}
template <class V>
void Describe(V& v, ibv_wq_init_attr& s) {
  v.Field("wq_type", s.wq_type);
  v.Field("max_wr", s.max_wr);
  v.Field("max_sge", s.max_sge);
  v.Object("pd", s.pd);
  v.Object("cq", s.cq);
  v.Field("comp_mask", s.comp_mask);
  if (s.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) v.Flags("create_flags", s.create_flags, FlagSet::kWq);
}
template <class V>
void Describe(V& v, ibv_wq_attr& s) {
  v.Flags("attr_mask", s.attr_mask, FlagSet::kWqAttr);
  if (s.attr_mask & IBV_WQ_ATTR_STATE) v.Field("wq_state", s.wq_state);
  if (s.attr_mask & IBV_WQ_ATTR_CURR_STATE) v.Field("curr_wq_state", s.curr_wq_state);
  if (s.attr_mask & IBV_WQ_ATTR_FLAGS) v.Flags("flags", s.flags, FlagSet::kWq);
}
template <class V>
void Describe(V& v, ibv_xrcd_init_attr& s) {
  v.Flags("comp_mask", s.comp_mask, FlagSet::kXrcd);
  v.Field("oflags", s.oflags);
}
template <class V>
void Describe(V& v, ibv_alloc_dm_attr& s) {
  v.Field("length", s.length);
  v.Field("log_align_req", s.log_align_req);
}
template <class V>
void Describe(V& v, ibv_parent_domain_init_attr& s) {
  v.Object("pd", s.pd);
  v.Object("td", s.td);
  v.Field("comp_mask", s.comp_mask);
}
template <class V>
void Describe(V& v, ibv_ece& s) {
  v.Field("vendor_id", s.vendor_id);
  v.Field("options", s.options);
}
template <class V>
void Describe(V& v, ibv_gid_entry& s) {
  v.Gid("gid", s.gid);
  v.Field("gid_index", s.gid_index);
  v.Field("port_num", s.port_num);
  v.Field("gid_type", s.gid_type);
}
template <class V>
void Describe(V& v, ibv_port_attr& s) {
  v.Field("state", s.state);
  v.Field("max_mtu", s.max_mtu);
  v.Field("active_mtu", s.active_mtu);
  v.Field("gid_tbl_len", s.gid_tbl_len);
  v.Flags("port_cap_flags", s.port_cap_flags, FlagSet::kPortCap);
  v.Field("max_msg_sz", s.max_msg_sz);
  v.Field("pkey_tbl_len", s.pkey_tbl_len);
  v.Field("lid", s.lid);
  v.Field("sm_lid", s.sm_lid);
  v.Field("lmc", s.lmc);
  v.Field("active_width", s.active_width);
  v.Field("active_speed", s.active_speed);
  v.Field("phys_state", s.phys_state);
  v.Field("link_layer", s.link_layer);
}
template <class V>
void Describe(V& v, ibv_device_attr& s) {
  const char* firmware = s.fw_ver;
  v.Text("fw_ver", firmware);
  v.Field("max_mr_size", s.max_mr_size);
  v.Field("vendor_id", s.vendor_id);
  v.Field("vendor_part_id", s.vendor_part_id);
  v.Field("hw_ver", s.hw_ver);
  v.Flags("device_cap_flags", s.device_cap_flags, FlagSet::kDeviceCap);
  v.Field("max_qp", s.max_qp);
  v.Field("max_qp_wr", s.max_qp_wr);
  v.Field("max_sge", s.max_sge);
  v.Field("max_sge_rd", s.max_sge_rd);
  v.Field("max_cq", s.max_cq);
  v.Field("max_cqe", s.max_cqe);
  v.Field("max_mr", s.max_mr);
  v.Field("max_pd", s.max_pd);
  v.Field("max_qp_rd_atom", s.max_qp_rd_atom);
  v.Field("max_qp_init_rd_atom", s.max_qp_init_rd_atom);
  v.Field("atomic_cap", s.atomic_cap);
  v.Field("max_mw", s.max_mw);
  v.Field("max_mcast_grp", s.max_mcast_grp);
  v.Field("max_ah", s.max_ah);
  v.Field("max_srq", s.max_srq);
  v.Field("max_srq_wr", s.max_srq_wr);
  v.Field("max_srq_sge", s.max_srq_sge);
  v.Field("max_pkeys", s.max_pkeys);
  v.Field("local_ca_ack_delay", s.local_ca_ack_delay);
  v.Field("phys_port_cnt", s.phys_port_cnt);
}
template <class V>
void Describe(V& v, ibv_device_attr_ex& s) {
  Describe(v, s.orig_attr);
}
template <class V>
void Describe(V& v, ibv_mw_bind_info& s) {
  v.Object("mr", s.mr);
  v.Memory("addr", s.addr);
  v.Field("length", s.length);
  v.Flags("mw_access_flags", s.mw_access_flags, FlagSet::kAccess);
}
template <class V>
void Describe(V& v, ibv_mw_bind& s) {
  v.Field("wr_id", s.wr_id);
  v.Flags("send_flags", s.send_flags, FlagSet::kSend);
  v.Struct("bind_info", s.bind_info);
}

// ---- work

template <class V>
void Describe(V& v, ibv_sge& s) {
  v.Memory("addr", s.addr);
  v.Field("length", s.length);
  v.Number("lkey", NumberOf::kLkey, s.lkey);
}
template <class V>
void Describe(V& v, ibv_data_buf& s) {
  v.Memory("addr", s.addr);
  v.Field("length", s.length);
}
template <class V>
void Describe(V& v, ibv_recv_wr& s) {
  v.Field("wr_id", s.wr_id);
  v.Array("sg_list", s.sg_list, s.num_sge);
}
template <class V>
void DescribeOperation(V& v, ibv_send_wr& s) {
  switch (s.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
      v.Memory("remote_addr", s.wr.rdma.remote_addr);
      v.Number("rkey", NumberOf::kRkey, s.wr.rdma.rkey);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      v.Memory("remote_addr", s.wr.atomic.remote_addr);
      v.Field("compare_add", s.wr.atomic.compare_add);
      v.Field("swap", s.wr.atomic.swap);
      v.Number("rkey", NumberOf::kRkey, s.wr.atomic.rkey);
      break;
    case IBV_WR_BIND_MW:
      v.Object("mw", s.bind_mw.mw);
      v.Number("rkey", NumberOf::kRkey, s.bind_mw.rkey);
      v.Struct("bind_info", s.bind_mw.bind_info);
      break;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_SEND_WITH_INV:
      v.Number("invalidate_rkey", NumberOf::kRkey, s.invalidate_rkey);
      break;
    default:
      break;
  }
}
// `is_datagram`: the queue pair is UD, so each send has an address.
template <class V>
void DescribeSend(V& v, ibv_send_wr& s, bool is_datagram) {
  v.Field("wr_id", s.wr_id);
  v.Field("opcode", s.opcode);
  v.Flags("send_flags", s.send_flags, FlagSet::kSend);
  v.Array("sg_list", s.sg_list, s.num_sge);
  v.Payload();
  if (s.opcode == IBV_WR_SEND_WITH_IMM || s.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    v.Big("imm_data", s.imm_data);
  }
  DescribeOperation(v, s);
  if (!is_datagram) return;
  v.Object("ah", s.wr.ud.ah);
  v.Number("remote_qpn", NumberOf::kQp, s.wr.ud.remote_qpn);
  v.Field("remote_qkey", s.wr.ud.remote_qkey);
}
template <class V>
void Describe(V& v, ibv_wc& s) {
  v.Field("wr_id", s.wr_id);
  v.Field("status", s.status);
  v.Number("qp_num", NumberOf::kQp, s.qp_num);
  if (s.status != IBV_WC_SUCCESS) {
    v.Field("vendor_err", s.vendor_err);
    return;
  }
  v.Field("opcode", s.opcode);
  v.Field("byte_len", s.byte_len);
  v.Flags("wc_flags", s.wc_flags, FlagSet::kWc);
  if (s.wc_flags & IBV_WC_WITH_IMM) v.Big("imm_data", s.imm_data);
  if (s.wc_flags & IBV_WC_WITH_INV) {
    v.Number("invalidated_rkey", NumberOf::kRkey, s.invalidated_rkey);
  }
  if (s.wc_flags & IBV_WC_GRH) v.Number("src_qp", NumberOf::kQp, s.src_qp);
}

// ---- connection management

template <class V>
void Describe(V& v, rdma_conn_param& s) {
  v.Bytes("private_data", s.private_data, s.private_data_len);
  v.Field("responder_resources", s.responder_resources);
  v.Field("initiator_depth", s.initiator_depth);
  v.Field("flow_control", s.flow_control);
  v.Field("retry_count", s.retry_count);
  v.Field("rnr_retry_count", s.rnr_retry_count);
  v.Field("srq", s.srq);
  v.Number("qp_num", NumberOf::kQp, s.qp_num);
}
template <class V>
void Describe(V& v, rdma_ud_param& s) {
  v.Bytes("private_data", s.private_data, s.private_data_len);
  v.Struct("ah_attr", s.ah_attr);
  v.Number("qp_num", NumberOf::kQp, s.qp_num);
  v.Field("qkey", s.qkey);
}
template <class V>
void Describe(V& v, rdma_addrinfo& s) {
  v.Flags("ai_flags", s.ai_flags, FlagSet::kAddrinfo);
  v.Field("ai_family", s.ai_family);
  v.Field("ai_qp_type", s.ai_qp_type);
  v.Field("ai_port_space", s.ai_port_space);
  v.Address("ai_src_addr", s.ai_src_addr);
  v.Address("ai_dst_addr", s.ai_dst_addr);
  v.Bytes("ai_connect", s.ai_connect, s.ai_connect_len);
}
template <class V>
void Describe(V& v, rdma_cm_join_mc_attr_ex& s) {
  v.Field("comp_mask", s.comp_mask);
  v.Field("join_flags", s.join_flags);
  v.Address("addr", s.addr);
}
// Visits all fields of an event but its type. `is_datagram`: the id's port space is UDP or IPoIB.
template <class V>
void DescribeEvent(V& v, rdma_cm_event& s, bool is_datagram) {
  v.Field("status", s.status);
  v.Object("listen_id", s.listen_id);
  switch (s.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_ESTABLISHED:
      if (is_datagram) {
        v.Struct("ud", s.param.ud);
      } else {
        v.Struct("conn", s.param.conn);
      }
      break;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      v.Struct("ud", s.param.ud);
      break;
    default:
      break;
  }
}

// ---- objects after a call that changed them

template <class V>
void DescribeAfter(V& v, rdma_cm_id& s) {
  v.Object("verbs", s.verbs);
  v.Object("pd", s.pd);
  v.Object("send_cq_channel", s.send_cq_channel);
  v.Object("send_cq", s.send_cq);
  v.Object("recv_cq_channel", s.recv_cq_channel);
  v.Object("recv_cq", s.recv_cq);
  v.Object("srq", s.srq);
  v.Object("qp", s.qp);
}

template <class T>
concept Described = requires(T& value) {
  Describe(std::declval<struct AnyVisitor&>(), value);
};

}  // namespace rdmaemu::layer::trace
