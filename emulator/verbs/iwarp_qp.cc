// Queue pairs of a device whose connection manager is the kernel's iw_cm. The manager moves the QPs
// (siw_accept, siw_connect, siw_qp_cm_drop). A program can only request INIT, RTR and ERR.
#include "emulator/verbs/verbs_objects.h"

namespace rdmaemu {
namespace {

// TCP retransmits for minutes, and waits without limit until a receiver posts a receive.
constexpr uint8_t kAckTimeout = 14;  // 67 ms
constexpr uint8_t kRetries = 7, kRnrRetries = 7;
constexpr uint8_t kRnrTimer = 12;  // 0.64 ms

bool IsConnectable(const QueuePair& qp) {
  return qp.type == IBV_QPT_RC && qp.state() <= IBV_QPS_RTR;
}

}  // namespace

// siw_verbs_modify_qp: only the state and the access rights count.
Status Verbs::ModifyIwarpQp(Time now, QueuePair& qp, int mask, const ibv_qp_attr& attr) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) qp.attr.qp_access_flags = attr.qp_access_flags;
  if ((mask & IBV_QP_STATE) == 0) return {};
  switch (attr.qp_state) {
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      // In siw the QP is idle in both states until there is a connection. A call after the manager
      // has moved the QP changes nothing.
      if (qp.state() == IBV_QPS_RESET) SetQpState(now, qp, IBV_QPS_INIT);
      return {};
    case IBV_QPS_RTS:
      // Without a connection there is no path to send on.
      if (qp.state() == IBV_QPS_RTS) return {};
      return Fail(EINVAL);
    case IBV_QPS_RESET:
      SetQpState(now, qp, IBV_QPS_RESET);
      return {};
    default:  // siw's closing and terminating states end as an error does
      if (qp.state() != IBV_QPS_ERR) SetQpState(now, qp, IBV_QPS_ERR);
      return {};
  }
}

Status Verbs::CheckConnectable(GroupId group, const NetAddress& local, uint32_t qpn) {
  const QueuePair* qp = FindQp(local, qpn);
  if (qp == nullptr || qp->group() != group || !IsConnectable(*qp)) return Fail(EINVAL);
  return {};
}

Status Verbs::ConnectQp(Time now, GroupId group, uint32_t qpn, const QpConnection& connection) {
  const Status connectable = CheckConnectable(group, connection.local, qpn);
  if (!connectable) return connectable;
  QueuePair& qp = *FindQp(connection.local, qpn);
  qp.path = {};
  qp.path.source = connection.local;
  qp.path.destination = connection.remote;
  qp.path.traffic_class = connection.traffic_class;
  ibv_qp_attr& attr = qp.attr;
  attr.port_num = Device::kPort;
  // Both directions are always allowed: only the regions' rights count on iWARP (siw_check_mem).
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  attr.path_mtu = qp.device->active_mtu;
  attr.dest_qp_num = connection.remote_qpn;
  attr.rq_psn = connection.rq_psn;
  attr.sq_psn = connection.sq_psn;
  attr.max_rd_atomic = RoundedReads(connection.initiator_depth);
  attr.max_dest_rd_atomic = RoundedReads(connection.responder_resources);
  attr.timeout = kAckTimeout;
  attr.retry_cnt = kRetries;
  attr.rnr_retry = kRnrRetries;
  attr.min_rnr_timer = kRnrTimer;
  if (qp.state() == IBV_QPS_RESET) SetQpState(now, qp, IBV_QPS_INIT);
  SetQpState(now, qp, IBV_QPS_RTR);
  SetQpState(now, qp, IBV_QPS_RTS);
  return {};
}

void Verbs::DisconnectQp(Time now, GroupId group, const NetAddress& local, uint32_t qpn) {
  QueuePair* qp = FindQp(local, qpn);
  if (qp != nullptr && qp->group() == group) FailQp(now, *qp);
}

}  // namespace rdmaemu
