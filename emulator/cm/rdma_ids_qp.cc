// QP attributes of ids: attributes for each state, address vectors, Q_Keys (rdma_init_qp_attr,
// cm_init_qp_*_attr of the kernel).
#include <algorithm>
#include <cstring>

#include "emulator/cm/rdma_ids.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::cm {

namespace {

// The Q_Key of OpenSM's IPoIB broadcast group (OSM_IPOIB_BROADCAST_MGRP_QKEY).
constexpr uint32_t kIpoibQkey = 0x0b1b;

// Returns true in states where the connection has the remote end's values.
bool KnowsRemote(IbCmState state) {
  switch (state) {
    case IbCmState::kReqReceived:
    case IbCmState::kMraReqSent:
    case IbCmState::kRepReceived:
    case IbCmState::kMraRepSent:
    case IbCmState::kRepSent:
    case IbCmState::kMraRepReceived:
    case IbCmState::kEstablished:
      return true;
    default:
      return false;
  }
}

bool MayInit(IbCmState state) {
  return KnowsRemote(state) || state == IbCmState::kReqSent || state == IbCmState::kMraReqReceived;
}

}  // namespace

// cma_set_default_qkey. Only an id with an IPoIB interface has a broadcast group.
Status RdmaIds::SetDefaultQkey(CmaId& id) {
  if (id.port_space == RDMA_PS_UDP || id.port_space == RDMA_PS_IB) {
    id.qkey = id.device->local.profile.ud_qkey;
  } else if (id.port_space == RDMA_PS_IPOIB && id.HasLids()) {
    if (!id.on_link) return Fail(EADDRNOTAVAIL);
    id.qkey = kIpoibQkey;
  }
  return {};
}

ib_uverbs_ah_attr RdmaIds::MakeAh(const CmaId& id, const NetAddress& local,
                                  const NetAddress& remote, uint32_t flow_label, uint8_t hop_limit,
                                  uint8_t traffic_class) const {
  ib_uverbs_ah_attr ah = {};
  std::ranges::copy(remote.bytes, ah.grh.dgid);
  ah.grh.flow_label = flow_label;
  ah.grh.sgid_index = addresses_.GidIndexOf(local);
  ah.grh.hop_limit = hop_limit;
  ah.grh.traffic_class = traffic_class;
  ah.is_global = 1;
  ah.port_num = id.device->port;
  return ah;
}

ib_uverbs_ah_attr RdmaIds::AhOfPath(const CmaId& id, const ib_uverbs_ah_attr& global) {
  if (id.path->dlid == 0) return global;
  ib_uverbs_ah_attr ah = {};
  ah.dlid = id.path->dlid;
  ah.sl = id.path->service_level;
  ah.port_num = global.port_num;
  return ah;
}

Result<ib_uverbs_qp_attr> RdmaIds::InitQpAttr(CmaId& id, ibv_qp_state state) {
  if (id.state == IdState::kListen) return Fail(EINVAL);
  ib_uverbs_qp_attr out = {};
  out.qp_state = state;
  const Connection* connection = ib_cm_.Find(id.connection);
  if (id.IsIwarp()) return IwarpQpAttr(id, connection != nullptr, state);
  if (connection == nullptr || id.IsUd()) {
    // The result is the same for every requested state (measured).
    out.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    // cma_ib_init_qp_attr: RoCE uses the default partition.
    const uint16_t pkey = id.HasLids() ? id.address_pkey : wire::kDefaultPkey;
    const auto pkey_index = addresses_.FindPkey(AddressOfGid(id.SourceGid()), pkey);
    if (!pkey_index) return Fail(ENOENT);
    out.pkey_index = *pkey_index;
    out.port_num = id.device->port;
    if (id.IsUd()) {
      if (const Status set = SetDefaultQkey(id); !set) return tl::make_unexpected(set.error());
      out.qkey = id.qkey;
      out.qp_attr_mask |= IBV_QP_QKEY;
    } else {
      out.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
    }
  } else if (state == IBV_QPS_INIT) {
    if (!MayInit(connection->state)) return Fail(EINVAL);
    out.qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    out.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (connection->responder_resources != 0) {
      out.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    out.pkey_index = connection->pkey_index;
    out.port_num = id.device->port;
  } else if (state == IBV_QPS_RTR) {
    if (!KnowsRemote(connection->state)) return Fail(EINVAL);
    out.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const NetAddress& sgid = id.path->sgid.IsLinkLocal() ? id.path->sgid : connection->route.source;
    out.ah_attr = AhOfPath(id, MakeAh(id, sgid, id.path->dgid, connection->flow_label,
                                      connection->hop_limit, connection->route.traffic_class));
    out.path_mtu = connection->path_mtu;
    out.dest_qp_num = connection->remote_qpn;
    if (connection->transport == wire::CmTransport::kRc) {
      out.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      out.max_dest_rd_atomic = connection->responder_resources;
    }
  } else if (state == IBV_QPS_RTS) {
    if (!KnowsRemote(connection->state)) return Fail(EINVAL);
    out.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    out.sq_psn = connection->sq_psn;
    if (connection->transport == wire::CmTransport::kRc) {
      out.qp_attr_mask |=
          IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      out.timeout = id.ack_timeout.value_or(connection->ack_timeout);
      out.retry_cnt = connection->retry_count;
      out.rnr_retry = connection->rnr_retry_count;
      out.max_rd_atomic = connection->initiator_depth;
    }
  } else {
    return Fail(EINVAL);
  }
  if (state == IBV_QPS_RTR) out.rq_psn = id.starting_psn;
  return out;
}

}  // namespace rdmaemu::cm
