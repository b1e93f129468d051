#include "tools/cli/program_trace/constants.h"

#include <algorithm>

#include "emulator/base/newer_verbs.h"

// A constant. Its name in a trace is its own name without the prefix.
#define NAMED(prefix, name) \
  { static_cast<uint64_t>(prefix##name), #name }

namespace rdmaemu::cli {
namespace {

constexpr Constant kIbvQpState[] = {
    NAMED(IBV_QPS_, RESET), NAMED(IBV_QPS_, INIT), NAMED(IBV_QPS_, RTR), NAMED(IBV_QPS_, RTS),
    NAMED(IBV_QPS_, SQD),   NAMED(IBV_QPS_, SQE),  NAMED(IBV_QPS_, ERR), NAMED(IBV_QPS_, UNKNOWN),
};
constexpr Constant kIbvQpType[] = {
    NAMED(IBV_QPT_, RC),         NAMED(IBV_QPT_, UC),       NAMED(IBV_QPT_, UD),
    NAMED(IBV_QPT_, RAW_PACKET), NAMED(IBV_QPT_, XRC_SEND), NAMED(IBV_QPT_, XRC_RECV),
    NAMED(IBV_QPT_, DRIVER),
};
constexpr Constant kIbvMtu[] = {
    {IBV_MTU_256, "256"},   {IBV_MTU_512, "512"},   {IBV_MTU_1024, "1024"},
    {IBV_MTU_2048, "2048"}, {IBV_MTU_4096, "4096"},
};
constexpr Constant kIbvMigState[] = {
    NAMED(IBV_MIG_, MIGRATED),
    NAMED(IBV_MIG_, REARM),
    NAMED(IBV_MIG_, ARMED),
};
constexpr Constant kIbvWrOpcode[] = {
    NAMED(IBV_WR_, RDMA_WRITE),
    NAMED(IBV_WR_, RDMA_WRITE_WITH_IMM),
    NAMED(IBV_WR_, SEND),
    NAMED(IBV_WR_, SEND_WITH_IMM),
    NAMED(IBV_WR_, RDMA_READ),
    NAMED(IBV_WR_, ATOMIC_CMP_AND_SWP),
    NAMED(IBV_WR_, ATOMIC_FETCH_AND_ADD),
    NAMED(IBV_WR_, LOCAL_INV),
    NAMED(IBV_WR_, BIND_MW),
    NAMED(IBV_WR_, SEND_WITH_INV),
    NAMED(IBV_WR_, TSO),
    NAMED(IBV_WR_, DRIVER1),
    {kWrFlush, "FLUSH"},
    NAMED(IBV_WR_, ATOMIC_WRITE),
};
constexpr Constant kIbvWcOpcode[] = {
    NAMED(IBV_WC_, SEND),         NAMED(IBV_WC_, RDMA_WRITE), NAMED(IBV_WC_, RDMA_READ),
    NAMED(IBV_WC_, COMP_SWAP),    NAMED(IBV_WC_, FETCH_ADD),  NAMED(IBV_WC_, BIND_MW),
    NAMED(IBV_WC_, LOCAL_INV),    NAMED(IBV_WC_, TSO),        {kWcFlush, "FLUSH"},
    NAMED(IBV_WC_, ATOMIC_WRITE), NAMED(IBV_WC_, RECV),       NAMED(IBV_WC_, RECV_RDMA_WITH_IMM),
    NAMED(IBV_WC_, TM_ADD),       NAMED(IBV_WC_, TM_DEL),     NAMED(IBV_WC_, TM_SYNC),
    NAMED(IBV_WC_, TM_RECV),      NAMED(IBV_WC_, TM_NO_TAG),  NAMED(IBV_WC_, DRIVER1),
    NAMED(IBV_WC_, DRIVER2),      NAMED(IBV_WC_, DRIVER3),
};
constexpr Constant kIbvWcStatus[] = {
    NAMED(IBV_WC_, SUCCESS),
    NAMED(IBV_WC_, LOC_LEN_ERR),
    NAMED(IBV_WC_, LOC_QP_OP_ERR),
    NAMED(IBV_WC_, LOC_EEC_OP_ERR),
    NAMED(IBV_WC_, LOC_PROT_ERR),
    NAMED(IBV_WC_, WR_FLUSH_ERR),
    NAMED(IBV_WC_, MW_BIND_ERR),
    NAMED(IBV_WC_, BAD_RESP_ERR),
    NAMED(IBV_WC_, LOC_ACCESS_ERR),
    NAMED(IBV_WC_, REM_INV_REQ_ERR),
    NAMED(IBV_WC_, REM_ACCESS_ERR),
    NAMED(IBV_WC_, REM_OP_ERR),
    NAMED(IBV_WC_, RETRY_EXC_ERR),
    NAMED(IBV_WC_, RNR_RETRY_EXC_ERR),
    NAMED(IBV_WC_, LOC_RDD_VIOL_ERR),
    NAMED(IBV_WC_, REM_INV_RD_REQ_ERR),
    NAMED(IBV_WC_, REM_ABORT_ERR),
    NAMED(IBV_WC_, INV_EECN_ERR),
    NAMED(IBV_WC_, INV_EEC_STATE_ERR),
    NAMED(IBV_WC_, FATAL_ERR),
    NAMED(IBV_WC_, RESP_TIMEOUT_ERR),
    NAMED(IBV_WC_, GENERAL_ERR),
    NAMED(IBV_WC_, TM_ERR),
    NAMED(IBV_WC_, TM_RNDV_INCOMPLETE),
};
constexpr Constant kIbvEventType[] = {
    NAMED(IBV_EVENT_, CQ_ERR),
    NAMED(IBV_EVENT_, QP_FATAL),
    NAMED(IBV_EVENT_, QP_REQ_ERR),
    NAMED(IBV_EVENT_, QP_ACCESS_ERR),
    NAMED(IBV_EVENT_, COMM_EST),
    NAMED(IBV_EVENT_, SQ_DRAINED),
    NAMED(IBV_EVENT_, PATH_MIG),
    NAMED(IBV_EVENT_, PATH_MIG_ERR),
    NAMED(IBV_EVENT_, DEVICE_FATAL),
    NAMED(IBV_EVENT_, PORT_ACTIVE),
    NAMED(IBV_EVENT_, PORT_ERR),
    NAMED(IBV_EVENT_, LID_CHANGE),
    NAMED(IBV_EVENT_, PKEY_CHANGE),
    NAMED(IBV_EVENT_, SM_CHANGE),
    NAMED(IBV_EVENT_, SRQ_ERR),
    NAMED(IBV_EVENT_, SRQ_LIMIT_REACHED),
    NAMED(IBV_EVENT_, QP_LAST_WQE_REACHED),
    NAMED(IBV_EVENT_, CLIENT_REREGISTER),
    NAMED(IBV_EVENT_, GID_CHANGE),
    NAMED(IBV_EVENT_, WQ_FATAL),
};
constexpr Constant kRdmaCmEventType[] = {
    NAMED(RDMA_CM_EVENT_, ADDR_RESOLVED),   NAMED(RDMA_CM_EVENT_, ADDR_ERROR),
    NAMED(RDMA_CM_EVENT_, ROUTE_RESOLVED),  NAMED(RDMA_CM_EVENT_, ROUTE_ERROR),
    NAMED(RDMA_CM_EVENT_, CONNECT_REQUEST), NAMED(RDMA_CM_EVENT_, CONNECT_RESPONSE),
    NAMED(RDMA_CM_EVENT_, CONNECT_ERROR),   NAMED(RDMA_CM_EVENT_, UNREACHABLE),
    NAMED(RDMA_CM_EVENT_, REJECTED),        NAMED(RDMA_CM_EVENT_, ESTABLISHED),
    NAMED(RDMA_CM_EVENT_, DISCONNECTED),    NAMED(RDMA_CM_EVENT_, DEVICE_REMOVAL),
    NAMED(RDMA_CM_EVENT_, MULTICAST_JOIN),  NAMED(RDMA_CM_EVENT_, MULTICAST_ERROR),
    NAMED(RDMA_CM_EVENT_, ADDR_CHANGE),     NAMED(RDMA_CM_EVENT_, TIMEWAIT_EXIT),
};
constexpr Constant kRdmaPortSpace[] = {
    NAMED(RDMA_PS_, IPOIB),
    NAMED(RDMA_PS_, TCP),
    NAMED(RDMA_PS_, UDP),
    NAMED(RDMA_PS_, IB),
};
constexpr Constant kIbvSrqType[] = {
    NAMED(IBV_SRQT_, BASIC),
    NAMED(IBV_SRQT_, XRC),
    NAMED(IBV_SRQT_, TM),
};
constexpr Constant kIbvMwType[] = {
    NAMED(IBV_MW_, TYPE_1),
    NAMED(IBV_MW_, TYPE_2),
};
constexpr Constant kIbvPortState[] = {
    NAMED(IBV_PORT_, NOP),   NAMED(IBV_PORT_, DOWN),   NAMED(IBV_PORT_, INIT),
    NAMED(IBV_PORT_, ARMED), NAMED(IBV_PORT_, ACTIVE), NAMED(IBV_PORT_, ACTIVE_DEFER),
};
constexpr Constant kIbvAtomicCap[] = {
    NAMED(IBV_ATOMIC_, NONE),
    NAMED(IBV_ATOMIC_, HCA),
    NAMED(IBV_ATOMIC_, GLOB),
};
constexpr Constant kIbvWqState[] = {
    NAMED(IBV_WQS_, RESET),
    NAMED(IBV_WQS_, RDY),
    NAMED(IBV_WQS_, ERR),
    NAMED(IBV_WQS_, UNKNOWN),
};
constexpr Constant kIbvForkStatus[] = {
    NAMED(IBV_FORK_, DISABLED),
    NAMED(IBV_FORK_, ENABLED),
    NAMED(IBV_FORK_, UNNEEDED),
};
constexpr Constant kAccessFlags[] = {
    NAMED(IBV_ACCESS_, LOCAL_WRITE),      NAMED(IBV_ACCESS_, REMOTE_WRITE),
    NAMED(IBV_ACCESS_, REMOTE_READ),      NAMED(IBV_ACCESS_, REMOTE_ATOMIC),
    NAMED(IBV_ACCESS_, MW_BIND),          NAMED(IBV_ACCESS_, ZERO_BASED),
    NAMED(IBV_ACCESS_, ON_DEMAND),        NAMED(IBV_ACCESS_, HUGETLB),
    NAMED(IBV_ACCESS_, RELAXED_ORDERING),
};
constexpr Constant kQpAttrFlags[] = {
    NAMED(IBV_QP_, STATE),
    NAMED(IBV_QP_, CUR_STATE),
    NAMED(IBV_QP_, EN_SQD_ASYNC_NOTIFY),
    NAMED(IBV_QP_, ACCESS_FLAGS),
    NAMED(IBV_QP_, PKEY_INDEX),
    NAMED(IBV_QP_, PORT),
    NAMED(IBV_QP_, QKEY),
    NAMED(IBV_QP_, AV),
    NAMED(IBV_QP_, PATH_MTU),
    NAMED(IBV_QP_, TIMEOUT),
    NAMED(IBV_QP_, RETRY_CNT),
    NAMED(IBV_QP_, RNR_RETRY),
    NAMED(IBV_QP_, RQ_PSN),
    NAMED(IBV_QP_, MAX_QP_RD_ATOMIC),
    NAMED(IBV_QP_, ALT_PATH),
    NAMED(IBV_QP_, MIN_RNR_TIMER),
    NAMED(IBV_QP_, SQ_PSN),
    NAMED(IBV_QP_, MAX_DEST_RD_ATOMIC),
    NAMED(IBV_QP_, PATH_MIG_STATE),
    NAMED(IBV_QP_, CAP),
    NAMED(IBV_QP_, DEST_QPN),
    NAMED(IBV_QP_, RATE_LIMIT),
};
constexpr Constant kSrqAttrFlags[] = {
    NAMED(IBV_SRQ_, MAX_WR),
    NAMED(IBV_SRQ_, LIMIT),
};
constexpr Constant kSendFlags[] = {
    NAMED(IBV_SEND_, FENCE),  NAMED(IBV_SEND_, SIGNALED), NAMED(IBV_SEND_, SOLICITED),
    NAMED(IBV_SEND_, INLINE), NAMED(IBV_SEND_, IP_CSUM),
};
constexpr Constant kWcFlags[] = {
    NAMED(IBV_WC_, GRH),           NAMED(IBV_WC_, WITH_IMM),    NAMED(IBV_WC_, IP_CSUM_OK),
    NAMED(IBV_WC_, WITH_INV),      NAMED(IBV_WC_, TM_SYNC_REQ), NAMED(IBV_WC_, TM_MATCH),
    NAMED(IBV_WC_, TM_DATA_VALID),
};
constexpr Constant kCqWcFlags[] = {
    NAMED(IBV_WC_EX_, WITH_BYTE_LEN),       NAMED(IBV_WC_EX_, WITH_IMM),
    NAMED(IBV_WC_EX_, WITH_QP_NUM),         NAMED(IBV_WC_EX_, WITH_SRC_QP),
    NAMED(IBV_WC_EX_, WITH_SLID),           NAMED(IBV_WC_EX_, WITH_SL),
    NAMED(IBV_WC_EX_, WITH_DLID_PATH_BITS), NAMED(IBV_WC_EX_, WITH_COMPLETION_TIMESTAMP),
    NAMED(IBV_WC_EX_, WITH_CVLAN),          NAMED(IBV_WC_EX_, WITH_FLOW_TAG),
    NAMED(IBV_WC_EX_, WITH_TM_INFO),        NAMED(IBV_WC_EX_, WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
};
constexpr Constant kCqInitFlags[] = {
    NAMED(IBV_CQ_INIT_ATTR_MASK_, FLAGS),
    NAMED(IBV_CQ_INIT_ATTR_MASK_, PD),
};
constexpr Constant kCqCreateFlags[] = {
    NAMED(IBV_CREATE_CQ_ATTR_, SINGLE_THREADED),
    NAMED(IBV_CREATE_CQ_ATTR_, IGNORE_OVERRUN),
};
constexpr Constant kQpInitFlags[] = {
    NAMED(IBV_QP_INIT_ATTR_, PD),
    NAMED(IBV_QP_INIT_ATTR_, XRCD),
    NAMED(IBV_QP_INIT_ATTR_, CREATE_FLAGS),
    NAMED(IBV_QP_INIT_ATTR_, MAX_TSO_HEADER),
    NAMED(IBV_QP_INIT_ATTR_, IND_TABLE),
    NAMED(IBV_QP_INIT_ATTR_, RX_HASH),
    NAMED(IBV_QP_INIT_ATTR_, SEND_OPS_FLAGS),
};
constexpr Constant kSendOpsFlags[] = {
    NAMED(IBV_QP_EX_, WITH_RDMA_WRITE),
    NAMED(IBV_QP_EX_, WITH_RDMA_WRITE_WITH_IMM),
    NAMED(IBV_QP_EX_, WITH_SEND),
    NAMED(IBV_QP_EX_, WITH_SEND_WITH_IMM),
    NAMED(IBV_QP_EX_, WITH_RDMA_READ),
    NAMED(IBV_QP_EX_, WITH_ATOMIC_CMP_AND_SWP),
    NAMED(IBV_QP_EX_, WITH_ATOMIC_FETCH_AND_ADD),
    NAMED(IBV_QP_EX_, WITH_LOCAL_INV),
    NAMED(IBV_QP_EX_, WITH_BIND_MW),
    NAMED(IBV_QP_EX_, WITH_SEND_WITH_INV),
    NAMED(IBV_QP_EX_, WITH_TSO),
    {kQpExWithFlush, "WITH_FLUSH"},
    NAMED(IBV_QP_EX_, WITH_ATOMIC_WRITE),
};
constexpr Constant kSrqInitFlags[] = {
    NAMED(IBV_SRQ_INIT_ATTR_, TYPE), NAMED(IBV_SRQ_INIT_ATTR_, PD), NAMED(IBV_SRQ_INIT_ATTR_, XRCD),
    NAMED(IBV_SRQ_INIT_ATTR_, CQ),   NAMED(IBV_SRQ_INIT_ATTR_, TM),
};
constexpr Constant kReregFlags[] = {
    NAMED(IBV_REREG_MR_, CHANGE_TRANSLATION),
    NAMED(IBV_REREG_MR_, CHANGE_PD),
    NAMED(IBV_REREG_MR_, CHANGE_ACCESS),
};
constexpr Constant kDeviceCapFlags[] = {
    NAMED(IBV_DEVICE_, RESIZE_MAX_WR),      NAMED(IBV_DEVICE_, BAD_PKEY_CNTR),
    NAMED(IBV_DEVICE_, BAD_QKEY_CNTR),      NAMED(IBV_DEVICE_, RAW_MULTI),
    NAMED(IBV_DEVICE_, AUTO_PATH_MIG),      NAMED(IBV_DEVICE_, CHANGE_PHY_PORT),
    NAMED(IBV_DEVICE_, UD_AV_PORT_ENFORCE), NAMED(IBV_DEVICE_, CURR_QP_STATE_MOD),
    NAMED(IBV_DEVICE_, SHUTDOWN_PORT),      NAMED(IBV_DEVICE_, INIT_TYPE),
    NAMED(IBV_DEVICE_, PORT_ACTIVE_EVENT),  NAMED(IBV_DEVICE_, SYS_IMAGE_GUID),
    NAMED(IBV_DEVICE_, RC_RNR_NAK_GEN),     NAMED(IBV_DEVICE_, SRQ_RESIZE),
    NAMED(IBV_DEVICE_, N_NOTIFY_CQ),        NAMED(IBV_DEVICE_, MEM_WINDOW),
    NAMED(IBV_DEVICE_, UD_IP_CSUM),         NAMED(IBV_DEVICE_, XRC),
    NAMED(IBV_DEVICE_, MEM_MGT_EXTENSIONS), NAMED(IBV_DEVICE_, MEM_WINDOW_TYPE_2A),
    NAMED(IBV_DEVICE_, MEM_WINDOW_TYPE_2B), NAMED(IBV_DEVICE_, RC_IP_CSUM),
    NAMED(IBV_DEVICE_, RAW_IP_CSUM),        NAMED(IBV_DEVICE_, MANAGED_FLOW_STEERING),
};
constexpr Constant kPortCapFlags[] = {
    NAMED(IBV_PORT_, SM),
    NAMED(IBV_PORT_, NOTICE_SUP),
    NAMED(IBV_PORT_, TRAP_SUP),
    NAMED(IBV_PORT_, OPT_IPD_SUP),
    NAMED(IBV_PORT_, AUTO_MIGR_SUP),
    NAMED(IBV_PORT_, SL_MAP_SUP),
    NAMED(IBV_PORT_, MKEY_NVRAM),
    NAMED(IBV_PORT_, PKEY_NVRAM),
    NAMED(IBV_PORT_, LED_INFO_SUP),
    NAMED(IBV_PORT_, SYS_IMAGE_GUID_SUP),
    NAMED(IBV_PORT_, PKEY_SW_EXT_PORT_TRAP_SUP),
    NAMED(IBV_PORT_, EXTENDED_SPEEDS_SUP),
    NAMED(IBV_PORT_, CAP_MASK2_SUP),
    NAMED(IBV_PORT_, CM_SUP),
    NAMED(IBV_PORT_, SNMP_TUNNEL_SUP),
    NAMED(IBV_PORT_, REINIT_SUP),
    NAMED(IBV_PORT_, DEVICE_MGMT_SUP),
    NAMED(IBV_PORT_, VENDOR_CLASS_SUP),
    NAMED(IBV_PORT_, DR_NOTICE_SUP),
    NAMED(IBV_PORT_, CAP_MASK_NOTICE_SUP),
    NAMED(IBV_PORT_, BOOT_MGMT_SUP),
    NAMED(IBV_PORT_, LINK_LATENCY_SUP),
    NAMED(IBV_PORT_, CLIENT_REG_SUP),
    NAMED(IBV_PORT_, IP_BASED_GIDS),
};
constexpr Constant kWqFlags[] = {
    NAMED(IBV_WQ_FLAGS_, CVLAN_STRIPPING),
    NAMED(IBV_WQ_FLAGS_, SCATTER_FCS),
    NAMED(IBV_WQ_FLAGS_, DELAY_DROP),
    NAMED(IBV_WQ_FLAGS_, PCI_WRITE_END_PADDING),
};
constexpr Constant kWqAttrFlags[] = {
    NAMED(IBV_WQ_ATTR_, STATE),
    NAMED(IBV_WQ_ATTR_, CURR_STATE),
    NAMED(IBV_WQ_ATTR_, FLAGS),
};
constexpr Constant kXrcdFlags[] = {
    NAMED(IBV_XRCD_INIT_ATTR_, FD),
    NAMED(IBV_XRCD_INIT_ATTR_, OFLAGS),
};
constexpr Constant kAddrinfoFlags[] = {
    NAMED(RAI_, PASSIVE),
    NAMED(RAI_, NUMERICHOST),
    NAMED(RAI_, NOROUTE),
    NAMED(RAI_, FAMILY),
};

}  // namespace

std::string_view NameIn(std::span<const Constant> constants, uint64_t value) {
  const auto found = std::ranges::find(constants, value, &Constant::value);
  return found == constants.end() ? std::string_view() : found->name;
}

std::span<const Constant> ConstantsOf(ibv_qp_state) { return kIbvQpState; }
std::span<const Constant> ConstantsOf(ibv_qp_type) { return kIbvQpType; }
std::span<const Constant> ConstantsOf(ibv_mtu) { return kIbvMtu; }
std::span<const Constant> ConstantsOf(ibv_mig_state) { return kIbvMigState; }
std::span<const Constant> ConstantsOf(ibv_wr_opcode) { return kIbvWrOpcode; }
std::span<const Constant> ConstantsOf(ibv_wc_opcode) { return kIbvWcOpcode; }
std::span<const Constant> ConstantsOf(ibv_wc_status) { return kIbvWcStatus; }
std::span<const Constant> ConstantsOf(ibv_event_type) { return kIbvEventType; }
std::span<const Constant> ConstantsOf(rdma_cm_event_type) { return kRdmaCmEventType; }
std::span<const Constant> ConstantsOf(rdma_port_space) { return kRdmaPortSpace; }
std::span<const Constant> ConstantsOf(ibv_srq_type) { return kIbvSrqType; }
std::span<const Constant> ConstantsOf(ibv_mw_type) { return kIbvMwType; }
std::span<const Constant> ConstantsOf(ibv_port_state) { return kIbvPortState; }
std::span<const Constant> ConstantsOf(ibv_atomic_cap) { return kIbvAtomicCap; }
std::span<const Constant> ConstantsOf(ibv_wq_state) { return kIbvWqState; }
std::span<const Constant> ConstantsOf(ibv_fork_status) { return kIbvForkStatus; }

std::span<const Constant> FlagsOf(layer::trace::FlagSet set) {
  using enum layer::trace::FlagSet;
  switch (set) {
    case kAccess:
      return kAccessFlags;
    case kQpAttr:
      return kQpAttrFlags;
    case kSrqAttr:
      return kSrqAttrFlags;
    case kSend:
      return kSendFlags;
    case kWc:
      return kWcFlags;
    case kCqWc:
      return kCqWcFlags;
    case kCqInit:
      return kCqInitFlags;
    case kCqCreate:
      return kCqCreateFlags;
    case kQpInit:
      return kQpInitFlags;
    case kSendOps:
      return kSendOpsFlags;
    case kSrqInit:
      return kSrqInitFlags;
    case kRereg:
      return kReregFlags;
    case kDeviceCap:
      return kDeviceCapFlags;
    case kPortCap:
      return kPortCapFlags;
    case kWq:
      return kWqFlags;
    case kWqAttr:
      return kWqAttrFlags;
    case kXrcd:
      return kXrcdFlags;
    case kAddrinfo:
      return kAddrinfoFlags;
    case kMcast:
    case kNone:
      break;
  }
  return {};
}

}  // namespace rdmaemu::cli
