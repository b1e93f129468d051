// Creates the queues of an id (rdma_create_qp(3), rdma_create_srq(3)) in the id's protection
// domain. If the caller gives no completion queues, the library creates them for the id.
#include <algorithm>

#include "shim/rdmacm/announcement.h"
#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// Creates a CQ with its own channel. Its context is the id, which rdma_verbs.h checks.
ibv_cq* MakeCq(rdma_cm_id& id, uint32_t entries, ibv_comp_channel** channel) {
  *channel = ibv_create_comp_channel(id.verbs);
  if (*channel == nullptr) return nullptr;
  ibv_cq* cq = ibv_create_cq(id.verbs, static_cast<int>(std::max(entries, 1u)), &id, *channel, 0);
  if (cq == nullptr) {
    const int error = errno;
    Uninterrupted([&] { return ibv_destroy_comp_channel(*channel); });
    *channel = nullptr;
    errno = error;
  }
  return cq;
}

void DestroyCq(ibv_cq** cq, ibv_comp_channel** channel) {
  if (*cq != nullptr) Uninterrupted([&] { return ibv_destroy_cq(*cq); });
  if (*channel != nullptr) Uninterrupted([&] { return ibv_destroy_comp_channel(*channel); });
  *cq = nullptr;
  *channel = nullptr;
}

// An XRC target's receive CQ belongs to its SRQ, and is destroyed with it.
void DestroyCqs(rdma_cm_id& id) {
  if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return;
  DestroyCq(&id.recv_cq, &id.recv_cq_channel);
  DestroyCq(&id.send_cq, &id.send_cq_channel);
}

bool MakeMissingCqs(rdma_cm_id& id, ibv_qp_init_attr_ex& attributes) {
  const bool receives = id.qp_type != IBV_QPT_XRC_SEND;
  const bool sends = id.qp_type != IBV_QPT_XRC_RECV;
  if (receives && attributes.recv_cq == nullptr && id.recv_cq == nullptr) {
    id.recv_cq = MakeCq(id, attributes.cap.max_recv_wr, &id.recv_cq_channel);
    if (id.recv_cq == nullptr) return false;
  }
  if (sends && attributes.send_cq == nullptr && id.send_cq == nullptr) {
    id.send_cq = MakeCq(id, attributes.cap.max_send_wr, &id.send_cq_channel);
    if (id.send_cq == nullptr) return false;
  }
  if (attributes.recv_cq == nullptr) attributes.recv_cq = id.recv_cq;
  if (attributes.send_cq == nullptr) attributes.send_cq = id.send_cq;
  return true;
}

int ToInit(const Id& id, ibv_qp* qp) {
  ibv_qp_attr attributes = {};
  int mask = 0;
  const int error =
      Uninterrupted([&] { return InitQpAttributes(id, IBV_QPS_INIT, &attributes, &mask); });
  return error != 0 ? error : ModifyQp(qp, attributes, mask);
}

// Moves a datagram QP to RTS at once, because it needs no peer.
int ToReadyDatagram(const Id& id, ibv_qp* qp) {
  if (const int error = ToInit(id, qp); error != 0) return error;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  if (const int error = ModifyQp(qp, attributes, IBV_QP_STATE); error != 0) return error;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 0;
  return ModifyQp(qp, attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

// Fills the attributes that the caller did not set. Returns 0 or a positive errno.
int CompleteAttributes(Id& id, ibv_qp_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attributes.pd = id.pd;
  } else if (attributes.pd->context != id.verbs) {
    return EINVAL;
  }
  if ((id.recv_cq != nullptr && attributes.recv_cq != nullptr &&
       id.recv_cq != attributes.recv_cq) ||
      (id.send_cq != nullptr && attributes.send_cq != nullptr &&
       id.send_cq != attributes.send_cq)) {
    return EINVAL;
  }
  if (id.qp_type == IBV_QPT_XRC_RECV &&
      ((attributes.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr)) {
    attributes.xrcd = XrcdOf(id.device);
    if (attributes.xrcd == nullptr) return errno;
    attributes.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  return 0;
}

int CreateQp(Id& id, ibv_qp_init_attr_ex& attributes) {
  // The real library crashes on an id without a device.
  if (id.qp != nullptr || id.device == nullptr) return EINVAL;
  if (const int error = CompleteAttributes(id, attributes); error != 0) return error;
  if (!MakeMissingCqs(id, attributes)) {
    const int error = errno;
    DestroyCqs(id);
    return error;
  }
  if (id.srq != nullptr && attributes.srq == nullptr) attributes.srq = id.srq;
  Announcement announcement(Announcement::First::kCreateQp);
  ibv_qp_attr to_init = {};
  to_init.qp_state = IBV_QPS_INIT;
  announcement.AddMove(id, /*qp=*/0, to_init, StepLink::kAttributes);
  announcement.Begin();
  ibv_qp* qp = ibv_create_qp_ex(id.verbs, &attributes);
  if (qp == nullptr) {
    const int error = errno;
    DestroyCqs(id);
    return error;
  }
  const int error = IsDatagram(id) ? ToReadyDatagram(id, qp) : ToInit(id, qp);
  if (error != 0) {
    Uninterrupted([&] { return ibv_destroy_qp(qp); });
    DestroyCqs(id);
    return error;
  }
  id.pd = qp->pd;
  id.qp = qp;
  return 0;
}

int CreateSrq(Id& id, ibv_srq_init_attr_ex& attributes) {
  if (id.device == nullptr || (attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0) return EINVAL;
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes.pd == nullptr) {
    attributes.pd = id.pd;
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (attributes.srq_type == IBV_SRQT_XRC) {
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attributes.xrcd == nullptr) {
      attributes.xrcd = XrcdOf(id.device);
      if (attributes.xrcd == nullptr) return errno;
      attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attributes.cq == nullptr) {
      if (id.recv_cq == nullptr) {
        id.recv_cq = MakeCq(id, attributes.attr.max_wr, &id.recv_cq_channel);
        if (id.recv_cq == nullptr) return errno;
      }
      attributes.cq = id.recv_cq;
      attributes.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
  }
  ibv_srq* srq = ibv_create_srq_ex(id.verbs, &attributes);
  if (srq == nullptr) {
    const int error = errno;
    DestroyCqs(id);
    return error;
  }
  if (id.pd == nullptr) id.pd = attributes.pd;
  id.srq = srq;
  return 0;
}

}  // namespace
}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* qp_init_attr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || qp_init_attr == nullptr) return Fail(EINVAL);
  return ReturnErrno(CreateQp(Private(id), *qp_init_attr));
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || qp_init_attr == nullptr) return Fail(EINVAL);
  ibv_qp_init_attr_ex attributes = {};
  attributes.qp_context = qp_init_attr->qp_context;
  attributes.send_cq = qp_init_attr->send_cq;
  attributes.recv_cq = qp_init_attr->recv_cq;
  attributes.srq = qp_init_attr->srq;
  attributes.cap = qp_init_attr->cap;
  attributes.qp_type = qp_init_attr->qp_type;
  attributes.sq_sig_all = qp_init_attr->sq_sig_all;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  attributes.pd = pd != nullptr ? pd : id->pd;
  if (const int error = CreateQp(Private(id), attributes); error != 0) return Fail(error);
  // Return the created objects to the caller, as ibv_create_qp(3) updates its attributes.
  qp_init_attr->send_cq = attributes.send_cq;
  qp_init_attr->recv_cq = attributes.recv_cq;
  qp_init_attr->srq = attributes.srq;
  qp_init_attr->cap = attributes.cap;
  return 0;
}

void rdma_destroy_qp(rdma_cm_id* id) {
  if (id == nullptr || id->qp == nullptr) return;
  rdmaemu::rdmacm::Uninterrupted([&] { return ibv_destroy_qp(id->qp); });
  id->qp = nullptr;
  rdmaemu::rdmacm::DestroyCqs(*id);
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || attr == nullptr) return Fail(EINVAL);
  return ReturnErrno(CreateSrq(Private(id), *attr));
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || attr == nullptr) return Fail(EINVAL);
  ibv_srq_init_attr_ex attributes = {};
  attributes.srq_context = attr->srq_context;
  attributes.attr = attr->attr;
  attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attributes.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  attributes.pd = pd;
  if (const int error = CreateSrq(Private(id), attributes); error != 0) return Fail(error);
  attr->attr = attributes.attr;
  return 0;
}

void rdma_destroy_srq(rdma_cm_id* id) {
  if (id == nullptr || id->srq == nullptr) return;
  rdmaemu::rdmacm::Uninterrupted([&] { return ibv_destroy_srq(id->srq); });
  id->srq = nullptr;
  rdmaemu::rdmacm::DestroyCqs(*id);
}

}  // extern "C"
