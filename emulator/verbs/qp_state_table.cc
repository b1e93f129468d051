#include "emulator/verbs/qp_state_table.h"

namespace rdmaemu {
namespace {

// Masks of one transition for one type.
struct Attributes {
  int required = 0, optional = 0;
};
struct Transition {
  ibv_qp_state from, to;
  Attributes rc, uc, ud;
};

constexpr int kUdKeys = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
constexpr int kUdInit = kUdKeys | IBV_QP_PORT;
constexpr int kConnectedInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kUcRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRcRtr = kUcRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRcRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kUdRts = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int kUcRts =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kRcRtsOptional = kUcRts | IBV_QP_MIN_RNR_TIMER;
constexpr int kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kUcSqd =
    IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
constexpr int kRcSqd = kUcSqd | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

// The table omits two transitions that take no attribute: to RESET from any state, and to ERR from
// any state but RESET.
constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {kConnectedInit, 0}, {kConnectedInit, 0}, {kUdInit, 0}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {0, kConnectedInit}, {0, kConnectedInit}, {0, kUdInit}},
    {IBV_QPS_INIT, IBV_QPS_RTR, {kRcRtr, kRtrOptional}, {kUcRtr, kRtrOptional}, {0, kUdKeys}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {kRcRts, kRcRtsOptional},
     {IBV_QP_SQ_PSN, kUcRts},
     {IBV_QP_SQ_PSN, kUdRts}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {0, kRcRtsOptional}, {0, kUcRts}, {0, kUdRts}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {0, kNotify}, {0, kNotify}, {0, kNotify}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {0, kRcRtsOptional}, {0, kUcRts}, {0, kUdRts}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {0, kRcSqd}, {0, kUcSqd}, {0, kUdKeys}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {0, 0}, {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS}, {0, kUdRts}},
};

bool Fits(const Attributes& attributes, int mask) {
  return (mask & attributes.required) == attributes.required &&
         (mask & ~(attributes.required | attributes.optional | IBV_QP_STATE)) == 0;
}

}  // namespace

bool QpTransitionAllowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  if ((mask & IBV_QP_CUR_STATE) != 0 && (from < IBV_QPS_RTR || from > IBV_QPS_SQE)) return false;
  if (to == IBV_QPS_RESET) return Fits({}, mask);
  if (to == IBV_QPS_ERR) return from != IBV_QPS_RESET && Fits({}, mask);
  for (const Transition& transition : kTransitions) {
    if (transition.from != from || transition.to != to) continue;
    return Fits(type == IBV_QPT_RC   ? transition.rc
                : type == IBV_QPT_UC ? transition.uc
                                     : transition.ud,
                mask);
  }
  return false;
}

}  // namespace rdmaemu
